"""Processes that wait for a candidate and die meanwhile are neither a candidate's fault nor a failure."""

from __future__ import annotations

import os
import signal
import time

import pytest

from pallas_evo import paths, tasks
from pallas_evo.config import Config
from pallas_evo.evaluation import Evaluator
from pallas_evo.jail.processes import below

RELU = paths.seed_file("L1/relu").read_text()
KINDS = {
    "tracer": lambda spares: spares.tracers.workers[0],
    "second tracer": lambda spares: spares.tracers.workers[1],
    "validator": lambda spares: spares.validator,
    "host": lambda spares: spares.host._worker,
    "compiler": lambda spares: spares.compiler,
}


@pytest.fixture(scope="module")
def evaluator():
    config = Config()
    config.judging.small_seeds, config.judging.variant_seeds, config.judging.medium_seeds = 1, 0, 0
    with Evaluator(config, target="cpu") as made:
        yield made


def kill(spares, kind, inner):
    """End one of the waiting processes, or what runs inside its jail, and wait until that shows."""
    worker = KINDS[kind](spares)
    if worker is None:
        pytest.skip("the `ptx` extra is not installed: nothing compiles here")
    worker.ready()  # and what is inside its jail runs
    inside = below(worker.pid)
    if inner and not inside:
        pytest.skip("nothing runs below it at this level")
    assert spares.alive
    os.kill(inside[-1] if inner else worker.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while spares.alive and time.monotonic() < end:
        time.sleep(0.01)
    assert not spares.alive


@pytest.mark.parametrize("inner", [False, True], ids=["itself", "what is inside its jail"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_spare_that_died_while_it_waited_is_replaced(evaluator, kind, inner):
    evaluator.prepare()
    spares = evaluator._spares
    kill(spares, kind, inner)
    evaluator.prepare()
    assert evaluator._spares is not spares
    assert evaluator._spares.alive


def test_the_next_candidate_does_not_notice(evaluator):
    evaluator.prepare()
    kill(evaluator._spares, "host", inner=False)
    verdict = evaluator.evaluate(RELU, tasks.get_task("L1/relu"))
    assert verdict.correct, verdict.message


def test_spares_that_live_are_used(evaluator):
    evaluator.prepare()
    spares = evaluator._spares
    evaluator.prepare()
    assert evaluator._spares is spares
