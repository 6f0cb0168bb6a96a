"""output_range: does an output span the interval that the reference spans?

value = the larger distance between the two intervals' ends, over the length of the reference's interval (over its
largest magnitude where the reference is constant).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pallas_evo.config import Filters
from pallas_evo.judging.filters.measuring import relative, seeds_by_label, worst
from pallas_evo.judging.observations import Observation
from pallas_evo.types import FilterResult


def check(observations: Sequence[Observation], thresholds: Filters) -> FilterResult:
    """Apply the filter to every run on inputs by law."""
    return worst(_measure(observations), thresholds.output_range, "The outputs span the reference's range.")


def _measure(observations: Sequence[Observation]) -> Iterator[tuple[float, str]]:
    for label, runs in seeds_by_label(observations).items():
        for run in runs:
            low, high = float(run.output.min()), float(run.output.max())
            want_low, want_high = float(run.reference.min()), float(run.reference.max())
            length = want_high - want_low or max(abs(want_low), abs(want_high))
            value = relative(float(np.max([abs(low - want_low), abs(high - want_high)])), length)
            yield (
                value,
                f"At {label} the outputs lie in [{low:.6g}, {high:.6g}], the reference in "
                f"[{want_low:.6g}, {want_high:.6g}].",
            )
