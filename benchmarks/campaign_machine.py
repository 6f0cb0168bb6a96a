"""What a campaign has done for it on a real machine: one judging service, ShinkaEvolve runs, final verdicts.

    python benchmarks/campaign_machine.py    a final verdict: a request on stdin, the verdict on stdout

The service listens on a socket of its own in the work folder; runs find it by their environment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pallas_evo import tasks
from pallas_evo.config import load_config
from pallas_evo.errors import PallasEvoError, WorkerFailed

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 30.0  # for a run that was told to stop, to put its programs into the archive


class Machine:
    """Judges behind one service, ShinkaEvolve runs that use it, and final verdicts in processes of their own."""

    def __init__(
        self, work: Path, archive: Path, target: str, judges: int, jobs: int, overrides: Sequence[str]
    ) -> None:
        self.work, self.archive, self.target, self.judges, self.jobs = work, archive, target, judges, jobs
        self.overrides = list(overrides)
        self.socket = work / "service" / "judge.sock"
        self._service: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"},  # ours is for references
            "PALLAS_EVO_SOCKET": str(self.socket),
            "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]),
        }

    def _command(self, *words: str) -> list[str]:
        sets = [word for value in self.overrides for word in ("--set", value)]
        return [sys.executable, "-m", "pallas_evo.cli.app", *words, *sets]

    def _serve(self) -> None:
        """Start the service where none runs, and wait until its first judge is ready."""
        with self._lock:
            if self._service is not None and self._service.poll() is None:
                return
            words = ["serve", "--socket", str(self.socket), "--judges", str(self.judges), "--target", self.target]
            with (self.work / "serve.log").open("ab") as log:
                self._service = subprocess.Popen(
                    self._command(*words, "--json"),
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            assert self._service.stdout is not None
            if not self._service.stdout.readline():
                said = (self.work / "serve.log").read_text(errors="replace")[-1000:]
                raise WorkerFailed(f"The judging service did not start: {said}")

    def rest(self) -> None:
        """End the service: final verdicts want the memory."""
        with self._lock:
            if self._service is not None:
                _end(self._service)
                self._service = None

    def judge(self, source: str, task: str) -> dict[str, Any]:
        from pallas_evo.bench.judges import evaluation_of
        from pallas_evo.pool import client

        self._serve()
        request = {"source": source, "task": task, "target": self.target, "overrides": self.overrides}
        record = client.ask(request, service=str(self.socket), deadline_s=300)
        if record is None:
            raise WorkerFailed("The judging service gave no answer.")
        return evaluation_of(record)

    def evolve(self, task: str, programs: int, seed: int, stopping: threading.Event) -> None:
        self._serve()
        name = f"{task.replace('/', '_')}-{seed}"
        words = ["evolve", task, "--generations", str(programs), "--best", "2", "--seed", str(seed), "--json"]
        words += ["--run-dir", str(self.work / name), "--archive", str(self.archive)]
        words += ["--target", self.target, "--jobs", str(self.jobs)]
        path = self.work / f"{name}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                self._command(*words),
                cwd=self.work,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while process.poll() is None:
            if stopping.wait(0.2):
                _end(process)
        shutil.rmtree(self.work / name, ignore_errors=True)
        if process.returncode != 0 and not stopping.is_set():
            raise WorkerFailed(path.read_text(errors="replace")[-500:])

    def final(
        self, source: str, task: str, sizes: Sequence[str], heavy: bool, limit_s: float, stopping: threading.Event
    ) -> dict[str, Any]:
        self.rest()
        sets = [*self.overrides, f"judging.timed_sizes=[{','.join(sizes)}]", "texts.keep=accepted"]
        sets += ["timer.judged_outputs=1"] if heavy else []
        request = json.dumps({"source": source, "task": task, "overrides": sets, "target": self.target})
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            env={**self.environment, "JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, errors = _answer(process, request, limit_s, stopping)
        finally:
            _end(process)
        if process.returncode != 0:
            raise WorkerFailed(errors[-500:] or f"It ended with exit code {process.returncode}.")
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        return answer

    def bandwidth(self) -> dict[str, Any] | None:
        if self.target != "cuda":
            return None
        from pallas_evo.evaluation import copy_bandwidth

        return dataclasses.asdict(copy_bandwidth(load_config(overrides=self.overrides)))


def judge_final() -> int:
    """What a process of its own does: a request on stdin, a verdict on stdout."""
    from pallas_evo.evaluation.elites import rejudge
    from pallas_evo.pool.answering import plain

    request = json.loads(sys.stdin.read())
    config = load_config(overrides=request["overrides"])
    try:
        verdict = rejudge(request["source"], tasks.get_task(request["task"]), config, target=request["target"])
    except PallasEvoError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(dataclasses.asdict(verdict), default=plain))
    return 0


def _answer(process: subprocess.Popen[str], request: str, limit_s: float, stopping: threading.Event) -> tuple[str, str]:
    """(stdout, stderr) of a process that ends by itself, in time."""
    end = time.monotonic() + limit_s
    given: str | None = request
    while True:
        try:
            return process.communicate(given, timeout=0.5)
        except subprocess.TimeoutExpired as error:
            given = None
            if stopping.is_set() or time.monotonic() > end:
                raise WorkerFailed(f"It was not judged within {limit_s:.0f} s, or was told to stop.") from error


def _end(process: subprocess.Popen[Any]) -> None:
    """SIGTERM, and SIGKILL after a while, for a process that we started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


if __name__ == "__main__":
    sys.exit(judge_final())
