"""Runs what surrounds the Triton calls: StableHLO that moves, converts, and computes on constants.

Every value carries which of its elements are defined, because an element that a kernel never wrote may be moved and
cut away (padding) without harm; what may not is that it reaches a kernel's load or the module's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor import operations
from pallas_evo.running.executor.launching import run_kernel
from pallas_evo.running.executor.machine import Tally
from pallas_evo.running.executor.memory import Buffer
from pallas_evo.running.executor.reading import Block, Instruction, KernelCode, ProgramCode


@dataclass(frozen=True, slots=True)
class Value:
    """An array, read-only by custom, and which of its elements are defined (None: all)."""

    array: np.ndarray
    defined: np.ndarray | None = None


class GlueRunner:
    """Runs a module's functions. `tally` counts what its kernels do."""

    def __init__(self, program: ProgramCode, lane_elements: int) -> None:
        self.program, self.lane_elements = program, lane_elements
        self.tally = Tally()

    def call(self, name: str, arguments: Sequence[Value]) -> list[Value]:
        """Run one function of the module."""
        block = self.program.functions.get(name)
        if block is None:
            raise UnknownOperation(f"the module has no function {name}.")
        return self._run(block, arguments)

    def _run(self, block: Block, arguments: Sequence[Value]) -> list[Value]:
        values: dict[int, Value] = dict(zip(block.arguments, arguments, strict=True))
        for instruction in block.instructions:
            operands = [values[operand] for operand in instruction.operands]
            for number, made in zip(instruction.results, self._evaluate(instruction, operands), strict=True):
                values[number] = made
            for dead in instruction.dying:
                values.pop(dead, None)
        return [values[output] for output in block.outputs]

    def _evaluate(self, instruction: Instruction, operands: list[Value]) -> list[Value]:
        name = instruction.name
        if name == "stablehlo.custom_call":
            return self._launch(instruction, operands)
        if name == "func.call":
            return self.call(instruction.attributes["callee"], operands)
        if name == "stablehlo.optimization_barrier":
            return operands
        if name in MOVES:
            return [_move(instruction, operands)]
        if name in COMPUTES:
            with np.errstate(all="ignore"):
                array = COMPUTES[name](instruction, *(operand.array for operand in operands))
            result = instruction.result_types[0]
            array = np.asarray(np.broadcast_to(array, result.shape), order="C").astype(result.dtype, copy=False)
            return [Value(array, _all_defined(operands, result.shape))]
        raise UnknownOperation(f"the executor knows no operation {name} outside Triton calls.")

    def _launch(self, instruction: Instruction, operands: list[Value]) -> list[Value]:
        code: KernelCode = instruction.attributes["kernel"]
        aliases: dict[int, int] = instruction.attributes["aliases"]
        inputs = [
            Buffer(_signless(np.asarray(operand.array, order="C")), operand.defined, f"input {index}")
            for index, operand in enumerate(operands)
        ]
        outputs = []
        for index, kind in enumerate(instruction.result_types):
            name = f"output {index}"
            if index in aliases:
                operand = operands[aliases[index]]
                data = np.array(operand.array, order="C")
                defined = None if operand.defined is None else operand.defined.copy()
                outputs.append(Buffer(_signless(data), defined, name))
                inputs[aliases[index]] = outputs[-1]  # one buffer, two arguments of the kernel
            else:
                outputs.append(Buffer.unwritten(kind.shape, _signless(np.empty(0, kind.dtype)).dtype, name))
        run_kernel(code, [*inputs, *outputs], self.lane_elements, self.tally)
        made = []
        for buffer, kind in zip(outputs, instruction.result_types, strict=True):
            data, defined = buffer.finish()
            made.append(Value(data.view(kind.dtype), defined))
        return made


def _signless(array: np.ndarray) -> np.ndarray:
    return array.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "u" else array


def _all_defined(operands: Sequence[Value], shape: tuple[int, ...]) -> np.ndarray | None:
    masks = [operand.defined for operand in operands if operand.defined is not None]
    return None if not masks else np.logical_and.reduce([np.broadcast_to(mask, shape) for mask in masks])


def _move(instruction: Instruction, operands: list[Value]) -> Value:
    """Move elements, and their being defined along with them."""
    function = MOVES[instruction.name]
    arrays = [operand.array for operand in operands]
    array = function(instruction, *arrays)
    if all(operand.defined is None for operand in operands):
        return Value(array)
    masks = [
        np.ones(operand.array.shape, np.bool_) if operand.defined is None else operand.defined for operand in operands
    ]
    indices = INDEX_OPERANDS.get(instruction.name)
    if indices is not None:  # where to cut is a value of its own: it must be known
        if not all(mask.all() for mask in masks[indices:]):
            raise UnknownOperation(f"{instruction.name} at an index that no kernel wrote.")
        masks[indices:] = arrays[indices:]
    defined = function(instruction, *masks)
    return Value(array, None if defined.all() else np.asarray(defined, order="C"))


def _slices(instruction: Instruction) -> tuple[slice, ...]:
    attributes = instruction.attributes
    bounds = zip(attributes["start_indices"], attributes["limit_indices"], attributes["strides"], strict=True)
    return tuple(slice(start, limit, stride) for start, limit, stride in bounds)


def _dynamic_start(array: np.ndarray, sizes: Sequence[int], starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    """Start indices are clamped so that the slice lies inside."""
    clamped = [
        min(max(int(start), 0), whole - size) for start, whole, size in zip(starts, array.shape, sizes, strict=True)
    ]
    return tuple(slice(start, start + size) for start, size in zip(clamped, sizes, strict=True))


def _dynamic_slice(instruction: Instruction, array: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    return array[_dynamic_start(array, instruction.attributes["slice_sizes"], starts)]


def _dynamic_update(instruction: Instruction, array: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    made = np.array(array)
    made[_dynamic_start(array, update.shape, starts)] = update
    return made


def _pad(instruction: Instruction, array: np.ndarray, padding: np.ndarray) -> np.ndarray:
    """Padding before, after and between elements; negative padding cuts."""
    attributes = instruction.attributes
    made = np.full(instruction.result_types[0].shape, padding, array.dtype)
    source, target = [], []
    for size, low, between, whole in zip(
        array.shape, attributes["edge_padding_low"], attributes["interior_padding"], made.shape, strict=True
    ):
        step = between + 1
        first = max(0, -(low // step)) if low < 0 else 0  # the first element that lands at or after 0
        last = min(size, -(-(whole - low) // step))
        source.append(slice(first, max(first, last)))
        target.append(slice(low + first * step, max(low + first * step, low + (last - 1) * step + 1), step))
    made[tuple(target)] = array[tuple(source)]
    return made


def _broadcast(instruction: Instruction, array: np.ndarray) -> np.ndarray:
    shape = instruction.result_types[0].shape
    kept = [1] * len(shape)
    for axis, size in zip(instruction.attributes["broadcast_dimensions"], array.shape, strict=True):
        kept[axis] = size
    return np.broadcast_to(array.reshape(kept), shape)


MOVES: dict[str, Callable[..., np.ndarray]] = {
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": lambda instruction, *arrays: np.concatenate(
        arrays, axis=instruction.attributes["dimension"]
    ),
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": lambda instruction, array: array.reshape(instruction.result_types[0].shape),
    "stablehlo.reverse": lambda instruction, array: np.flip(array, instruction.attributes["dimensions"]),
    "stablehlo.slice": lambda instruction, array: array[_slices(instruction)],
    "stablehlo.transpose": lambda instruction, array: array.transpose(instruction.attributes["permutation"]),
}
"""Operations that only move elements."""

INDEX_OPERANDS = {"stablehlo.dynamic_slice": 1, "stablehlo.dynamic_update_slice": 2}
"""From which operand on an operation's operands are indices."""


def _constant(instruction: Instruction) -> np.ndarray:
    return instruction.attributes["value"]


def _iota(instruction: Instruction) -> np.ndarray:
    kind, axis = instruction.result_types[0], instruction.attributes["iota_dimension"]
    shape = [1] * len(kind.shape)
    shape[axis] = kind.shape[axis]
    return np.arange(kind.shape[axis]).astype(kind.dtype).reshape(shape)


def _convert(instruction: Instruction, array: np.ndarray) -> np.ndarray:
    dtype = instruction.result_types[0].dtype
    if dtype == np.bool_:
        return array != 0
    if operations.is_float(array.dtype) and dtype.kind in "iu":
        made = operations.to_integer(array, np.dtype(f"i{dtype.itemsize}"), signed=dtype.kind == "i")
        return made.view(dtype)
    return array.astype(dtype)


def _compare(instruction: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    direction = instruction.attributes["comparison_direction"].split()[-1].rstrip(">")
    functions = {
        "EQ": np.equal,
        "NE": np.not_equal,
        "LT": np.less,
        "LE": np.less_equal,
        "GT": np.greater,
        "GE": np.greater_equal,
    }
    return functions[direction](a, b)


def _divide(instruction: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "i":
        return operations.INTEGER_OPERATIONS["arith.divsi"](a, b)
    return np.floor_divide(a, b) if a.dtype.kind == "u" else np.divide(a, b)


def _plain(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda instruction, *arrays: function(*arrays)


COMPUTES: dict[str, Callable[..., np.ndarray]] = {
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.convert": _convert,
    "stablehlo.compare": _compare,
    "stablehlo.select": _plain(np.where),
    "stablehlo.clamp": _plain(lambda low, array, high: np.minimum(np.maximum(array, low), high)),
    "stablehlo.abs": _plain(np.abs),
    "stablehlo.add": _plain(np.add),
    "stablehlo.and": _plain(np.bitwise_and),
    "stablehlo.ceil": _plain(np.ceil),
    "stablehlo.cosine": _plain(np.cos),
    "stablehlo.divide": _divide,
    "stablehlo.exponential": _plain(np.exp),
    "stablehlo.floor": _plain(np.floor),
    "stablehlo.log": _plain(np.log),
    "stablehlo.maximum": _plain(np.maximum),
    "stablehlo.minimum": _plain(np.minimum),
    "stablehlo.multiply": _plain(np.multiply),
    "stablehlo.negate": _plain(np.negative),
    "stablehlo.not": _plain(np.invert),
    "stablehlo.or": _plain(np.bitwise_or),
    "stablehlo.power": _plain(np.power),
    "stablehlo.remainder": _plain(np.fmod),
    "stablehlo.rsqrt": _plain(lambda a: np.divide(a.dtype.type(1), np.sqrt(a))),
    "stablehlo.shift_left": _plain(operations.shift(np.left_shift)),
    "stablehlo.shift_right_arithmetic": _plain(operations.shift(np.right_shift, fills_sign=True)),
    "stablehlo.shift_right_logical": _plain(
        lambda a, b: operations.shift(np.right_shift)(operations.unsigned(a), operations.unsigned(b)).view(a.dtype)
    ),
    "stablehlo.sign": _plain(np.sign),
    "stablehlo.sine": _plain(np.sin),
    "stablehlo.sqrt": _plain(np.sqrt),
    "stablehlo.subtract": _plain(np.subtract),
    "stablehlo.tanh": _plain(np.tanh),
    "stablehlo.xor": _plain(np.bitwise_xor),
}
"""Operations that compute. The validator lets them see constants only; `convert` may see more."""

ALLOWED_GLUE_OPS: frozenset[str] = frozenset(
    {*MOVES, *COMPUTES, "func.call", "stablehlo.custom_call", "stablehlo.optimization_barrier"}
)
"""Every StableHLO operation that the executor runs."""
