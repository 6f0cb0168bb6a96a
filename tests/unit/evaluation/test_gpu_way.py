"""The way of a candidate on a GPU, with a GPU that is made up: what it is asked, and what it is never asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest

from pallas_evo import paths, tasks
from pallas_evo.config import Config
from pallas_evo.errors import DeviceUnavailable
from pallas_evo.evaluation.case import Case
from pallas_evo.evaluation.processes import Processes
from pallas_evo.running import Timed
from pallas_evo.running.turns import turned
from pallas_evo.types import Artefact, Evaluation

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="the `ptx` extra is not installed")
TASK = tasks.get_task("L2/pwm_scan")
MATMUL = tasks.get_task("L1/matmul")


class MadeGpu:
    """Answers rightly, and notes what it is asked."""

    device = "NVIDIA H200"
    alive = True

    def __init__(self, task=TASK, *, baseline_us: Sequence[float] = (3.0,) * 12, wrong_at: str | None = None) -> None:
        self.task, self.baseline_us, self.wrong_at = task, tuple(baseline_us), wrong_at
        self.asked: list[str] = []
        self.seconds: dict[str, float] = {}

    def compile(self, *artefacts: Artefact, baselines: Sequence[str] = ()) -> float:
        self.asked.append("compile")
        return 0.0

    def run(self, artefact: Artefact, inputs: Sequence[np.ndarray], **_) -> tuple[np.ndarray, None, float]:
        self.asked.append(f"run {artefact.workload.label}")
        output = np.array(tasks.yardstick(self.task, inputs))
        return (output * 2 if artefact.workload.label == self.wrong_at else output), None, 0.0

    def prepare(self, artefact, base, turns, baseline_turns, timer, **_) -> None:
        self.asked.append("prepare")
        self.inputs = [turned(base, one) for one in turns]

    @contextmanager
    def alone(self) -> Iterator[float]:
        yield 0.0

    def measure(self, artefact: Artefact, timer: str) -> Timed:
        self.asked.append("measure")
        return Timed(
            timer=timer,
            candidate_us=(2.0,) * len(self.inputs),
            baseline_us=self.baseline_us,
            wall_candidate_us=(80.0,),
            wall_baseline_us=(90.0,),
            kernels={"candidate": 1, "baseline": 1, "flush": 1},
        )

    def timed_outputs(self, artefact: Artefact, keep: Sequence[int]) -> list[np.ndarray]:
        return [np.array(tasks.yardstick(self.task, self.inputs[index])) for index in keep]

    def stop(self) -> None:
        pass


def judge(source: str, gpu: MadeGpu, config: Config | None = None) -> Evaluation:
    """All gates, C's on that GPU."""
    config = config or Config()
    with Processes(config, "cpu") as processes:
        processes.device = gpu  # type: ignore[assignment]
        return Case(config, "cuda", processes, source, gpu.task).judge()


def seed(task=TASK) -> str:
    return paths.seed_file(task.id).read_text()


def test_an_honest_candidate_is_run_then_timed_and_hears_what_binds_it():
    gpu = MadeGpu()
    verdict = judge(seed(), gpu)
    assert verdict.correct, verdict.message
    assert verdict.combined_score == pytest.approx(1.5)
    assert gpu.asked[0] == "compile"
    assert gpu.asked[-2:] == ["prepare", "measure"]
    assert gpu.asked.count("measure") == 1
    assert verdict.ran_on == "NVIDIA H200"
    assert "at medium 2.00 us, XLA 3.00 us (1.50x)" in verdict.text_feedback
    assert "bound by launching its 1 kernel" in verdict.text_feedback
    assert "Next: " in verdict.text_feedback
    timing = verdict.environment["timing"]["medium"]
    assert timing["held_s"] >= 0
    assert timing["binds"] in ("memory", "compute")


@needs_triton
def test_what_ran_and_what_was_only_compiled_are_kept_apart():
    verdict = judge(seed(), MadeGpu())
    assert verdict.ran_on == "NVIDIA H200"
    assert verdict.compiled_for == ("sm_80",)
    made = verdict.compiled["sm_80"]
    assert made.registers > 0
    assert made.ptx_bytes > 0
    assert made.seconds > 0
    assert 0 < made.occupancy <= 1


@needs_triton
def test_too_much_shared_memory_is_refused_before_the_gpu_runs_anything():
    gpu = MadeGpu(MATMUL)
    source = seed(MATMUL)
    for old, new in (("M = 64", "M = 128"), ("N = 64", "N = 128"), ("K = 32", "K = 64"), ("STAGES = 2", "STAGES = 4")):
        assert old in source
        source = source.replace(old, new)
    verdict = judge(source, gpu)
    assert (verdict.stage, verdict.reason) == ("compile", "shared_memory"), verdict.message
    assert "166912" in verdict.message
    assert not [asked for asked in gpu.asked if asked != "compile"]


@needs_triton
def test_a_compile_bomb_is_stopped_by_its_deadline_and_never_runs():
    config = Config()
    config.compile.deadline_s = 0.05
    gpu = MadeGpu(MATMUL)
    verdict = judge(seed(MATMUL), gpu, config)
    assert verdict.reason == "compile_timeout", verdict.message
    assert "0.05 s" in verdict.message
    assert not [asked for asked in gpu.asked if asked != "compile"]


def test_what_is_wrong_at_small_is_not_timed():
    gpu = MadeGpu(wrong_at="small")
    verdict = judge(seed(), gpu)
    assert not verdict.correct
    assert "measure" not in gpu.asked
    assert "time" not in {gate.name for gate in verdict.gates}


def test_a_baseline_that_never_stands_still_is_measured_three_times_and_then_our_failure():
    gpu = MadeGpu(baseline_us=(3.0,) * 6 + (4.0,) * 6)
    with pytest.raises(DeviceUnavailable, match="3 times in a row") as caught:
        judge(seed(), gpu)
    assert caught.value.exit_code == 3
    assert gpu.asked.count("measure") == 3
