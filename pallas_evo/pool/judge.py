"""A judge's process in a pool: one request after another on stdin, one record each on stdout, until stdin ends.

It imports JAX once, and has the next candidate's processes come up while it judges one. It dies with the thread that
started it, and its own workers die with it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from pallas_evo.errors import PallasEvoError
from pallas_evo.jail.confinement import die_with_parent
from pallas_evo.pool import answering
from pallas_evo.pool.protocol import HEADER, REQUEST_BYTES, ProtocolError, Reader

LOOK_S = 1.0
_leaving: list[int] = []  # an exception alone can be lost: between Python's look for signals and a call that waits


def main(arguments: list[str] | None = None) -> int:
    """Serve until stdin ends or SIGTERM comes; both end the processes that are waiting, too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--factory", default="pallas_evo.pool.answering:real")
    options = parser.parse_args(arguments)
    die_with_parent(options.parent)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader, out = Reader(os.dup(0), REQUEST_BYTES), os.dup(1)
    os.dup2(2, 1)  # whatever a library prints goes to stderr, never among the records
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    module, _, name = options.factory.partition(":")
    factory = getattr(import_module(module), name)
    answerer = answering.Answerer(options.target, factory)
    try:
        first = reader.frame(None)
        assert first is not None
        try:
            answerer.prepare(first)
            if factory is answering.real:
                import jax.numpy as jnp

                jnp.zeros(1).block_until_ready()  # the first use starts the CPU backend
        except Exception as error:
            ours = isinstance(error, PallasEvoError)
            _write(out, {"kind": "failure", "message": str(error) if ours else f"{type(error).__name__}: {error}"})
            return 3
        _write(out, {"kind": "ready"})
        while not _leaving:
            request = reader.frame(LOOK_S)
            if request is None:
                continue
            record = answerer.answer(request, more=True)
            _write(out, {**record, "judge": {"pid": os.getpid(), "rss_bytes": _rss_bytes()}})
            del request, record
            answerer.rest()
    except ProtocolError:
        pass  # the pool has closed the pipe
    finally:
        answerer.close()
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _leaving.append(number)
    raise SystemExit(0)


def _write(out: int, record: dict[str, Any]) -> None:
    payload = json.dumps(record, default=answering.plain).encode()
    view = memoryview(HEADER.pack(len(payload)) + payload)
    while view:
        view = view[os.write(out, view) :]


def _rss_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
