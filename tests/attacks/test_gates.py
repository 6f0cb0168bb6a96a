"""No gate is idle: with any one of them switched off, an attack of the corpus passes, or gets as far as a later gate.

Switched off are the gates of the judge by `judging.disabled_gates`. The validator makes the program that is run, so it
cannot be left out: there, one of its limits is lifted. The gate `time` needs a timer and is tried elsewhere.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np
import pytest
from corpus_files import attack

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.evaluation import Evaluator
from pallas_evo.reasons import GATES, REASONS
from pallas_evo.running import HostRunner
from pallas_evo.types import Artefact, Counts, Evaluation

# gate -> an attack that it alone holds (accepted without it), or holds first (a later gate takes it)
ALONE = {
    "contract": "no_evolve_block",
    "source_analysis": "settings_changed",
    "trace": "differs_by_process",
    "validate": "constants_by_computation",
    "compile": "shared_memory_overflow",
    "run": "write_past_the_end",
    "numerics": "scale_half_percent",
}
FIRST = {
    "output_range": "passthrough",
    "output_std": "mean_taken_for_zero",
    "axes_variation": "row_mean_everywhere",
    "input_impact": "bias_times_zero",
}
BEFORE = {  # gates that come earlier and see the same, and so must be off to see this one at work
    "output_std": ["output_range"],
    "axes_variation": ["output_range", "output_std"],
    "input_impact": ["output_range", "output_std", "axes_variation"],
}


def judge(name: str, *off: str, gate: str) -> Evaluation:
    """One attack with some gates off, as cheaply as that gate allows."""
    entry, config = attack(name), Config()
    config.trace.deadline_s = config.run.deadline_s = config.compile.deadline_s = 20.0
    config.compile.enabled = gate == "compile"
    config.judging.timed_sizes = ["small"] if gate == "compile" else []
    config.judging.medium_seeds = 0
    config.judging.variant_seeds = 0
    config.judging.disabled_gates = [name for name in off if name != "validate"]
    if "validate" in off:
        config.artefact.glue_constant_bytes = 1 << 40
    with Evaluator(config, target="cpu") as evaluator:
        return evaluator.evaluate(entry.source, tasks.get_task(entry.task))


def test_every_gate_is_tried() -> None:
    assert [gate for gate in GATES if gate in ALONE or gate in FIRST] == [gate for gate in GATES if gate != "time"]


def blind(runner: HostRunner, artefact: Artefact, inputs: Sequence[np.ndarray], **_: object):
    """A runner that sees no fault, as a GPU would not: this attack's output is right."""
    return (
        tasks.yardstick(tasks.get_task(artefact.workload.task_id), inputs),
        Counts(bytes_loaded=0, bytes_stored=0, flops=0),
        0.0,
    )


@pytest.mark.parametrize("gate", ALONE)
def test_without_this_gate_an_attack_is_accepted(gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gate == "compile" and importlib.util.find_spec("triton") is None:
        pytest.skip("the `ptx` extra is not installed: nothing compiles here")
    held = judge(ALONE[gate], gate=gate)
    assert (held.status, held.stage) == ("rejected", gate), held.message
    assert held.combined_score == 0.0
    if gate == "run":  # the executor gives no output of a program that it refuses
        monkeypatch.setattr(HostRunner, "run", blind)
    free = judge(ALONE[gate], gate, gate=gate)
    assert free.status == "accepted", f"{free.reason}: {free.message}"


@pytest.mark.parametrize("gate", ["contract", "source_analysis", "trace", "validate", "run"])
def test_what_never_ran_is_not_correct_whatever_is_switched_off(gate: str) -> None:
    name = {"contract": "no_kernel_at_all", "validate": "library_dot", "run": "never_stores"}.get(gate, "system_exit")
    found = judge(name, *GATES, gate=gate)
    assert (found.status, found.combined_score) == ("rejected", 0.0)
    assert found.reason is not None


@pytest.mark.parametrize("gate", FIRST)
def test_without_this_filter_an_attack_gets_further(gate: str) -> None:
    before = BEFORE.get(gate, [])
    held = judge(FIRST[gate], *before, gate=gate)
    assert (held.stage, held.reason) == (gate, gate), held.message
    free = judge(FIRST[gate], *before, gate, gate=gate)
    assert free.reason is None or GATES.index(REASONS[free.reason][0]) > GATES.index(gate), free.message
