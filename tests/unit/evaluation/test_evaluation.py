"""The whole way on this machine's CPU, for one honest candidate and for failures at several gates."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from pallas_evo import paths, tasks
from pallas_evo.config import Config
from pallas_evo.errors import DeviceUnavailable
from pallas_evo.evaluation import Evaluator, evaluate
from pallas_evo.reasons import GATES, REASONS
from pallas_evo.running import gpu_present

RELU = paths.seed_file("L1/relu").read_text()
TASK = tasks.get_task("L1/relu")


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(Config(), target="cpu") as made:
        yield made


def test_an_honest_candidate_passes_every_gate_but_time(evaluator):
    verdict = evaluator.evaluate(RELU, TASK, more=True)
    assert verdict.correct, verdict.message
    assert verdict.status == "accepted"
    assert verdict.combined_score == 1.0
    assert verdict.timer == "untimed"
    assert [gate.name for gate in verdict.gates] == [name for name in GATES if name != "time"]
    assert set(verdict.filters) == {"output_range", "output_std", "axes_variation", "input_impact", "source_analysis"}
    assert set(verdict.sizes) == {"small", "variant"}
    assert all(size.median_us is None for size in verdict.sizes.values())
    assert verdict.ran_on == "cpu"
    json.dumps(asdict(verdict), allow_nan=False)


def test_seeds_are_drawn_anew_each_time(evaluator):
    first, second = (evaluator.evaluate(RELU, TASK, more=True).seeds for _ in range(2))
    assert first.keys() == second.keys()
    assert all(first[name] != second[name] for name in first)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("jnp.maximum(x, 0.0)", "x", "output_range"),
        ("jnp.maximum(x, 0.0)", "jnp.maximum(x, 0.0) * 1.0001", "numerics"),
        ("inside = (rows < m)", "rows = rows + 1\n    inside = (rows > 0)", "out_of_bounds"),
        ("pl.cdiv(m, BLOCK_M)", "pl.cdiv(m, 2 * BLOCK_M)", "unwritten"),
        ("BLOCK_N = 128", "BLOCK_N = 96", "lowering_error"),
        ("def kernel(x):", "def kernel(x, y):", "arity"),
        ("import jax\n", "import jax\nimport os\n", "forbidden_import"),
        ("    m, n = x.shape\n    return", "    m, n = x.shape\n    x = x * 2\n    return", "glue_compute"),
        ("def kernel(x):", "def kernel(x):\n    return jnp.maximum(x, 0)", "not_pallas"),
    ],
    ids=lambda value: value if value in REASONS else "",
)
def test_a_broken_relu_is_refused_with_its_reason(evaluator, old, new, reason):
    assert old in RELU
    verdict = evaluator.evaluate(RELU.replace(old, new), TASK, more=True)
    assert (verdict.status, verdict.reason) == ("rejected", reason), verdict.message
    assert verdict.combined_score == 0.0
    assert verdict.stage in GATES
    assert reason in verdict.text_feedback
    assert "Traceback" not in verdict.text_feedback


def test_a_block_that_is_no_power_of_two_is_named_with_a_way_out(evaluator):
    verdict = evaluator.evaluate(RELU.replace("BLOCK_N = 128", "BLOCK_N = 96"), TASK)
    assert "BLOCK_N = 96" in verdict.text_feedback
    assert "64" in verdict.text_feedback
    assert "128" in verdict.text_feedback


@pytest.mark.skipif(gpu_present(), reason="there is a GPU here")
def test_without_a_gpu_cuda_is_our_failure_and_auto_is_the_cpu():
    with pytest.raises(DeviceUnavailable, match="--target cpu"):
        Evaluator(target="cuda")
    assert Evaluator(target="auto").target == "cpu"


def test_the_door_takes_an_id():
    assert evaluate(RELU, "L1/relu", target="cpu").correct


def test_what_is_refused_before_it_ran_costs_no_processes():
    with Evaluator(Config(), target="cpu") as evaluator:
        evaluator.prepare()
        waiting = evaluator._spares
        assert evaluator.evaluate("def kernel(:", TASK, more=True).reason == "syntax"
        assert evaluator._spares is waiting
        assert evaluator.evaluate(RELU, TASK).correct
        assert evaluator._spares is not waiting


def test_the_judge_forks_where_it_may_and_judges_the_same():
    with Evaluator(Config(), target="cpu", nursed=True) as evaluator:
        verdicts = [evaluator.evaluate(RELU, TASK, more=True) for _ in range(2)]
    assert all(verdict.correct for verdict in verdicts)
