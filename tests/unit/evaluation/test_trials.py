"""What the executor's look at a timed size is taken to cost."""

from __future__ import annotations

import pytest

from pallas_evo.evaluation.trials import foreseen_s


def test_what_starting_costs_is_not_charged_to_each_element():
    assert foreseen_s([(1_000, 0.05), (5_000, 0.06)], 21_000) == pytest.approx(0.10)


@pytest.mark.parametrize(
    "looked",
    [
        [],
        [(1_000, 0.05)],
        [(1_000, 0.05), (1_500, 0.20)],  # too close to tell
        [(1_000, 0.06), (5_000, 0.05)],  # the larger was no slower
    ],
)
def test_where_nothing_can_be_told_the_look_is_taken(looked):
    assert foreseen_s(looked, 10**9) == 0.0


def test_a_size_that_would_take_far_too_long_is_foreseen():
    assert foreseen_s([(500_000, 0.05), (4_000_000, 0.5)], 33_000_000) > 2.0
