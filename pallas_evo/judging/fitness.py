"""Fitness: a speed-up that was measured, 1.0 for a correct program that was not timed, 0.0 for anything rejected."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pallas_evo.types import SizeResult


def combined_score(correct: bool, timed: Iterable[SizeResult]) -> float:
    """Geometric mean over the timed sizes of XLA time / candidate time; always finite."""
    if not correct:
        return 0.0
    ratios = [size.xla_us / size.median_us for size in timed if size.xla_us and size.median_us]
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)) if ratios else 1.0
