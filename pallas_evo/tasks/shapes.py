"""Dimensions and shapes: table sizes, workloads, and the odd sizes of verification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

from pallas_evo.errors import UsageError
from pallas_evo.types import ArraySpec, Task, Workload

Size = Literal["small", "medium", "large"]
SIZES: tuple[Size, ...] = get_args(Size)

_DIFFERENCE = re.compile(r"([A-Z])-([A-Z])\+1")

# Sizes of verification, by letter. Primes catch a block that must divide; ones catch an empty loop or a missing axis;
# one over a power of two leaves one row in the last block; thin ones are all edge. All are small enough for a plain
# NumPy interpreter: under 1e6 elements an array and 1e8 FLOPs.
_ODD = (
    {"M": 127, "N": 131, "K": 137, "F": 139, "D": 113, "E": 37, "B": 3, "H": 5, "C": 7, "T": 11, "L": 1021, "V": 211},
    dict.fromkeys("MNKFDEBHCTLV", 1),
    {"M": 257, "N": 129, "K": 65, "F": 129, "D": 65, "E": 33, "B": 5, "H": 3, "C": 9, "T": 17, "L": 1025, "V": 1025},
    {"M": 3, "N": 251, "K": 2, "F": 5, "D": 3, "E": 1, "B": 1, "H": 1, "C": 1, "T": 61, "L": 61, "V": 1},
)


def extent(entry: str | int, dims: Mapping[str, int]) -> int:
    """One entry of a shape at concrete dimensions: a number, a letter, or a difference of letters (`L-T+1`)."""
    if isinstance(entry, int):
        return entry
    if found := _DIFFERENCE.fullmatch(entry):
        return dims[found[1]] - dims[found[2]] + 1
    return dims[entry]


def check_dims(task: Task, dims: Mapping[str, int]) -> None:
    """Raise UsageError unless `dims` names the task's letters, each in its range, and leaves an output."""
    if set(dims) != set(task.dims):
        raise UsageError(f"{task.id}: expected the dimensions {', '.join(task.dims)}; got {', '.join(dims) or 'none'}.")
    for name, dim in task.dims.items():
        if not dim.min <= dims[name] <= dim.max:
            raise UsageError(f"{task.id}: expected {name} from {dim.min} to {dim.max}; got {dims[name]}.")
    for entry in task.output_shape:
        if extent(entry, dims) < 1:
            raise UsageError(f"{task.id}: expected at least one output for {entry}; got {dict(dims)}.")


def dims_of(task: Task, size: Size) -> dict[str, int]:
    """The dimension letters at one of the three table sizes.

    Raises:
        UsageError: `size` is none of them.
    """
    if size not in SIZES:
        raise UsageError(f"{task.id}: expected a size of {', '.join(SIZES)}; got {size!r}.")
    return {name: getattr(dim, size) for name, dim in task.dims.items()}


def workload(task: Task, dims: Mapping[str, int], label: str) -> Workload:
    """The concrete shapes of a task at `dims`.

    Raises:
        UsageError: `dims` do not fit the task.
    """
    check_dims(task, dims)
    return Workload(
        task_id=task.id,
        label=label,
        dims=dict(dims),
        inputs=tuple(
            ArraySpec(shape=tuple(extent(entry, dims) for entry in spec.shape), dtype=spec.dtype)
            for spec in task.inputs
        ),
        output=ArraySpec(shape=tuple(extent(entry, dims) for entry in task.output_shape), dtype=task.output_dtype),
    )


def sizes_table(task: Task) -> dict[str, list[list[int]]]:
    """The input shapes at each table size, as lists."""
    return {
        size: [[extent(entry, dims_of(task, size)) for entry in spec.shape] for spec in task.inputs] for size in SIZES
    }


def odd_dims(task: Task) -> tuple[dict[str, int], ...]:
    """Fixed small sizes for verification: primes, ones, one over a power of two, thin ones."""
    return tuple({name: odd[name] for name in task.dims} for odd in _ODD)
