"""Timing without a GPU: a fake runner hands out samples and outputs, and the stopwatch must judge them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.errors import DeviceUnavailable, TimerUnavailable
from pallas_evo.evaluation import stopwatch as module
from pallas_evo.evaluation.stopwatch import SizeTime, Stopwatch
from pallas_evo.running import Timed
from pallas_evo.running.turns import turned
from pallas_evo.types import Artefact, Rejection

TASK = tasks.get_task("L2/pwm_scan")
HONEST_US = (2.0,) * 6


class FakeRunner:
    """A GPU process that answers with the samples and the outputs that a test gives it."""

    device = "NVIDIA H200"
    started = 0

    def __init__(
        self,
        candidate_us: Sequence[float] = HONEST_US,
        baseline_us: Sequence[Sequence[float]] = ((2.0,) * 6,),
        spoil: Callable[[int, np.ndarray], np.ndarray] = lambda index, output: output,
    ) -> None:
        self.candidate_us, self.baseline_us, self.spoil = tuple(candidate_us), [tuple(b) for b in baseline_us], spoil
        self.seen: list[bytes] = []
        self.calls = 0
        self.seconds: dict[str, float] = {}
        self.missing_timers: set[str] = set()
        self.holding = False

    def __enter__(self) -> FakeRunner:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, *artefacts: Artefact) -> float:
        return 0.0

    def run(self, artefact: Artefact, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, None, float]:
        return tasks.yardstick(TASK, inputs), None, 0.0

    def prepare(self, artefact, base, turns, baseline_turns, timer) -> None:
        if timer in self.missing_timers:
            raise TimerUnavailable(f"{timer} is not there.")
        self.inputs = [turned(base, one) for one in turns]
        self.others = [turned(base, one) for one in baseline_turns]
        self.seen += [b"".join(array.tobytes() for array in one) for one in (*self.inputs, *self.others)]

    @contextmanager
    def alone(self) -> Iterator[float]:
        assert not self.holding
        self.holding = True
        yield 0.0
        self.holding = False

    def measure(self, artefact: Artefact, timer: str) -> Timed:
        assert self.holding, "timed without the lease"
        baseline = self.baseline_us[min(self.calls, len(self.baseline_us) - 1)]
        self.calls += 1
        return Timed(
            timer=timer,
            candidate_us=self.candidate_us,
            baseline_us=baseline,
            wall_candidate_us=(80.0,),
            wall_baseline_us=(80.0,),
            kernels={"candidate": 1, "baseline": 1, "flush": 1},
        )

    def timed_outputs(self, artefact: Artefact, keep: Sequence[int]) -> list[np.ndarray]:
        assert not self.holding, "transfers with the GPU held alone"
        return [self.spoil(index, np.array(tasks.yardstick(TASK, self.inputs[index]))) for index in keep]


def measure(runner: FakeRunner, monkeypatch: pytest.MonkeyPatch, again: FakeRunner | None = None):
    """Time an artefact at medium with these runners."""
    config = Config()
    config.timer.repeats = 6
    workload = tasks.workload(TASK, tasks.dims_of(TASK, "medium"), "medium")
    artefact = Artefact(workload=workload, module="", sha256="", kernels=(), moved_bytes=0)
    monkeypatch.setattr(module, "DeviceRunner", lambda limits: again)
    seeds = np.random.SeedSequence(1)

    def expect(inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return tasks.reference64(TASK, inputs), tasks.yardstick(TASK, inputs)

    with ThreadPoolExecutor(2) as pool:
        watch = Stopwatch(TASK, config, lambda name: np.random.default_rng(seeds.spawn(1)[0]), expect, pool)
        return watch.time(runner, artefact)


def test_an_honest_measurement_is_kept_raw(monkeypatch):
    result = measure(FakeRunner((2.0, 2.1, 1.9, 2.0, 2.0, 2.2)), monkeypatch)
    assert isinstance(result, SizeTime)
    assert result.samples_us == (2.0, 2.1, 1.9, 2.0, 2.0, 2.2)
    assert result.median_us == 2.0
    assert result.evidence["baseline_us"] == (2.0,) * 6
    assert result.evidence["wall_candidate_us"] == (80.0,)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e-12])
def test_one_impossible_sample_gives_no_score(value, monkeypatch):
    samples = (2.0,) * 5 + (value,) if not 0 < value < math.inf else (value,) * 6
    again = FakeRunner(samples)
    result = measure(FakeRunner(samples), monkeypatch, again)
    assert isinstance(result, Rejection)
    assert result.reason == "implausible"


def test_every_timed_call_has_inputs_of_its_own(monkeypatch):
    runner = FakeRunner()
    measure(runner, monkeypatch)
    assert len(runner.seen) == len(set(runner.seen)) == 6 + 6 + 1  # the baseline has as many, and one to warm up


@pytest.mark.parametrize("index", range(6))
def test_any_wrong_timed_output_is_refused(index, monkeypatch):
    result = measure(FakeRunner(spoil=lambda at, out: out * 0 if at == index else out), monkeypatch)
    assert isinstance(result, Rejection)
    assert result.reason == "timed_output"


def test_a_baseline_that_drifts_is_measured_again(monkeypatch):
    drifting, steady = (2.0, 2.0, 2.0, 3.0, 3.0, 3.0), (2.0,) * 6
    runner = FakeRunner(baseline_us=[drifting, steady])
    assert isinstance(measure(runner, monkeypatch), SizeTime)
    assert runner.calls == 2


def test_a_baseline_that_never_stands_still_is_our_failure(monkeypatch):
    runner = FakeRunner(baseline_us=[(2.0, 2.0, 2.0, 3.0, 3.0, 3.0)])
    with pytest.raises(DeviceUnavailable, match="drifted"):
        measure(runner, monkeypatch)
    assert runner.calls == Config().timer.attempts


def test_a_suspicious_speed_up_is_taken_again_and_the_slower_counts(monkeypatch):
    fast = FakeRunner((0.5,) * 6, baseline_us=[(9.0,) * 6])
    again = FakeRunner((3.0,) * 6, baseline_us=[(9.0,) * 6])
    result = measure(fast, monkeypatch, again)
    assert isinstance(result, SizeTime)
    assert again.calls == 1
    assert result.speedup == pytest.approx(3.0)


def test_a_suspicious_speed_up_that_is_wrong_the_second_time_is_refused(monkeypatch):
    fast = FakeRunner((0.5,) * 6, baseline_us=[(9.0,) * 6])
    again = FakeRunner((0.5,) * 6, baseline_us=[(9.0,) * 6], spoil=lambda at, out: out + 1)
    result = measure(fast, monkeypatch, again)
    assert isinstance(result, Rejection)
    assert result.reason == "timed_output"


def test_without_cupti_the_wall_clock_takes_over_and_says_so(monkeypatch, caplog):
    runner, fresh = FakeRunner(), FakeRunner()
    runner.missing_timers = {"cupti"}
    result = measure(runner, monkeypatch, fresh)
    assert isinstance(result, SizeTime)
    assert result.timer == "wall"
    assert (runner.calls, fresh.calls) == (0, 1)
    assert "wall clock takes over" in caplog.text


def test_a_slow_program_is_timed_a_few_times_only(monkeypatch):
    runner = FakeRunner()
    runner.seconds = {"medium": 10.0}
    assert isinstance(measure(runner, monkeypatch), SizeTime)
    assert len(runner.seen) == 2 * Config().timer.slow_repeats + 1


def test_the_record_says_how_long_the_gpu_was_held(monkeypatch):
    result = measure(FakeRunner(), monkeypatch)
    assert isinstance(result, SizeTime)
    assert result.evidence["held_s"] >= 0
    assert result.evidence["waited_s"] == 0.0


@pytest.mark.parametrize("task", tasks.load_tasks(), ids=lambda task: task.id)
def test_timed_outputs_are_judged_all_or_a_secret_few_where_that_costs_much(task):
    config = Config()
    workload = tasks.workload(task, tasks.dims_of(task, "medium"), "medium")
    artefact = Artefact(workload=workload, module="", sha256="", kernels=(), moved_bytes=0)
    with ThreadPoolExecutor(1) as pool:
        watch = Stopwatch(task, config, lambda name: np.random.default_rng(0), lambda inputs: (None, None), pool)
        kept = [watch._kept(artefact, config.timer.repeats) for _ in range(40)]
    assert all(config.timer.judged_outputs <= len(one) <= config.timer.repeats for one in kept)
    if len(kept[0]) < config.timer.repeats:
        assert len({tuple(one) for one in kept}) > 1, "a program could know which"
