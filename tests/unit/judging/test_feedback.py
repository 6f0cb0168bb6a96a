"""Feedback: what is said of a candidate by what was measured, each branch on made-up figures."""

from __future__ import annotations

import re

import pytest

from pallas_evo.devices import LAUNCH_US, limited_by
from pallas_evo.judging import describe
from pallas_evo.judging.feedback import _HINTS
from pallas_evo.reasons import REASONS
from pallas_evo.tasks import get_task
from pallas_evo.types import Compiled, Rejection, SizeResult

TASK = get_task("L1/matmul")


def compiled(sm: str = "sm_90", **changed) -> Compiled:
    figures = {
        "registers": 64,
        "spill_bytes": 0,
        "shared_bytes": 4096,
        "occupancy": 0.5,
        "ptx_bytes": 9,
        "seconds": 0.1,
    }
    return Compiled(sm=sm, **{**figures, **changed})


def say(
    median_us: float | None = 40.0,
    floor_us: float | None = 10.0,
    binds: str | None = "memory",
    kernels: int = 1,
    made: Compiled | None = None,
    device: str = "NVIDIA H200",
) -> str:
    size = SizeResult(
        shape=((1024, 1024),),
        correct=True,
        median_us=median_us,
        xla_us=20.0 if median_us else None,
        floor_us=floor_us,
        roofline_percent=100 * floor_us / median_us if floor_us and median_us else None,
    )
    made = made or compiled()
    return describe(
        TASK,
        None,
        {"small": SizeResult(shape=((512,),), correct=True), "medium": size},
        {"sm_80": compiled("sm_80", registers=99), made.sm: made},
        timing={"medium": {"kernels": {"candidate": kernels, "baseline": 1}, "binds": binds}},
        device=device,
    )


def test_a_timed_candidate_hears_time_roofline_what_binds_and_what_was_compiled():
    said = say(made=compiled(registers=77, shared_bytes=2048, occupancy=0.375))
    assert "at medium 40.00 us, XLA 20.00 us (0.50x), 25 % of the roofline, bound by memory." in said
    assert "sm_90: 77 registers, no spills, 2048 bytes of shared memory, occupancy 38%." in said
    assert "contiguous" in said


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"made": compiled(spill_bytes=64)}, "end the spills"),
        ({"kernels": 3}, "put its 3 kernels into one"),
        ({"made": compiled(shared_bytes=120_000)}, "less shared memory than 120000"),
        ({"median_us": 3.0, "floor_us": 0.5}, "starting the kernel"),
        ({"median_us": 11.0}, "little is left"),
        ({"binds": "compute"}, "tensor cores"),
        ({"made": compiled(occupancy=0.125)}, "the occupancy of 12%"),
        ({}, "contiguous and wide"),
        ({"floor_us": None, "binds": None}, "tensor cores"),  # a product on a GPU that nobody knows,
    ],
)
def test_the_next_thing_to_try_follows_from_what_was_measured(changed, expected):
    said = say(**changed)
    assert expected in said
    assert said.count("Next: ") == 1
    assert len(re.findall(r"[.](?= |$)", said)) <= 4


def test_without_a_gpu_nothing_is_said_of_time():
    said = say(median_us=None)
    assert "not timed" in said
    assert "Next: give the tensor cores more" in said
    assert "bound by" not in said


def test_what_was_compiled_for_the_device_at_hand_is_spoken_of():
    assert "sm_90: 64" in say(device="NVIDIA H200")
    assert "sm_80: 99" in say(device="NVIDIA A100-SXM4-80GB")
    assert "sm_80: 99" in say(device="a card that nobody knows")


def test_timing_evidence_may_be_missing():
    size = SizeResult(shape=((1,),), correct=True, median_us=4.0, xla_us=2.0, floor_us=1.0, roofline_percent=25.0)
    said = describe(TASK, None, {"medium": size}, {})
    assert "at medium 4.00 us" in said
    assert "bound by" not in said


def test_a_rejection_says_its_reason_and_a_hint():
    said = describe(TASK, Rejection(reason="race", message="Two programs write one element."), {}, {})
    assert said.startswith("Rejected (race): Two programs write one element. ")
    assert _HINTS["race"] in said


def test_every_hint_is_for_a_reason_that_is_there():
    assert set(_HINTS) <= set(REASONS)


@pytest.mark.parametrize(
    ("floor_us", "median_us", "kernels", "expected"),
    [
        (0.5, 1.7, 1, "launch"),
        (0.5, 40.0, 1, "memory"),  # far from everything: starting it is not what it waits for
        (10.0, 12.0, 1, "memory"),
        (3.0, 11.0, 4, "launch"),
        (9.0, 11.0, 4, "memory"),
        (0.5, 2 * LAUNCH_US, 1, "launch"),
        (0.5, 2 * LAUNCH_US + 0.1, 1, "memory"),
        (LAUNCH_US, 2.0, 1, "memory"),
        (0.5, 1.7, 0, "launch"),
    ],
)
def test_launch_binds_only_where_it_is_most_of_the_time(floor_us, median_us, kernels, expected):
    assert limited_by("memory", floor_us=floor_us, median_us=median_us, kernels=kernels) == expected
