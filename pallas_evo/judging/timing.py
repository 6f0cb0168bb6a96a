"""The time gate: are the samples ones that a correct program can have, and did the baseline stand still?

Pure arithmetic on raw samples, so that all of it is tested without a GPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pallas_evo.types import Rejection

DRIFT = 0.05  # of the baseline's median between the two halves of a measurement


def median_us(samples_us: Sequence[float]) -> float:
    """The median of raw samples; NaN where there is none."""
    return float(statistics.median(samples_us)) if samples_us else math.nan


def drift(samples_us: Sequence[float]) -> float:
    """How far the medians of a measurement's halves lie apart, relative to the smaller."""
    half = len(samples_us) // 2
    if not half:
        return 0.0
    first, second = median_us(samples_us[:half]), median_us(samples_us[half:])
    low = min(first, second)
    return abs(first - second) / low if low > 0 else math.inf


def implausible(label: str, samples_us: Sequence[float], floor_us: float | None, share: float) -> Rejection | None:
    """Refuse times that no correct program can have.

    Args:
        label: the size, for the message.
        samples_us: raw samples.
        floor_us: the physical floor, None where the device is not in the table.
        share: below this share of the floor a median is implausible.
    """
    bad = [sample for sample in samples_us if not (math.isfinite(sample) and sample > 0)]
    if bad or not samples_us:
        return Rejection(
            reason="implausible",
            message=f"At {label} the timer gave {len(bad)} samples that are not positive numbers (of "
            f"{len(samples_us)}): no time, no score.",
        )
    median = median_us(samples_us)
    if floor_us is not None and median < share * floor_us:
        return Rejection(
            reason="implausible",
            message=f"At {label} the median is {median:.3g} us; no correct program can take less than "
            f"{floor_us:.3g} us on this device. Part of the work is not done, or not seen by the timer.",
        )
    return None
