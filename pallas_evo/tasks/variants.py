"""The variant: a size that no table has, drawn for each evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from math import prod

import numpy as np

from pallas_evo.tasks.floors import dense_flops
from pallas_evo.tasks.registry import get_task
from pallas_evo.tasks.shapes import SIZES, dims_of, extent, workload
from pallas_evo.types import Task

_FEW_VALUES = 4  # a letter with fewer values than this between small and medium is drawn up to REACH times medium
_REACH = 4
_ENOUGH = 8  # combinations: with fewer, the bound on a variant's work rises to the next of _WORK
_WORK = (1, 2, 4)  # a variant's bytes and FLOPs over medium's; what no smaller bound allows is judged more slowly


def draw_variant_dims(task: Task, rng: np.random.Generator) -> dict[str, int]:
    """Draw the variant: a combination of extents that no table has, for a program that knows its table by heart.

    Each extent is a power of two times an odd factor that the task's small or medium extent has, so that a program
    that is right for such extents only is right here too.
    """
    combinations = _variants(task.id)
    return dict(combinations[int(rng.integers(len(combinations)))])


@cache
def _variants(task_id: str) -> tuple[Mapping[str, int], ...]:
    """All combinations that the variant is drawn from."""
    task = get_task(task_id)
    tables = [dims_of(task, size) for size in SIZES]
    fresh = []
    for values in product(*(_values(task, name) for name in task.dims)):
        dims = dict(zip(task.dims, values, strict=True))
        if dims not in tables and all(extent(entry, dims) >= 1 for entry in task.output_shape):
            fresh.append(dims)
    most = _work(task, dims_of(task, "medium"))
    for factor in _WORK:
        bounded = [
            dims
            for dims in fresh
            if all(work <= factor * limit for work, limit in zip(_work(task, dims), most, strict=True))
        ]
        if len(bounded) >= _ENOUGH:
            break
    return tuple(bounded)


def _values(task: Task, name: str) -> list[int]:
    """Every small or medium extent times a power of two, from small to medium, or beyond where those are too few."""
    dim = task.dims[name]

    def up_to(most: int) -> list[int]:
        return sorted({start << k for start in (dim.small, dim.medium) for k in range(17) if start << k <= most})

    values = up_to(dim.medium)
    return values if len(values) >= _FEW_VALUES else up_to(min(_REACH * dim.medium, dim.max))


def _work(task: Task, dims: Mapping[str, int]) -> tuple[int, int]:
    """Bytes in and out, and FLOPs with every mask set."""
    shapes = workload(task, dims, "variant")
    arrays = (*shapes.inputs, shapes.output)
    return sum(4 * prod(array.shape) for array in arrays), dense_flops(task, dims)
