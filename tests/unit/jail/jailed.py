"""Run arbitrary code in a jail: the tracer's child takes it for a candidate."""

from __future__ import annotations

import atexit
import functools
import json
import os
import time
from dataclasses import dataclass
from typing import cast

import pytest

from pallas_evo.jail import LEVELS, Ended, Level, Nursery, Worker, WorkerLimits, probe
from pallas_evo.jail.nursery import Forked
from pallas_evo.jail.processes import marked
from pallas_evo.tracing.tracer import CHILD, ENVIRONMENT

WORKING = [level for level in LEVELS if probe(level).works]
FORKED = ", forked"
"""After a level's name: the child comes from a nursery."""

levels = pytest.mark.parametrize(
    "level", [*WORKING, *(level + FORKED for level in WORKING if level == "landlock+seccomp")]
)
DEADLINE_S = 5.0


@functools.cache
def nursery() -> Nursery:
    """One for all tests of a process."""
    made = Nursery(CHILD, env=ENVIRONMENT)
    atexit.register(made.close)
    return made


@dataclass
class Ran:
    """What came back, and what the code printed."""

    answer: bytes | Ended
    output_text: str
    seconds: float
    token: str
    scratch: str
    pid: int


def run(code: str, level: str, deadline_s: float = DEADLINE_S, **limits: int) -> Ran:
    """Run `code` as a candidate's import. It answers with an `E` frame, because it defines no kernel."""
    from_nursery = nursery() if level.endswith(FORKED) else None
    bare = cast(Level, level.removesuffix(FORKED))
    with Worker(CHILD, limits=WorkerLimits(**limits), nursery=from_nursery, _level=bare) as worker:
        assert isinstance(worker._process, Forked) == (from_nursery is not None)
        assert worker.receive(60, 16) == b"R"
        request = {"source": code, "force_triton": False, "device_kind": "", "artefact_bytes": 1, "workloads": []}
        worker.send(json.dumps(request).encode())
        start = time.monotonic()
        answer = worker.receive(deadline_s, 1 << 20)
        if not isinstance(answer, Ended):
            worker.receive(deadline_s, 1 << 20)  # until it has ended, so that all it printed is here
        seconds = time.monotonic() - start
    return Ran(answer, worker.output_text, seconds, worker.token, worker.scratch, worker.pid)


def assert_nothing_left(ran: Ran) -> None:
    """No process of it, and no scratch folder."""
    assert marked(ran.token) == []
    assert not os.path.exists(f"/proc/{ran.pid}")
    assert not os.path.exists(ran.scratch)
