"""Input sets for timed calls: no two alike, none the base, and each still what the task's law gives."""

from __future__ import annotations

import numpy as np
import pytest

from pallas_evo import tasks
from pallas_evo.running.turns import draw_turns, turned


@pytest.mark.parametrize("task", tasks.load_tasks(), ids=lambda task: task.id)
def test_every_set_is_unlike_the_others_and_the_base(task):
    rng = np.random.default_rng(0)
    base = tasks.draw_inputs(task, tasks.dims_of(task, "small"), rng)
    turns = draw_turns([spec.law for spec in task.inputs], [array.shape[0] for array in base], rng, 14)
    sets = [turned(base, one) for one in turns]
    seen = {b"".join(array.tobytes() for array in one) for one in (base, *sets)}
    assert len(seen) == 15
    for one in sets:
        for made, array, spec in zip(one, base, task.inputs, strict=True):
            assert (made.shape, made.dtype) == (array.shape, array.dtype)
            if spec.law not in ("normal", "weight"):
                np.testing.assert_array_equal(np.sort(made, axis=None), np.sort(array, axis=None))
