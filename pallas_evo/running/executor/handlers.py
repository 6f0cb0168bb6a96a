"""The table of Triton IR's operations: what the machine runs for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor import accesses, control, operations, structure
from pallas_evo.running.executor.libdevice import LIBDEVICE
from pallas_evo.running.executor.machine import Active, Handler, Machine, Pointer, Tally
from pallas_evo.running.executor.reading import Instruction


def _elementwise(function: operations.Function, flops_each: int) -> Handler:
    def handle(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
        if flops_each:
            machine.tally.flops += flops_each * operations.product(instruction.result_types[0].shape) * active.count
        made = function(*arguments)
        dtype = instruction.result_types[0].dtype
        return made if made.dtype == dtype else made.astype(dtype)

    return handle


def _external(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    symbol = instruction.attributes["symbol"]
    if symbol not in LIBDEVICE:
        raise UnknownOperation(f"kernel {machine.code.name}: the executor knows no libdevice function {symbol}.")
    return _elementwise(LIBDEVICE[symbol], 1)(machine, instruction, arguments, active)


def _convert(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    (value,) = arguments
    if isinstance(value, Pointer):  # to another element type of the same size: the buffer is viewed at each access
        if instruction.operand_types[0].dtype.itemsize != instruction.result_types[0].dtype.itemsize:
            raise UnknownOperation(f"{instruction.name} of a pointer to elements of another size.")
        return value
    return operations.convert(instruction.name, value, instruction.result_types[0].dtype, instruction.attributes)


def _select(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    condition, yes, no = arguments
    if isinstance(yes, Pointer):
        if yes.buffer is not no.buffer:
            raise UnknownOperation("arith.select between pointers into different buffers.")
        return Pointer(yes.buffer, np.where(_raised(condition, yes.offsets.ndim), yes.offsets, no.offsets))
    return np.where(_raised(condition, yes.ndim), yes, no)


def _raised(array: np.ndarray, dimensions: int) -> np.ndarray:
    """A scalar condition beside tensors: trailing axes of size 1."""
    return array.reshape(array.shape + (1,) * (dimensions - array.ndim))


def _compare(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    table = operations.COMPARE_INTEGERS if instruction.name == "arith.cmpi" else operations.COMPARE_FLOATS
    return table[instruction.attributes["predicate"]](*arguments)


def _clamp(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    keeps_nan = str(instruction.attributes.get("propagateNan", 0)) not in ("0", "none")
    return operations.clamp(*arguments, keeps_nan=keeps_nan)


def _constant(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    return instruction.attributes["value"][None]


def _program_id(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    x, y, _ = machine.code.grid
    ids = machine.programs
    return (ids % x, ids // x % y, ids // x // y)[instruction.attributes["axis"]]


def _program_count(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    return np.array([machine.code.grid[instruction.attributes["axis"]]], np.int32)


def _add_pointer(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    pointer, offsets = arguments
    return Pointer(pointer.buffer, pointer.offsets + offsets)


def _shaped(function: Callable[[Instruction, np.ndarray], np.ndarray]) -> Handler:
    """An operation that moves elements of one value: the same on a pointer's offsets."""

    def handle(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
        (value,) = arguments
        if isinstance(value, Pointer):
            return Pointer(value.buffer, function(instruction, value.offsets))
        return function(instruction, value)

    return handle


def _dot(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    *batch, m, n = instruction.result_types[0].shape
    inner = instruction.operand_types[0].shape[-1]
    machine.tally.flops += 2 * operations.product(tuple(batch)) * m * n * inner * active.count
    return structure.dot(instruction, *arguments)


def _combine(machine: Machine, instruction: Instruction, active: Active) -> structure.Combine:
    """The region of a reduction or a scan as a function of two tuples of arrays; counts its FLOPs once an element."""
    body = instruction.regions[0]
    floats = sum(inner.name in operations.FLOAT_OPERATIONS for inner in body.instructions)
    elements = operations.product(instruction.operand_types[0].shape) * active.count
    machine.tally.flops += floats * elements
    scale = Tally()  # what runs inside works on many lanes at once: it is counted above instead

    def combine(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> list[np.ndarray]:
        counted, machine.tally = machine.tally, scale
        made = machine.call(body, [*left, *right], active)
        machine.tally = counted
        return made

    return combine


def _reduce(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    made = structure.reduce(instruction, arguments, _combine(machine, instruction, active))
    return made[0] if len(made) == 1 else made


def _scan(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    made = structure.scan(instruction, arguments, _combine(machine, instruction, active))
    return made[0] if len(made) == 1 else made


def _structural(function: Callable[..., Any]) -> Handler:
    return lambda machine, instruction, arguments, active: function(instruction, *arguments)


def _ignore(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> None:
    return None


HANDLERS: dict[str, Handler] = {
    **{name: _elementwise(function, 1) for name, function in operations.FLOAT_OPERATIONS.items()},
    **{name: _elementwise(function, 0) for name, function in operations.INTEGER_OPERATIONS.items()},
    **{name: _convert for name in operations.CONVERSIONS},
    "arith.cmpi": _compare,
    "arith.cmpf": _compare,
    "arith.constant": _constant,
    "arith.select": _select,
    "gpu.barrier": _ignore,
    "scf.for": control.run_for,
    "scf.if": control.run_if,
    "scf.while": control.run_while,
    "tt.addptr": _add_pointer,
    "tt.assert": _ignore,
    "tt.atomic_cas": accesses.atomic_swap,
    "tt.atomic_rmw": accesses.atomic_update,
    "tt.broadcast": _shaped(lambda instruction, value: value),
    "tt.cat": _structural(structure.concatenate),
    "tt.clampf": _clamp,
    "tt.dot": _dot,
    "tt.expand_dims": _shaped(structure.expand_dims),
    "tt.extern_elementwise": _external,
    "tt.gather": _structural(structure.gather),
    "tt.get_num_programs": _program_count,
    "tt.get_program_id": _program_id,
    "tt.histogram": _structural(structure.histogram),
    "tt.join": _structural(structure.join),
    "tt.load": accesses.load,
    "tt.make_range": _structural(structure.make_range),
    "tt.print": _ignore,
    "tt.reduce": _reduce,
    "tt.reshape": _shaped(structure.reshape),
    "tt.scan": _scan,
    "tt.splat": _shaped(structure.splat),
    "tt.split": _structural(structure.split),
    "tt.store": accesses.store,
    "tt.trans": _shaped(structure.transpose),
    "tt.unsplat": _shaped(lambda instruction, value: value.reshape(value.shape[:1])),
}
"""Every operation that a kernel's body may hold, terminators aside."""
