"""Outputs that are not finite: every filter refuses or passes by a value, and NumPy says nothing on the way."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pallas_evo.config import Filters
from pallas_evo.judging import Observation
from pallas_evo.judging.filters import FILTERS


def runs(spoil) -> list[Observation]:
    rng = np.random.default_rng(0)
    made = []
    for role, changed in (("seed", None), ("seed", None), ("impact", 0)):
        reference = rng.normal(size=(8, 16))
        output = reference.astype(np.float32)
        spoil(output)
        made.append(
            Observation(
                label="small",
                role=role,
                changed=changed,
                output=output,
                reference=reference,
                yardstick=reference.astype(np.float32),
            )
        )
    return made


def one_nan(output):
    output[3, 4] = np.nan


def one_infinity(output):
    output[3, 4] = np.inf


def both_infinities(output):
    output[0, 0], output[0, 1] = np.inf, -np.inf


def all_nan(output):
    output[:] = np.nan


def very_large(output):
    output[:] = 3e38


@pytest.mark.parametrize("spoil", [one_nan, one_infinity, both_infinities, all_nan, very_large])
@pytest.mark.parametrize("name", FILTERS)
def test_what_is_not_finite_is_refused_without_a_warning(name, spoil):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = FILTERS[name](runs(spoil), Filters())
    assert not found.passed
    assert found.value is None or np.isfinite(found.value)
