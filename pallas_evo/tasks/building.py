"""The few words in which the task tables are written: one call a task, shapes as letters, sizes as triples."""

from __future__ import annotations

from collections.abc import Sequence

from pallas_evo.types import Dim, InputSpec, Precision, Stress, Task

MAX_EXTENT = 16384  # the largest extent of a dimension that names no bound of its own

Sizes = tuple[int, int, int] | tuple[int, int, int, int]


def dims(**letters: Sizes) -> dict[str, Dim]:
    """Dimension letters as (small, medium, large), with a fourth number where the largest extent is not MAX_EXTENT."""
    table = {}
    for name, (small, medium, large, *bound) in letters.items():
        most = bound[0] if bound else MAX_EXTENT
        table[name] = Dim(name=name, min=1, max=most, small=small, medium=medium, large=large)
    return table


def array(name: str, law: str, *shape: str | int) -> InputSpec:
    """A float32 input drawn by `law`."""
    return InputSpec(name=name, dtype="float32", law=law, shape=shape)


def normal(name: str, *shape: str | int) -> InputSpec:
    """A float32 input of activations."""
    return array(name, "normal", *shape)


def weight(name: str, *shape: str | int) -> InputSpec:
    """A float32 input of weights, whose first dimension is the fan-in."""
    return array(name, "weight", *shape)


def indices(name: str, bound: str, *shape: str | int) -> InputSpec:
    """An int32 input in [0, bound); the bound is a number or the extent of another input."""
    return InputSpec(name=name, dtype="int32", law=f"index_below:{bound}", shape=shape)


def scaled(factor: float, *inputs: str, what: str = "the float inputs") -> Stress:
    """A stress case that multiplies the named inputs by `factor`."""
    return Stress(text=f"one more seed with {what} scaled by {factor:g}, correctness only", inputs=inputs, scale=factor)


def task(
    number: int,
    id: str,
    category: str,
    inputs: Sequence[InputSpec],
    output: tuple[str | int, ...],
    precision: Precision,
    sizes: dict[str, Dim],
    formula: str,
    *,
    note: str = "",
    stress: Stress | None = None,
) -> Task:
    """One task with a float32 output; its level is the digit in its id."""
    return Task(
        id=id,
        number=number,
        level=int(id[1]),
        category=category,
        inputs=tuple(inputs),
        output_shape=output,
        output_dtype="float32",
        dims=sizes,
        formula=formula,
        precision=precision,
        note=note,
        stress=stress,
        version=1,
    )
