"""Timers without a GPU, a log of launches in CUPTI's place: who ran when, and whose launches are whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pallas_evo.running import timers
from pallas_evo.running.timers import TIMERS, Calls, Taken

ROUNDS = 4


class Gpu:
    """Notes every launch as (who, name, ms)."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, float]] = []
        self.given: list[tuple[Any, ...]] = []

    def program(self, who: str, *kernels: tuple[str, float]) -> Callable[..., str]:
        def call(*arguments: Any) -> str:
            self.log += [(who, name, ms) for name, ms in kernels]
            if who != "flush":
                self.given.append((who, *arguments))
            return f"output of {who} {len(self.given)}"

        return call

    @property
    def order(self) -> list[str]:
        """Who launched, each call once for each of its kernels."""
        return [who for who, _, _ in self.log]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    flush = made.program("flush", ("loop_multiply_fusion", 0.09))

    def launches(run: Callable[[], Any], *, last: bool = False) -> list[tuple[str, float]]:
        made.log.clear()
        run()
        return [(name, ms) for _, name, ms in made.log]

    monkeypatch.setattr(timers, "_flush", lambda: (flush, "buffer"))
    monkeypatch.setattr(timers, "_kernels_of_a_flush", lambda: 1)
    monkeypatch.setattr(timers, "launches", launches)
    return made


def calls(candidate: Callable[..., Any], baseline: Callable[..., Any]) -> Calls:
    return Calls(
        candidate=candidate,
        baseline=baseline,
        inputs=[[f"input {index}"] for index in range(ROUNDS)],
        baseline_inputs=[["other 0"], ["other 1"], ["to warm it"]],
        poison=[f"poison {index}" for index in range(ROUNDS)],
    )


def take(timer: str, what: Calls) -> Taken:
    return TIMERS[timer].measure(what, TIMERS[timer].prepare(what))


@pytest.mark.parametrize("timer", TIMERS)
def test_candidate_and_baseline_take_turns_each_after_a_flush(timer, gpu):
    what = calls(gpu.program("candidate", ("mine", 0.002)), gpu.program("baseline", ("xla", 0.003)))
    counts = TIMERS[timer].prepare(what)
    gpu.log.clear()
    gpu.given.clear()
    TIMERS[timer].measure(what, counts)
    assert gpu.order == ["flush", "candidate", "flush", "baseline"] * ROUNDS
    mine = [arguments for who, *arguments in gpu.given if who == "candidate"]
    assert mine == [[f"poison {index}", f"input {index}"] for index in range(ROUNDS)], "each call has its own"
    assert [arguments for who, *arguments in gpu.given if who == "baseline"] == [["other 0"], ["other 1"]] * 2


def test_the_kernels_of_one_call_are_summed(gpu):
    candidate = gpu.program("candidate", ("first", 0.002), ("second", 0.0005), ("third", 0.0001))
    taken = take("cupti", calls(candidate, gpu.program("baseline", ("a", 0.003), ("b", 0.001))))
    assert taken.candidate_us == pytest.approx([2.6] * ROUNDS)
    assert taken.baseline_us == pytest.approx([4.0] * ROUNDS)
    assert taken.kernels == {"candidate": 3, "flush": 1, "baseline": 2}
    assert len(taken.outputs) == ROUNDS


def test_a_kernel_that_bears_the_flushs_name_counts_as_the_candidates(gpu):
    candidate = gpu.program("candidate", ("loop_multiply_fusion", 0.007), ("loop_multiply_fusion", 0.001))
    taken = take("cupti", calls(candidate, gpu.program("baseline", ("loop_multiply_fusion", 0.003))))
    assert taken.candidate_us == pytest.approx([8.0] * ROUNDS)
    assert taken.baseline_us == pytest.approx([3.0] * ROUNDS)


def test_launches_that_do_not_add_up_are_no_time(gpu):
    sometimes = gpu.program("candidate", ("mine", 0.002))
    seen = []

    def uneven(*arguments: Any) -> str:
        seen.append(arguments)
        return sometimes() if len(seen) == 2 else sometimes(sometimes())

    with pytest.raises(RuntimeError, match="CUPTI recorded"):
        take("cupti", calls(uneven, gpu.program("baseline", ("xla", 0.003))))


@pytest.mark.parametrize("silent", ["candidate", "baseline"])
def test_a_call_that_launches_nothing_is_no_time(silent, gpu):
    programs = {who: gpu.program(who, *(() if who == silent else ((who, 0.002),))) for who in ("candidate", "baseline")}
    with pytest.raises(RuntimeError, match="CUPTI recorded"):
        take("cupti", calls(programs["candidate"], programs["baseline"]))


def test_a_wall_clock_has_a_sample_for_each_call_and_no_launches(gpu):
    taken = take("wall", calls(gpu.program("candidate", ("mine", 1.0)), gpu.program("baseline", ("xla", 1.0))))
    assert len(taken.candidate_us) == len(taken.baseline_us) == ROUNDS
    assert all(sample > 0 for sample in (*taken.candidate_us, *taken.baseline_us))
    assert taken.kernels == {}
