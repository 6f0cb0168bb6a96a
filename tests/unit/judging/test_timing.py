"""The time gate: samples that no correct program can have, and a baseline that does not stand still."""

from __future__ import annotations

import math

import pytest

from pallas_evo.judging.timing import drift, implausible, median_us

FLOOR_US = 10.0


@pytest.mark.parametrize(
    "samples",
    [
        (),
        (0.0, 12.0, 12.0),
        (-1.0, 12.0, 12.0),
        (math.nan, 12.0, 12.0),
        (math.inf, 12.0, 12.0),
        (1e-12, 1e-12, 1e-12),
        (8.9, 8.9, 8.9),
    ],
)
def test_implausible_samples_are_refused(samples):
    refused = implausible("medium", samples, FLOOR_US, 0.9)
    assert refused is not None
    assert refused.reason == "implausible"


@pytest.mark.parametrize("samples", [(9.1, 9.1, 9.1), (10.0, 11.0, 900.0), (35.3,)])
def test_plausible_samples_pass(samples):
    assert implausible("medium", samples, FLOOR_US, 0.9) is None


def test_without_a_floor_only_nonsense_is_refused():
    assert implausible("medium", (1e-3,), None, 0.9) is None
    assert implausible("medium", (0.0,), None, 0.9) is not None


def test_drift_compares_the_halves():
    assert drift((10.0, 10.0, 10.0, 10.0)) == 0
    assert drift((10.0, 10.0, 11.0, 11.0)) == pytest.approx(0.1)
    assert drift((11.0, 11.0, 10.0, 10.0)) == pytest.approx(0.1)
    assert drift((10.0,)) == 0
    assert drift((0.0, 0.0, 1.0, 1.0)) == math.inf


def test_the_median_of_nothing_is_no_number():
    assert math.isnan(median_us(()))
    assert median_us((3.0, 1.0, 2.0)) == 2.0
