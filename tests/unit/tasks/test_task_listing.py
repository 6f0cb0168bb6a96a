"""A reference as a file of its own computes what the registry's computes."""

from __future__ import annotations

import numpy as np
import pytest

from pallas_evo.errors import UsageError
from pallas_evo.tasks import dims_of, draw_inputs, load_tasks, reference
from pallas_evo.tasks.listing import reference_source


@pytest.mark.parametrize("task", load_tasks(), ids=lambda task: task.id)
def test_it_runs_alone_and_gives_the_same(task):
    names: dict = {}
    exec(compile(reference_source(task.id), "reference.py", "exec"), names)
    dims = {name: min(size, 32) if size > 32 else size for name, size in dims_of(task, "small").items()}
    inputs = draw_inputs(task, dims, np.random.default_rng(0))
    np.testing.assert_array_equal(names["reference"](*inputs), reference(task)(*inputs))


def test_it_holds_nothing_that_it_does_not_need():
    assert "softmax" not in reference_source("L1/relu")
    assert "def silu" in reference_source("L3/gated_mlp")


def test_no_such_task():
    with pytest.raises(UsageError, match="nothing"):
        reference_source("L1/nothing")
