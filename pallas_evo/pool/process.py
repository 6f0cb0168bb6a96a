"""One judge process, from the pool's side: started, asked, and always ended whole.

Start it from the thread that keeps it: the kernel ends the judge when that thread ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from pallas_evo.errors import WorkerFailed
from pallas_evo.jail import scratch
from pallas_evo.pool import protocol
from pallas_evo.pool.protocol import ProtocolError, Reader
from pallas_evo.pool.surroundings import judge_environment

MODULE = "pallas_evo.pool.judge"
START_S = 180.0  # JAX, and the probes of the jail, on a busy machine
GRACE_S = 5.0  # from SIGTERM until SIGKILL: time to end its own workers and to remove their folders
SAID_CHARACTERS = 2000
MOST_THREADS = 4  # of a judge's references


class Lost(Exception):
    """The judge ended, or did not answer in time, and is gone."""


class JudgeProcess:
    """A judge's process, from construction until `close`.

    Args:
        target: cpu or cuda.
        gpu: what its `CUDA_VISIBLE_DEVICES` shall be; None leaves it as it is here.
        factory: `module:name` of what makes its judge; None for the real one.
    """

    def __init__(self, *, target: str, gpu: str | None = None, factory: str | None = None) -> None:
        environment = judge_environment()
        # JAX's CPU backend starts a thread for each core, and those of several judges would spin against each other.
        environment.setdefault("PJRT_NPROC", str(max(1, min(MOST_THREADS, (os.cpu_count() or 1) // 2))))
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._scratch = environment["PALLAS_EVO_SCRATCH"] = scratch.make()  # what a judge that is killed leaves is here
        line = [sys.executable, "-P", "-m", MODULE, "--parent", str(os.getpid()), "--target", target]
        if factory is not None:
            line += ["--factory", factory]
            environment["PYTHONPATH"] += os.pathsep + os.pathsep.join(path for path in sys.path if path)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        try:
            self._process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._said.close()
            scratch.remove(self._scratch)
            raise WorkerFailed(f"A judge's process could not be started ({error.strerror}).") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._reader = Reader(self._process.stdout.fileno(), protocol.ANSWER_BYTES)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, config_text: str) -> None:
        """Wait until it can judge; the configuration is what its first processes are started for.

        Raises:
            WorkerFailed: it cannot, and why.
        """
        try:
            answer = self.ask(protocol.pack({"config_text": config_text}), START_S)
        except Lost as error:
            raise WorkerFailed(f"A judge's process did not start: {error}") from error
        if answer.get("kind") != "ready":
            self.close()
            raise WorkerFailed(str(answer.get("message", "A judge's process did not start.")))

    def ask(self, request: bytes, seconds: float) -> dict[str, Any]:
        """Its answer to a packed request.

        Raises:
            Lost: there is none; the process has been ended.
        """
        try:
            view = memoryview(request)
            while view:  # the judge reads whenever it is idle, so this waits for a dead one only, and that breaks it
                view = view[os.write(self._stdin.fileno(), view) :]
            answer = self._reader.frame(seconds)
        except (OSError, ValueError, ProtocolError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self.close(grace_s=0.0)
            raise Lost(self._ended(str(error))) from error
        if answer is None:
            self.close(grace_s=0.0)
            raise Lost(f"the judge did not answer within {seconds:g} s")
        return answer

    def stop(self) -> None:
        """Ask it to end, from any thread; whoever is in `ask` gets `Lost`."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, from any thread; what it started ends with it."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, *, grace_s: float = GRACE_S) -> None:
        """End it, and all that it started. Safe to call again."""
        if grace_s:
            self.stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        scratch.remove(self._scratch)

    def _ended(self, why: str) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, size - SAID_CHARACTERS))
            said = self._said.read().decode("utf-8", "replace").strip()
            return f"the judge ended (code {self._process.returncode})" + (f": {said}" if said else "")
        return f"the judge ended: {why}"
