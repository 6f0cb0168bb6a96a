"""axes_variation: along each axis, does an output vary as much as the reference?

value = the largest, over axes, of |RMS of the output's std along the axis - the reference's| over the reference's (over
the reference's RMS where it does not vary along that axis). Rows that are all alike vary too little along axis 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pallas_evo.config import Filters
from pallas_evo.judging.filters.measuring import relative, rms, seeds_by_label, worst
from pallas_evo.judging.observations import Observation
from pallas_evo.types import FilterResult


def check(observations: Sequence[Observation], thresholds: Filters) -> FilterResult:
    """Apply the filter to every run on inputs by law."""
    return worst(
        _measure(observations), thresholds.axes_variation, "Along every axis the outputs vary as the reference."
    )


def _measure(observations: Sequence[Observation]) -> Iterator[tuple[float, str]]:
    for label, runs in seeds_by_label(observations).items():
        for run in runs:
            for axis in range(run.reference.ndim):
                got = rms(np.std(run.output, axis=axis, dtype=np.float64))
                want = rms(np.std(run.reference, axis=axis, dtype=np.float64))
                yield (
                    relative(abs(got - want), want or rms(run.reference)),
                    f"At {label}, along axis {axis}, the outputs' standard deviation is {got:.3g}, the reference's "
                    f"{want:.3g}.",
                )
