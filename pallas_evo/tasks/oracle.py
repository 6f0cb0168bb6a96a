"""Runs the references on the CPU: in float64, and as the yardstick that a candidate's error is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from pallas_evo.errors import DeviceUnavailable
from pallas_evo.tasks.floors import dims_from
from pallas_evo.tasks.references import REFERENCES
from pallas_evo.tasks.shapes import extent
from pallas_evo.types import Task

_CHUNK_ELEMENTS = 1 << 24  # of one input: rows that stand alone go in chunks, or 16384 x 16384 takes 6 GB in float64


def tf32_einsum(equation: str, *operands: Array) -> Array:
    """`jnp.einsum` on operands rounded to TF32, summed in float32, as a tensor core does it."""
    return jnp.einsum(equation, *(_tf32(operand) for operand in operands))


def _tf32(x: Array) -> Array:
    """Round float32 to TF32's 10 bits of mantissa: to nearest, a tie away from zero, as `cvt.rna.tf32.f32` does."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return lax.bitcast_convert_type((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), jnp.float32)


@cache
def _compiled(task_id: str, kind: Literal["plain", "tf32"]) -> Callable[..., Array]:
    function = REFERENCES[task_id]
    compiled: Callable[..., Array] = jax.jit(partial(function, einsum=tf32_einsum) if kind == "tf32" else function)
    return compiled


def reference64(task: Task, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The reference in float64."""
    with jax.enable_x64(True):
        return _run(task, _compiled(task.id, "plain"), inputs, np.float64)


def yardstick(task: Task, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The reference in float32, its dot operands rounded to TF32 for class `dot`."""
    kind: Literal["plain", "tf32"] = "tf32" if task.precision == "dot" else "plain"
    with jax.enable_x64(False):
        return _run(task, _compiled(task.id, kind), inputs, np.float32)


def _run(task: Task, function: Callable[..., Array], inputs: Sequence[np.ndarray], float_type: Any) -> np.ndarray:
    """Call `function` on the CPU, float inputs cast to `float_type`, in chunks of rows where rows stand alone."""

    def call(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(function(*(a.astype(float_type, copy=False) if a.dtype.kind == "f" else a for a in arrays)))

    with jax.default_device(_cpu()):
        rows = inputs[0].shape[0]
        step = max(1, _CHUNK_ELEMENTS * rows // inputs[0].size)
        if step >= rows or not _row_by_row(task):
            return call(inputs)
        result = np.empty([extent(entry, dims_from(task, inputs)) for entry in task.output_shape], float_type)
        for start in range(0, rows, step):
            result[start : start + step] = call([array[start : start + step] for array in inputs])
        return result


def _row_by_row(task: Task) -> bool:
    """Whether row i of the output depends on row i of the inputs alone: so for every task of (M, N) inputs only."""
    return all(spec.shape == ("M", "N") for spec in task.inputs)


@cache
def _cpu() -> jax.Device:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError as error:
        raise DeviceUnavailable(
            "References run on JAX's CPU backend, and JAX_PLATFORMS leaves it out. Unset it or add `cpu` to it."
        ) from error
