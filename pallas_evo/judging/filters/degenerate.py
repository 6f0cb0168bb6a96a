"""The published filters as they were published: absolute, and about tasks.

robust-kbench (arXiv 2509.14279) refuses a task whose reference hardly moves: would a constant pass an allclose with an
absolute tolerance of 0.01? No candidate is held to that here: our comparison is relative to the reference. A task that
is flagged is one for which absolute tolerances mean nothing. A test walks the 45; none of them is flagged.
"""

from __future__ import annotations

import numpy as np

from pallas_evo import tasks
from pallas_evo.config import Filters
from pallas_evo.types import Task

SEEDS = 5


def degenerate(task: Task, thresholds: Filters | None = None, *, seeds: int = SEEDS) -> tuple[str, ...]:
    """The filters that flag a task's reference at small, over a few drawings of the inputs.

    output_range    every value is below the threshold in magnitude
    output_std      no element's standard deviation over the drawings reaches it
    axes_variation  along some axis of the output no standard deviation reaches it
    input_impact    for some input, drawn anew by itself, no element's standard deviation reaches it
    """
    least = (thresholds or Filters()).degenerate_absolute
    dims = tasks.dims_of(task, "small")
    drawn = [tasks.draw_inputs(task, dims, np.random.default_rng(seed)) for seed in range(seeds)]
    outputs = np.stack([tasks.reference64(task, inputs) for inputs in drawn])
    found = []
    if np.abs(outputs).max() < least:
        found.append("output_range")
    if outputs.std(axis=0).max() < least:
        found.append("output_std")
    if any(outputs.std(axis=axis).max() < least for axis in range(1, outputs.ndim) if outputs.shape[axis] > 1):
        found.append("axes_variation")
    if any(_impact(task, drawn, index) < least for index in range(len(task.inputs))):
        found.append("input_impact")
    return tuple(found)


def _impact(task: Task, drawn: list[tuple[np.ndarray, ...]], index: int) -> float:
    """The largest standard deviation of an element where input `index` alone is drawn anew."""
    base = drawn[0]
    several = [(*base[:index], other[index], *base[index + 1 :]) for other in drawn]
    return float(np.stack([tasks.reference64(task, inputs) for inputs in several]).std(axis=0).max())
