"""output_std: does each element vary from one drawing of the inputs to the next as the reference's does?

value = RMS over elements of (std of the output over the seeds - std of the reference over the seeds), over the RMS of
the reference's. A cached or constant output has a std of zero; elements in the wrong place have each other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pallas_evo.config import Filters
from pallas_evo.judging.filters.measuring import relative, rms, seeds_by_label, worst
from pallas_evo.judging.observations import Observation
from pallas_evo.types import FilterResult


def check(observations: Sequence[Observation], thresholds: Filters) -> FilterResult:
    """Apply the filter to every size that ran with at least two seeds."""
    return worst(
        _measure(observations), thresholds.output_std, "From one seed to the next the outputs vary as the reference."
    )


def _measure(observations: Sequence[Observation]) -> Iterator[tuple[float, str]]:
    for label, runs in seeds_by_label(observations).items():
        if len(runs) < 2:
            continue
        got = np.std(np.stack([run.output for run in runs]), axis=0, dtype=np.float64)
        want = np.std(np.stack([run.reference for run in runs]), axis=0, dtype=np.float64)
        yield (
            relative(rms(got - want), rms(want)),
            f"At {label}, over {len(runs)} seeds, an element's standard deviation is {rms(got):.3g} (RMS over all "
            f"elements), the reference's {rms(want):.3g}, or elements vary that should not and others not that should.",
        )
