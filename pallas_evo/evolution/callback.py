"""What ShinkaEvolve calls for each candidate: `--program_path P --results_dir R --task ID`.

This process imports the standard library only. It clears and writes the result files, and asks the service that keeps
judges warm (`pallas_evo serve`); where none is there it starts the judge (`judge_child`) in a process group of its own
with a scrubbed environment. Either is held to a deadline that is shorter than ShinkaEvolve's. It notices when its own
parent is gone, because ShinkaEvolve leaves its evaluators behind.

A candidate that is refused is a result: files, exit code 0. A failure of ours is none: the files say `correct: false`
and `judged: false`, `private.failure` says why, the exit code is not 0, and our runner (`runner.py`) never stores such
a program.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pallas_evo.errors import PallasEvoError, UsageError, WorkerFailed
from pallas_evo.pool import client
from pallas_evo.pool.surroundings import judge_environment

DEADLINE_S = 300.0
RETRIES = 1
ERROR_CHARACTERS = 2000
SOURCE_BYTES = 1 << 20


class _Abandoned(WorkerFailed):
    """Whoever asked for the judgement has ended."""


def judge_file(
    program: str | os.PathLike[str],
    results_dir: str | os.PathLike[str],
    *,
    task: str,
    target: str = "auto",
    config: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    deadline_s: float = DEADLINE_S,
    retries: int = RETRIES,
    service: str = "auto",
) -> dict[str, Any]:
    """Judge a candidate file, write `metrics.json`, `correct.json` and `evaluation.json`, and return the metrics.

    Args:
        program: the candidate.
        results_dir: made where it is missing; result files that lie there are replaced.
        task: the task's id.
        target: auto, cpu or cuda.
        config: a YAML file, as `pallas_evo evaluate --config` takes it.
        overrides: `key=value`, as `--set` takes them.
        deadline_s: for the whole, retries included.
        retries: how often a failure of ours is tried again, in a process of our own.
        service: `auto` asks the service that keeps judges warm where one serves this user, `off` does not, a path is
            its socket's.

    Raises:
        UsageError: there is no such task, configuration or file.
        PallasEvoError: we failed. The files say `correct: false`, and `private.failure` says why.
    """
    folder = Path(results_dir)
    _clear(folder)
    _write_failure(folder, "The judge was ended before it had judged the candidate.")
    end, parent = time.monotonic() + deadline_s, os.getppid()
    try:
        request = {
            "source": _read(Path(program), SOURCE_BYTES, "candidate"),
            "task": task,
            "target": target,
            "config_text": _read(Path(config), None, "configuration") if config else None,
            "config_name": str(config) if config else None,
            "overrides": list(overrides),
        }
        for left in range(retries, -1, -1):
            try:
                warm = _ask_service(request, service, end, parent) if left == retries else None
                answer = warm or _ask_process(request, end, deadline_s, parent)
                break
            except (UsageError, _Abandoned):
                raise
            except PallasEvoError:
                if left == 0 or time.monotonic() > end - 1:
                    raise
                time.sleep(0.5)
    except PallasEvoError as error:
        _write_failure(folder, str(error))
        raise
    metrics: dict[str, Any] = answer["metrics"]
    _write(folder / "evaluation.json", answer["evaluation"], allow_nan=True)
    _write(folder / "metrics.json", metrics)
    _write(folder / "correct.json", {"correct": answer["correct"], "error": answer["error"], "judged": True})
    return metrics


def _ask_service(request: Mapping[str, Any], service: str, end: float, parent: int) -> dict[str, Any] | None:
    """The answer of a judge that is kept warm behind a socket, or None where one has to do without it."""

    def look() -> None:
        if os.getppid() != parent:
            raise _Abandoned("ShinkaEvolve is gone, so nobody waits for this judgement.")

    answer = client.ask(request, service=service, deadline_s=end - time.monotonic(), look=look)
    return None if answer is None else _verdict(answer)


def _ask_process(request: Mapping[str, Any], end: float, deadline_s: float, parent: int) -> dict[str, Any]:
    """The answer of a judge process of its own, killed with all it started when time is up or when we end."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "pallas_evo.evolution.judge_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=judge_environment(),
            start_new_session=True,
        )
        parts: list[bytes] = []
        reader = threading.Thread(target=_drain, args=(child, parts), daemon=True)
        try:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(request).encode() + b"\n")
                child.stdin.flush()  # and left open: its end tells the child that we are gone
            reader.start()
            while reader.is_alive():
                if time.monotonic() > end:
                    raise WorkerFailed(f"The judge did not answer within {deadline_s:g} s. Is this machine overloaded?")
                if os.getppid() != parent:
                    raise _Abandoned("ShinkaEvolve is gone, so nobody waits for this judgement.")
                reader.join(0.1)
            answer = _read_answer(b"".join(parts))
        finally:
            _end(child)
        if answer is None:
            errors.seek(0)
            said = errors.read()[-ERROR_CHARACTERS:].decode("utf-8", "replace").strip()
            raise WorkerFailed(f"The judge ended without an answer (exit code {child.returncode}). {said}".strip())
    return _verdict(answer)


def _verdict(answer: dict[str, Any]) -> dict[str, Any]:
    """A record that is a verdict; the others are raised."""
    if answer["kind"] == "usage":
        raise UsageError(answer["message"])
    if answer["kind"] != "judged":
        raise WorkerFailed(answer["message"])
    return answer


def _drain(child: subprocess.Popen[bytes], parts: list[bytes]) -> None:
    assert child.stdout is not None
    with contextlib.suppress(OSError, ValueError):
        parts.append(child.stdout.readline())


def _read_answer(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and "kind" in answer else None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Give the judge a moment to end its own workers, then kill its whole group."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


# ---- the files -------------------------------------------------------------------------------------------------


def _read(path: Path, most: int | None, what: str) -> str:
    """A file's text; of one that is far too large as much as shows it, for the contract gate to refuse."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the {what} is not UTF-8 (byte {error.start}).") from error


def _clear(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("correct.json", "metrics.json", "evaluation.json"):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise PallasEvoError(f"{folder}: results cannot be written there ({error.strerror}).") from error


def _write_failure(folder: Path, message: str) -> None:
    text = f"The judge failed, the candidate was not judged: {message}"[:ERROR_CHARACTERS]
    metrics = {"combined_score": 0.0, "public": {}, "private": {"failure": text}, "text_feedback": text}
    _write(folder / "metrics.json", metrics)
    _write(folder / "correct.json", {"correct": False, "error": text, "judged": False})


def _write(path: Path, content: Mapping[str, Any], *, allow_nan: bool = False) -> None:
    """By temporary file and rename, so that whoever reads sees all of it or nothing."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, allow_nan=allow_nan)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise PallasEvoError(f"{path}: cannot be written ({error.strerror}).") from error


# ---- the command -----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """The command that ShinkaEvolve runs. Exit code 0: judged. 2: used wrongly. 3: we failed."""
    parser = argparse.ArgumentParser(prog="evaluate.py", description="Judge one candidate for ShinkaEvolve.")
    parser.add_argument("--program_path", required=True)
    parser.add_argument("--results_dir", required=True)
    parser.add_argument("--task", required=True, help="a task id, such as L1/softmax")
    parser.add_argument("--target", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--config", help="a YAML file with limits, sizes and thresholds")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--deadline_s", type=float, default=DEADLINE_S)
    parser.add_argument("--retries", type=int, default=RETRIES)
    parser.add_argument("--service", default="auto", metavar="auto|off|PATH", help="judges that are kept warm")
    options = vars(parser.parse_args(arguments))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        metrics = judge_file(options.pop("program_path"), options.pop("results_dir"), **options)
    except PallasEvoError as error:
        print(f"error: {error}"[:ERROR_CHARACTERS], file=sys.stderr)
        return error.exit_code
    print(f"{metrics['public'].get('status', '')} {metrics['combined_score']:.4f}")
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End through `finally`, so that the judge is killed; the files already say that nothing was judged."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
