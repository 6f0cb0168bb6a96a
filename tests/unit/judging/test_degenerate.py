"""Tasks by the published, absolute filters: none of ours is degenerate, and each way to be so is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pallas_evo import tasks
from pallas_evo.config import Filters
from pallas_evo.judging.filters.degenerate import degenerate

TASK = tasks.get_task("L1/add")


@pytest.mark.parametrize("task", tasks.load_tasks(), ids=lambda task: task.id)
def test_no_task_is_degenerate(task):
    assert degenerate(task) == ()


def test_the_threshold_is_the_configurations():
    assert degenerate(TASK, Filters(degenerate_absolute=100.0)) == (
        "output_range",
        "output_std",
        "axes_variation",
        "input_impact",
    )


Reference = Callable[[Sequence[np.ndarray]], np.ndarray]


@pytest.mark.parametrize(
    ("reference", "flags"),
    [
        (lambda inputs: 0.0 * inputs[0] + 1e-3, ("output_range", "output_std", "axes_variation", "input_impact")),
        (lambda inputs: np.arange(inputs[0].size).reshape(inputs[0].shape) / 9, ("output_std", "input_impact")),
        (lambda inputs: np.broadcast_to(inputs[0][:1] + inputs[1][:1], inputs[0].shape), ("axes_variation",)),
        (lambda inputs: inputs[0] + 1e-6 * inputs[1], ("input_impact",)),
        (lambda inputs: inputs[0] + inputs[1], ()),
    ],
)
def test_each_kind_of_degenerate_reference_is_flagged(reference: Reference, flags, monkeypatch):
    monkeypatch.setattr(tasks, "reference64", lambda task, inputs: np.asarray(reference(inputs), np.float64))
    assert degenerate(TASK) == flags
