"""What the filters share: selecting runs, and one form for their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pallas_evo.judging.observations import Observation
from pallas_evo.types import FilterResult


def seeds_by_label(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    """The runs on inputs by the task's law, by size."""
    grouped: dict[str, list[Observation]] = {}
    for observation in observations:
        if observation.role == "seed":
            grouped.setdefault(observation.label, []).append(observation)
    return grouped


def rms(values: np.ndarray) -> float:
    """Root of the mean square, in float64; NaN where a value is."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0


def relative(difference: float, scale: float) -> float:
    """A difference in units of a scale; where the scale is zero only no difference is 0."""
    if scale > 0:
        return difference / scale
    return 0.0 if difference == 0 else float("inf")


def worst(findings: Iterable[tuple[float, str]], threshold: float, accepted: str) -> FilterResult:
    """The filter's result from (value, sentence) pairs: it passes when every value is at most the threshold."""
    value, sentence = 0.0, accepted
    with np.errstate(over="ignore", invalid="ignore"):  # outputs that are not finite: that is for the value to say
        for found, said in findings:
            if not found <= value:  # a NaN is worse than anything
                value, sentence = found, said
    passed = bool(value <= threshold)
    return FilterResult(
        passed=passed,
        value=value if np.isfinite(value) else None,
        threshold=threshold,
        message=accepted if passed else sentence,
    )
