"""input_impact: when one input is drawn again, does the output move as much as the reference?

value = the largest, over inputs, of | |output's change| / |reference's change| - 1 | (Frobenius norms). An input that
the candidate ignores has the value 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pallas_evo.config import Filters
from pallas_evo.judging.filters.measuring import relative, rms, seeds_by_label, worst
from pallas_evo.judging.observations import Observation
from pallas_evo.types import FilterResult


def check(observations: Sequence[Observation], thresholds: Filters) -> FilterResult:
    """Apply the filter to every run in which one input was drawn again."""
    return worst(
        _measure(observations), thresholds.input_impact, "Each input moves the outputs as it moves the reference."
    )


def _measure(observations: Sequence[Observation]) -> Iterator[tuple[float, str]]:
    bases = {label: runs[0] for label, runs in seeds_by_label(observations).items()}
    for run in observations:
        if run.role != "impact":
            continue
        base = bases[run.label]
        got = rms(run.output.astype("float64") - base.output)
        want = rms(run.reference - base.reference)
        yield (
            relative(abs(got - want), want),
            f"When input {run.changed} is drawn again the output changes by {got:.3g} (RMS), the reference by "
            f"{want:.3g}: that input is ignored, or used as something else.",
        )
