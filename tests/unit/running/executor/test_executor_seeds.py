"""Every seed, at small and at odd sizes: no fault, and as near to the formula as its class asks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from executor_programs import lower

from pallas_evo import tasks
from pallas_evo.running.executor import Executed, execute

SEEDS = Path(__file__).parents[4] / "seeds"


@pytest.mark.parametrize("task", tasks.load_tasks(), ids=lambda task: task.id)
def test_seed(task):
    path = SEEDS / f"level{task.level}" / f"{task.id.split('/')[1]}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    seed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(seed)
    for dims in (tasks.dims_of(task, "small"), tasks.odd_dims(task)[0]):
        inputs = tasks.draw_inputs(task, dims, np.random.default_rng(7))
        kept = [array.copy() for array in inputs]
        done = execute(lower(seed.kernel, *inputs), inputs, tasks.workload(task, dims, "small").output)
        assert isinstance(done, Executed), done
        assert all(np.array_equal(a, b) for a, b in zip(inputs, kept, strict=True))
        exact = np.asarray(tasks.reference64(task, inputs))
        if task.precision == "exact":
            assert np.array_equal(done.output, exact.astype(done.output.dtype))
            continue
        size = np.linalg.norm(exact)
        allowed = 4 * np.linalg.norm(np.asarray(tasks.yardstick(task, inputs), np.float64) - exact) / size
        assert np.linalg.norm(done.output.astype(np.float64) - exact) / size <= max(allowed, 2e-6)
