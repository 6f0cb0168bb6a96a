"""The 45 tasks: definitions, sizes, input laws, floors, references. Importing this does not import jax.

Definitions
    load_tasks, get_task

Sizes
    dims_of, sizes_table    the three table sizes
    workload                concrete shapes
    draw_variant_dims       a combination that no table has
    odd_dims                fixed odd and prime sizes for verification

Values
    draw_inputs             by the task's laws
    reference               plain jax.numpy; its jit is the XLA baseline
    reference64             the same in float64, on the CPU
    yardstick               the same in float32, dot operands rounded to TF32
    floor                   bytes and FLOPs that no correct program can do without
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pallas_evo.tasks.floors import floor
from pallas_evo.tasks.laws import draw_inputs
from pallas_evo.tasks.registry import get_task, load_tasks
from pallas_evo.tasks.shapes import dims_of, odd_dims, sizes_table, workload
from pallas_evo.tasks.variants import draw_variant_dims
from pallas_evo.types import Task

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "dims_of",
    "draw_inputs",
    "draw_variant_dims",
    "floor",
    "get_task",
    "load_tasks",
    "odd_dims",
    "reference",
    "reference64",
    "sizes_table",
    "workload",
    "yardstick",
]


def reference(task: Task) -> Callable[..., Any]:
    """The task's formula as a plain jax.numpy function of its inputs, in order.

    References of class `dot` take a keyword `einsum` (default `jnp.einsum`); the others have no dot.
    """
    from pallas_evo.tasks.references import REFERENCES

    return REFERENCES[task.id]


def reference64(task: Task, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The reference in float64 on the CPU, whatever devices there are.

    Returns:
        float64, read-only, of the output's shape.
    """
    from pallas_evo.tasks import oracle

    return oracle.reference64(task, inputs)


def yardstick(task: Task, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The judge's own answer: the reference in float32 on the CPU, dot operands rounded to TF32 for class `dot`.

    Returns:
        float32, read-only, of the output's shape.
    """
    from pallas_evo.tasks import oracle

    return oracle.yardstick(task, inputs)
