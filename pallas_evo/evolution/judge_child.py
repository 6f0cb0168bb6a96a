"""The judge in a process of its own: reads one request from stdin, answers with one line of JSON on stdout.

It dies with the callback that started it, and its own workers die with it. What it answers is what a judge of a pool
answers (`pallas_evo.pool.answering`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from pallas_evo.jail.confinement import die_with_parent


def main() -> int:
    """Answer one request. The exit code is 0 whenever there is an answer."""
    die_with_parent(os.getppid())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, never into the answer
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    from pallas_evo.pool.answering import Answerer, plain

    answerer = Answerer(request["target"])
    try:
        answer = answerer.answer(request)
    finally:
        answerer.close()
    out.write(json.dumps(answer, default=plain) + "\n")
    out.flush()
    return 0


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
