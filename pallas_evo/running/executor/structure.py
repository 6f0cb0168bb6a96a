"""Operations of Triton IR that work on whole values: shapes, products, reductions, scans.

Arrays have the programs as first axis; the Triton axis k is the array's axis k + 1. Axes of size 1 may stand for many
equal elements: `full` spells them out where an operation needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor import operations
from pallas_evo.running.executor.reading import Instruction

Combine = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], list[np.ndarray]]


def full(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The value with every axis but the programs' spelled out (a read-only view)."""
    return value if value.shape[1:] == shape else np.broadcast_to(value, value.shape[:1] + shape)


def splat(instruction: Instruction, value: np.ndarray) -> np.ndarray:
    """A scalar as a tensor of equal elements."""
    return value.reshape(value.shape[:1] + (1,) * len(instruction.result_types[0].shape))


def expand_dims(instruction: Instruction, value: np.ndarray) -> np.ndarray:
    """One more axis of size 1."""
    return np.expand_dims(value, instruction.attributes["axis"] + 1)


def transpose(instruction: Instruction, value: np.ndarray) -> np.ndarray:
    """Axes in another order."""
    return value.transpose((0, *(axis + 1 for axis in instruction.attributes["order"])))


def reshape(instruction: Instruction, value: np.ndarray) -> np.ndarray:
    """The same elements, row-major, in another shape."""
    shape = instruction.result_types[0].shape
    if value.size == value.shape[0]:
        return value.reshape(value.shape[:1] + (1,) * len(shape))
    return full(value, instruction.operand_types[0].shape).reshape(value.shape[:1] + shape)


def make_range(instruction: Instruction) -> np.ndarray:
    """start, start + 1, ... below end."""
    return np.arange(instruction.attributes["start"], instruction.attributes["end"], dtype=np.int32)[None]


def _alike(values: Sequence[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
    programs = max(value.shape[0] for value in values)
    return [np.broadcast_to(value, (programs, *shape)) for value in values]


def join(instruction: Instruction, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Two values as the two elements of a new last axis."""
    return np.stack(_alike([left, right], instruction.operand_types[0].shape), axis=-1)


def split(instruction: Instruction, value: np.ndarray) -> list[np.ndarray]:
    """The two elements of the last axis."""
    value = full(value, instruction.operand_types[0].shape)
    return [value[..., 0], value[..., 1]]


def concatenate(instruction: Instruction, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Two values one after the other, along the first axis."""
    return np.concatenate(_alike([left, right], instruction.operand_types[0].shape), axis=1)


def gather(instruction: Instruction, source: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Elements of `source` at `indices` along an axis; an index past the end is clamped."""
    axis = instruction.attributes["axis"] + 1
    source_shape, index_shape = (read.shape for read in instruction.operand_types)
    programs = max(source.shape[0], indices.shape[0])
    source = np.broadcast_to(source, (programs, *source_shape))
    indices = np.broadcast_to(indices, (programs, *index_shape))
    return np.take_along_axis(source, np.clip(indices, 0, source.shape[axis] - 1), axis)


def histogram(instruction: Instruction, value: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """How often each of 0, 1, ... occurs in each program's value."""
    bins = instruction.result_types[0].shape[0]
    arrays = [value] if mask is None else [value, mask]
    value, *masks = _alike(arrays, instruction.operand_types[0].shape)
    counted = (value >= 0) & (value < bins)
    if masks:
        counted &= masks[0]
    rows = np.broadcast_to(np.arange(len(value))[:, None], value.shape)
    flat = np.bincount((rows * bins + value)[counted], minlength=len(value) * bins)
    return flat.reshape(len(value), bins).astype(instruction.result_types[0].dtype)


def dot(instruction: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c, as the tensor cores form it.

    TF32 rounds float32 operands to 10 bits of significand, halves away from zero; 3xTF32 recovers the rounding errors
    and is a float32 product here. float16, bfloat16 and 8-bit float operands multiply exactly and add in float32
    (float64 in float64); integers are exact.
    """
    dtype = instruction.result_types[0].dtype
    precision = instruction.attributes.get("inputPrecision", "IEEE")
    a, b = (
        _matrix(operations.to_dot_type(value), read.shape)
        for value, read in zip((a, b), instruction.operand_types, strict=False)
    )
    if instruction.operand_types[0].dtype == np.float32:
        if precision == "TF32":
            a, b = operations.round_to_tf32(a), operations.round_to_tf32(b)
        elif precision not in ("IEEE", "TF32X3"):
            raise UnknownOperation(f"tt.dot with input precision {precision}.")
    made = np.matmul(a, b)
    if dtype.kind == "i":
        return (made.astype(np.int64) + c).astype(dtype)
    wide = c if c.dtype.itemsize >= 4 else c.astype(np.float32)
    return (made + wide).astype(dtype, copy=False)


def _matrix(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Spelled out in memory: a zero stride would keep `matmul` from BLAS."""
    return value if value.shape[1:] == shape else np.ascontiguousarray(full(value, shape))


def reduce(instruction: Instruction, values: Sequence[np.ndarray], combine: Combine) -> list[np.ndarray]:
    """Reduce along an axis by halves, as warps do: the rounding errors of sums stay as small, and do not depend on
    the chunk; maxima and integer sums, where the order does not matter, by NumPy's own loop."""
    axis = instruction.attributes["axis"] + 1
    shape = instruction.operand_types[0].shape
    values = list(values) if len(values) == 1 else _alike(values, shape)
    along = [value if value.shape[axis] == shape[axis - 1] else _spell(value, axis, shape) for value in values]
    function = _order_free(instruction)
    if function is not None and along[0].dtype.itemsize >= 4:
        return [function.reduce(along[0], axis=axis, dtype=along[0].dtype)]
    length = along[0].shape[axis]
    before = (slice(None),) * axis
    while length > 1:
        half = length // 2
        left = [value[(*before, slice(0, half))] for value in along]
        right = [value[(*before, slice(half, 2 * half))] for value in along]
        made = combine(left, right)
        if length % 2:
            rest = [value[(*before, slice(2 * half, length))] for value in along]
            made = [np.concatenate(pair, axis=axis) for pair in zip(made, rest, strict=True)]
        along, length = made, made[0].shape[axis]
    return [value.squeeze(axis) for value in along]


def _spell(value: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    target = list(value.shape)
    target[axis] = shape[axis - 1]
    return np.broadcast_to(value, target)


def _order_free(instruction: Instruction) -> np.ufunc | None:
    body = instruction.regions[0]
    if len(body.instructions) != 1 or len(body.outputs) != 1:
        return None
    (only,) = body.instructions
    if set(only.operands) != set(body.arguments) or only.results != body.outputs:
        return None
    return operations.REDUCERS.get(only.name)


def scan(instruction: Instruction, values: Sequence[np.ndarray], combine: Combine) -> list[np.ndarray]:
    """Inclusive scan along an axis, in doubling steps (the combine function is associative)."""
    axis = instruction.attributes["axis"] + 1
    shape = instruction.operand_types[0].shape
    values = _alike(values, shape)
    if instruction.attributes.get("reverse"):
        values = [np.flip(value, axis) for value in values]
    before = (slice(None),) * axis
    distance = 1
    while distance < shape[axis - 1]:
        left = [value[(*before, slice(0, -distance))] for value in values]
        right = [value[(*before, slice(distance, None))] for value in values]
        made = combine(left, right)
        values = [
            np.concatenate([value[(*before, slice(0, distance))], new], axis=axis)
            for value, new in zip(values, made, strict=True)
        ]
        distance *= 2
    return [np.flip(value, axis) if instruction.attributes.get("reverse") else value for value in values]
