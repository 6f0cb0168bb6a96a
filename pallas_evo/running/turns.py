"""Input sets for timed calls: each unlike any that the GPU has seen, at a fraction of the cost of drawing it.

An input is turned along its first axis by a secret number of rows, and where its law has a scale (`normal`, `weight`)
multiplied by a secret factor, so that no element keeps its value. What comes out is still what the law gives. The
judge and the GPU's process make the same bits from the same base: one float32 multiplication an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SCALED = ("normal", "weight")  # laws that have a scale
_FACTORS = (0.75, 1.25)


@dataclass(frozen=True)
class Turn:
    """How one input of a timed call comes from the base: `shift` rows along axis 0, then times `factor` (float32)."""

    shift: int
    factor: float | None


def draw_turns(laws: Sequence[str], rows: Sequence[int], rng: np.random.Generator, count: int) -> list[list[Turn]]:
    """`count` input sets, one `Turn` for each input; none is the base itself, and no two are the same.

    Args:
        laws: each input's law.
        rows: each input's extent along axis 0.
    """
    shifts = [_distinct(rng, extent, count) for extent in rows]
    return [
        [
            Turn(
                int(shifts[which][index]),
                float(np.float32(rng.uniform(*_FACTORS))) if law in SCALED else None,
            )
            for which, law in enumerate(laws)
        ]
        for index in range(count)
    ]


def turned(base: Sequence[np.ndarray], turns: Sequence[Turn]) -> tuple[np.ndarray, ...]:
    """One input set on the host."""
    made = []
    for array, turn in zip(base, turns, strict=True):
        rolled = np.roll(array, turn.shift, axis=0)
        if turn.factor is not None:
            rolled *= np.float32(turn.factor)
        made.append(rolled)
    return tuple(made)


def _distinct(rng: np.random.Generator, extent: int, count: int) -> np.ndarray:
    """Shifts from 1 to extent - 1, all different where there are enough."""
    if extent - 1 >= count:
        return rng.choice(np.arange(1, extent), count, replace=False)
    return rng.integers(1, max(2, extent), count)
