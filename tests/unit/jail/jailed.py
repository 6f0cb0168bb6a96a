"""Run arbitrary code in a jail: the tracer's child takes it for a candidate."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass

import pytest

from pallas_evo.jail import LEVELS, Ended, Level, Worker, WorkerLimits, probe
from pallas_evo.jail.processes import marked

WORKING = [level for level in LEVELS if probe(level).works]
levels = pytest.mark.parametrize("level", WORKING)
DEADLINE_S = 5.0


@dataclass
class Ran:
    """What came back, and what the code printed."""

    answer: bytes | Ended
    output_text: str
    seconds: float
    token: str
    scratch: str


def run(code: str, level: Level, deadline_s: float = DEADLINE_S, **limits: int) -> Ran:
    """Run `code` as a candidate's import. It answers with an `E` frame, because it defines no kernel."""
    with Worker("pallas_evo.tracing.child", limits=WorkerLimits(**limits), _level=level) as worker:
        assert worker.receive(60, 16) == b"R"
        request = {"source": code, "force_triton": False, "device_kind": "", "artefact_bytes": 1, "workloads": []}
        worker.send(json.dumps(request).encode())
        start = time.monotonic()
        answer = worker.receive(deadline_s, 1 << 20)
        if not isinstance(answer, Ended):
            worker.receive(deadline_s, 1 << 20)  # until it has ended, so that all it printed is here
        seconds = time.monotonic() - start
    return Ran(answer, worker.output_text, seconds, worker.token, worker.scratch)


def assert_nothing_left(ran: Ran) -> None:
    """No process of it, and no scratch folder."""
    assert marked(ran.token) == []
    assert not os.path.exists(ran.scratch)
