"""The GPU's runner on JAX's CPU backend, with plain StableHLO in a kernel's place: everything but the GPU is real."""

from __future__ import annotations

import os
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_evo import tasks
from pallas_evo.config import RunLimits
from pallas_evo.errors import WorkerFailed
from pallas_evo.running import DeviceRunner
from pallas_evo.running.turns import draw_turns, turned
from pallas_evo.types import Artefact, Rejection

TASK = tasks.get_task("L1/relu")
WORKLOAD = tasks.workload(TASK, tasks.dims_of(TASK, "small"), "small")
SHAPE = WORKLOAD.inputs[0].shape


def artefact(function) -> Artefact:
    """A program of ours as if it had come from the validator."""
    text = jax.jit(function).lower(jax.ShapeDtypeStruct(SHAPE, jnp.float32)).as_text()
    return Artefact(workload=WORKLOAD, module=text, sha256="", kernels=(), moved_bytes=0)


RELU = artefact(lambda x: jnp.maximum(x, 0.0))
ENDLESS = artefact(lambda x: jax.lax.while_loop(lambda v: jnp.isfinite(v[0, 0]), lambda v: jnp.abs(jnp.sin(v)), x))


@pytest.fixture
def runner(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # the lease's files
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with DeviceRunner(RunLimits(device_deadline_s=3.0), platform="cpu") as made:
        yield made


def inputs(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE, np.float32)


def test_it_runs_times_and_hands_back_the_outputs_that_were_asked_for(runner):
    x = inputs()
    output, _, seconds = runner.run(RELU, [x])
    np.testing.assert_array_equal(output, np.maximum(x, 0))
    assert seconds > 0
    rng = np.random.default_rng(1)
    base = inputs(2)
    turns = draw_turns(["normal"], [SHAPE[0]], rng, 8)
    assert runner.prepare(RELU, [base], turns[:6], turns[6:], "wall") is None
    with runner.alone():
        timed = runner.measure(RELU, "wall")
    assert len(timed.candidate_us) == len(timed.baseline_us) == 6
    assert all(sample > 0 for sample in (*timed.candidate_us, *timed.baseline_us))
    for index, output in zip([1, 4], runner.timed_outputs(RELU, [1, 4]), strict=True):  # the same bits as the host's
        np.testing.assert_array_equal(output, np.maximum(turned([base], turns[index])[0], 0))


def test_a_program_is_timed_against_another_in_the_baselines_place(runner):
    assert isinstance(runner.compile(RELU), float)
    turns = draw_turns(["normal"], [SHAPE[0]], np.random.default_rng(1), 6)
    assert runner.prepare(RELU, [inputs()], turns[:4], turns[4:], "wall", against=RELU) is None
    with runner.alone():
        assert len(runner.measure(RELU, "wall").baseline_us) == 4


def test_an_endless_program_is_killed_and_stays_refused(runner):
    first = runner.run(ENDLESS, [inputs()])
    assert isinstance(first, Rejection)
    assert first.reason == "endless"
    assert runner.run(RELU, [inputs()]) == first
    assert not runner.alive


def test_a_process_that_is_killed_from_outside_is_our_failure(runner):
    runner.run(RELU, [inputs()])
    os.kill(runner._worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed):
        runner.run(RELU, [inputs()])


def test_stopping_wakes_the_thread_that_waits(runner):
    assert isinstance(runner.compile(ENDLESS), float)
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(runner.run(ENDLESS, [inputs()], deadline_s=60))
        except WorkerFailed as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    runner.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(answers[0], WorkerFailed)


def test_a_module_that_is_none_is_a_refusal(runner):
    bad = Artefact(workload=WORKLOAD, module="func.func @main() {", sha256="", kernels=(), moved_bytes=0)
    refused = runner.run(bad, [inputs()])
    assert isinstance(refused, Rejection)
    assert refused.reason == "compile_error"


def test_large_arrays_do_not_go_through_the_pipe(runner):
    x = np.zeros((1 << 22,), np.float32)
    runner._inward.write([x, x])
    assert os.fstat(runner._inward.descriptor).st_size == 2 * x.nbytes
