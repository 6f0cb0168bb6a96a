"""The validator in its child: the same verdicts, a fresh child after a crash or a hang, strictly read answers."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time

import jax.numpy as jnp
import pytest
from artefact_programs import (
    HONEST,
    LIMITS,
    ONE,
    SEEDS,
    accepted,
    edited,
    elementwise,
    export_bytes,
    judge,
    relu,
    relu_text,
)

from pallas_evo.artefact import validate_jailed, wire
from pallas_evo.artefact.jailed import start_validator
from pallas_evo.config import ArtefactLimits
from pallas_evo.jail import level
from pallas_evo.types import Artefact, Rejection, Workload

UNJAILED = level() == "none"


def jailed(jobs: list[tuple[bytes, Workload]], limits: ArtefactLimits = LIMITS) -> list[Artefact | Rejection]:
    return validate_jailed(jobs, limits, allow_unjailed=UNJAILED)


def test_a_child_gives_the_same_verdicts() -> None:
    honest = [HONEST[name] for name in ("relu", "two outputs", "accumulate")]
    jobs = [(export_bytes(function, task), task) for function, task in honest]
    jobs.append((b"garbage", ONE))
    jobs.append((export_bytes(lambda x: relu(x * 2.0), ONE), ONE))
    found = jailed(jobs)
    assert found[:3] == [judge(function, task) for function, task in honest]
    assert [getattr(result, "reason", None) for result in found[3:]] == ["malformed", "glue_compute"]


def test_no_jobs_start_no_child() -> None:
    assert jailed([]) == []


def test_a_crash_costs_its_own_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    good = export_bytes(relu, ONE)
    deep = "tensor<" * 200_000  # MLIR's type parser recurses: the child dies of its stack, or refuses
    bad = edited(relu_text(), "tensor<16x16xf32>", "tuple<" * 200_000 + deep).encode()
    found = jailed([(good, ONE), (bad, ONE), (good, ONE)])
    assert isinstance(found[0], Artefact)
    assert found[0] == found[2]
    assert isinstance(found[1], Rejection)
    assert found[1].reason == "malformed"


def test_a_killed_child_is_the_programs_rejection() -> None:
    worker = start_validator(LIMITS, allow_unjailed=UNJAILED)
    worker.ready()
    worker.interrupt()
    good = export_bytes(relu, ONE)
    first, second = validate_jailed([(good, ONE), (good, ONE)], LIMITS, allow_unjailed=UNJAILED, worker=worker)
    assert isinstance(first, Rejection)
    assert first.reason == "malformed"
    assert isinstance(second, Artefact)


def test_a_program_past_its_deadline_is_refused() -> None:
    limits = dataclasses.replace(LIMITS, deadline_s=0.0)
    started = time.monotonic()
    (found,) = jailed([(export_bytes(relu, ONE), ONE)], limits)
    assert isinstance(found, Rejection)
    assert found.reason == "timeout"
    assert time.monotonic() - started < 20


def test_job_and_verdict_survive_the_wire() -> None:
    task = dataclasses.replace(ONE, dims={"M": 16})
    assert wire.read_job(wire.job(b"\x00\xff", task, LIMITS)) == (b"\x00\xff", task, LIMITS)
    artefact = accepted(judge(relu))
    assert wire.read_verdict(wire.verdict(artefact), ONE, LIMITS) == artefact
    rejection = Rejection(reason="no_store", message="Kernel x never stores.")
    assert wire.read_verdict(wire.verdict(rejection), ONE, LIMITS) == rejection


def _answer(**changes: object) -> bytes:
    found = json.loads(wire.verdict(accepted(judge(elementwise(jnp.exp)))))["artefact"]
    return json.dumps({"artefact": {**found, **changes}}).encode()


KERNEL = {"name": "x", "grid": [1, 1, 1], "num_warps": 4, "num_stages": 1, "ttir": "module {}"}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"artefact": 1}',
        b'{"artefact": {}, "rejection": {}}',
        b'{"other": {}}',
        b'{"rejection": {"reason": "made_up", "message": "x"}}',
        b'{"rejection": {"reason": "numerics", "message": "x"}}',
        b'{"rejection": {"reason": "no_store"}}',
        b"[" * 100_000,
        _answer(sha256="0" * 64),
        _answer(module="module {}"),
        _answer(module=7),
        _answer(moved_bytes=-1),
        _answer(moved_bytes=1.5),
        _answer(moved_bytes=True),
        _answer(kernels=[]),
        _answer(kernels=[1]),
        _answer(kernels=[{**KERNEL, "grid": [1, 1]}]),
        _answer(kernels=[{**KERNEL, "grid": [1, 1, "1"]}]),
        _answer(kernels=[{**KERNEL, "name": "a\x1b[31m"}]),
        _answer(kernels=[{**KERNEL, "ttir": None}]),
        _answer(kernels=[KERNEL] * 1000),
    ],
)
def test_an_answer_that_is_not_ours_is_refused(frame: bytes) -> None:
    with pytest.raises(wire.BadAnswer):
        wire.read_verdict(frame, ONE, LIMITS)


def test_the_door_imports_no_mlir_until_it_is_used() -> None:
    code = "import sys, pallas_evo.artefact as a; a.validate_jailed; a.compile_offline; "
    code += "print([m for m in sys.modules if 'jax' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SEEDS.parent, check=True)
    assert done.stdout.strip() == "[]"
