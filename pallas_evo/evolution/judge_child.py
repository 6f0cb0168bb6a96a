"""The judge in a process of its own: reads one request from stdin, answers with one line of JSON on stdout.

It dies with the callback that started it, and its own workers die with it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

SOURCE_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Answer one request. The exit code is 0 whenever there is an answer."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return 3
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, never into the answer
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    out.write(json.dumps(_answer(request), default=_plain) + "\n")
    out.flush()
    return 0


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from pallas_evo.errors import PallasEvoError, UsageError

    try:
        return _judge(request)
    except UsageError as error:
        return {"kind": "usage", "message": str(error)}
    except PallasEvoError as error:
        return {"kind": "failure", "message": f"{type(error).__name__}: {error}"}
    except Exception as error:  # a fault of our own code, which no candidate shall be blamed for
        import traceback

        traceback.print_exc()
        return {"kind": "failure", "message": f"{type(error).__name__}: {error}"}


def _judge(request: dict[str, Any]) -> dict[str, Any]:
    from pallas_evo.config import load_config
    from pallas_evo.evaluation import Evaluator
    from pallas_evo.evolution.metrics import shinka_metrics
    from pallas_evo.tasks import get_task

    task = get_task(request["task"])
    source = _read(Path(request["program"]))
    config = load_config(Path(request["config"]) if request["config"] else None, request["overrides"])
    with Evaluator(config, target=request["target"]) as evaluator:
        evaluation = evaluator.evaluate(source, task)
    return {
        "kind": "judged",
        "correct": bool(evaluation.correct),
        "error": None if evaluation.correct else f"{evaluation.reason}: {evaluation.message}",
        "metrics": shinka_metrics(task, evaluation),
        "evaluation": dataclasses.asdict(evaluation),
    }


def _read(path: Path) -> str:
    """The candidate; of one that is far too large as much as shows it, for the contract gate to refuse."""
    from pallas_evo.errors import UsageError

    try:
        with path.open("rb") as file:
            return file.read(SOURCE_BYTES).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: the candidate cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the candidate is not UTF-8 (byte {error.start}).") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "items"):
        return dict(value)
    raise TypeError(f"expected what JSON can hold, came a {type(value).__name__}")


if __name__ == "__main__":
    sys.exit(main())
