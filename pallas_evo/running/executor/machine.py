"""Runs a kernel's Triton IR in NumPy, all programs of a chunk of the grid at once.

A value is an array whose first axis is the programs of the chunk, followed by the axes of its Triton type; any axis
along which it does not vary may have size 1 (a splat costs one element). A pointer is a buffer with such an array of
offsets. Where programs take different ways (bounds of a loop, a branch), all go, and a mask of the active ones keeps
the others from touching memory or changing values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor import operations, structure
from pallas_evo.running.executor.libdevice import LIBDEVICE
from pallas_evo.running.executor.memory import Access, Buffer
from pallas_evo.running.executor.reading import Block, Instruction, KernelCode, TensorType

CHUNK_ELEMENTS = 1 << 18
"""Elements of the largest value in a chunk of programs: what fits the second-level cache is fastest."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Pointers into one buffer. `offsets` count elements."""

    buffer: Buffer
    offsets: np.ndarray


@dataclass(frozen=True, slots=True)
class Active:
    """Which programs of the chunk take part: a boolean array, or None for all; and how many."""

    mask: np.ndarray | None
    count: int

    def narrowed(self, condition: np.ndarray) -> Active:
        """Those of the active programs for which the condition (one value a program, or one for all) holds."""
        if condition.size == 1:
            return self if condition.reshape(-1)[0] else Active(np.zeros(1, np.bool_), 0)
        mask = condition if self.mask is None else condition & self.mask
        count = int(np.count_nonzero(mask))
        return self if count == self.count else Active(mask, count)

    def lanes(self, mask: np.ndarray | None, dimensions: int) -> np.ndarray | None:
        """A lane mask of `dimensions` axes, without the lanes of inactive programs."""
        if self.mask is None:
            return mask
        rows = self.mask.reshape((-1,) + (1,) * (dimensions - 1))
        return rows if mask is None else rows & mask

    def merge(self, new: Any, old: Any) -> Any:
        """`new` in active programs, `old` in the others."""
        if self.mask is None:
            return new
        if isinstance(new, Pointer):
            if new.buffer is not old.buffer:
                raise UnknownOperation("a pointer that points into different buffers in different programs.")
            return Pointer(new.buffer, self.merge(new.offsets, old.offsets))
        return np.where(self.mask.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)


@dataclass(slots=True)
class Tally:
    """Running counts of a run (see `pallas_evo.types.Counts`)."""

    bytes_loaded: int = 0
    bytes_stored: int = 0
    flops: int = 0


def run_kernel(code: KernelCode, buffers: Sequence[Buffer], lane_elements: int, tally: Tally) -> None:
    """Run every program of a kernel's grid; `buffers` are the kernel's arguments.

    Raises:
        Refused: an access out of bounds, a read of what is not written, a race.
        UnknownOperation: an operation that the executor does not know.
    """
    _bind(code.body)
    _find_mixed(code, buffers)
    programs = operations.product(code.grid)
    step = max(1, min(lane_elements, CHUNK_ELEMENTS) // _largest_value(code.body))
    names = {instruction.name for instruction in code.body.walk()}
    if "scf.while" in names and names & {"tt.atomic_cas", "tt.atomic_rmw"}:
        step = 1  # a program may wait in a loop for what another does: together they would wait for ever
    with np.errstate(all="ignore"):
        for start in range(0, programs, step):
            Machine(code, buffers, np.arange(start, min(start + step, programs), dtype=np.int32), tally).run()


class Machine:
    """The state of one chunk of programs: their ids and the values computed so far."""

    def __init__(self, code: KernelCode, buffers: Sequence[Buffer], programs: np.ndarray, tally: Tally) -> None:
        self.code, self.buffers, self.programs, self.tally = code, buffers, programs, tally
        self.values: list[Any] = [None] * code.values

    def run(self) -> None:
        """Run the kernel's body."""
        for argument, buffer in zip(self.code.body.arguments, self.buffers, strict=True):
            self.values[argument] = Pointer(buffer, np.zeros(1, np.int64))
        self.run_block(self.code.body, Active(None, len(self.programs)))

    def run_block(self, block: Block, active: Active) -> list[Any]:
        """Run straight-line code whose arguments have values; returns the terminator's operands."""
        values = self.values
        for instruction in block.instructions:
            assert instruction.handler is not None
            made = instruction.handler(self, instruction, [values[operand] for operand in instruction.operands], active)
            if len(instruction.results) == 1:
                values[instruction.results[0]] = made
            else:
                for result, value in zip(instruction.results, made or (), strict=True):
                    values[result] = value
            for dead in instruction.dying:
                values[dead] = None
        return [values[output] for output in block.outputs]

    def call(self, block: Block, arguments: Sequence[Any], active: Active) -> list[Any]:
        """Run a region with these arguments."""
        for number, value in zip(block.arguments, arguments, strict=True):
            self.values[number] = value
        return self.run_block(block, active)

    def access(self, operation: str) -> Access:
        """Who accesses memory in this chunk, for the checks and their messages."""
        return Access(operation, self.code.name, self.programs, self.code.grid)


Handler = Callable[[Machine, Instruction, list[Any], Active], Any]


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


def _load(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    pointer, *rest = arguments
    _, has_mask, has_other = instruction.attributes["operandSegmentSizes"]
    mask = rest[0] if has_mask else None
    lanes = active.lanes(mask, pointer.offsets.ndim)
    result = instruction.result_types[0]
    value = pointer.buffer.load(machine.access("load"), pointer.offsets, lanes, result.dtype)
    machine.tally.bytes_loaded += _lane_count(lanes, result, active) * result.dtype.itemsize
    if mask is None:
        return value
    other = rest[1] if has_other else result.dtype.type(0)  # Triton sets lanes without `other` to 0 on NVIDIA
    return value if mask.all() else np.where(mask, value, other)


def _store(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> None:
    pointer, value, *masks = arguments
    stored = instruction.operand_types[1]
    lanes = active.lanes(masks[0] if masks else None, pointer.offsets.ndim)
    pointer.buffer.store(machine.access("store"), pointer.offsets, value, lanes)
    machine.tally.bytes_stored += _lane_count(lanes, stored, active) * stored.dtype.itemsize


def _lane_count(lanes: np.ndarray | None, read: TensorType, active: Active) -> int:
    """How many lanes of all active programs the mask lets through."""
    full = operations.product(read.shape) * active.count
    if lanes is None:
        return full
    programs = active.count if active.mask is None else len(active.mask)
    represented = operations.product(read.shape) * programs // lanes.size  # lanes that each element stands for
    return int(np.count_nonzero(lanes)) * represented


def _as_unsigned(function: np.ufunc) -> operations.Function:
    return lambda old, new: function(operations.unsigned(old), operations.unsigned(new)).view(old.dtype)


ATOMICS: dict[str, tuple[operations.Function, np.ufunc | None]] = {
    "AND": (np.bitwise_and, np.bitwise_and),
    "OR": (np.bitwise_or, np.bitwise_or),
    "XOR": (np.bitwise_xor, np.bitwise_xor),
    "ADD": (np.add, np.add),
    "FADD": (np.add, np.add),
    "MAX": (np.maximum, np.maximum),
    "MIN": (np.minimum, np.minimum),
    "UMAX": (_as_unsigned(np.maximum), None),
    "UMIN": (_as_unsigned(np.minimum), None),
    "XCHG": (lambda old, new: new, None),
}
"""tt.atomic_rmw's kinds: the function, and the ufunc that does the same where the old value is not wanted."""


def _atomic_update(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    pointer, value, *masks = arguments
    kind = instruction.attributes["atomic_rmw_op"]
    function, ufunc = ATOMICS[kind]
    unread = instruction.results[0] in instruction.dying
    old, count = pointer.buffer.update(
        machine.access(f"atomic {kind.lower()}"),
        pointer.offsets,
        (value,),
        active.lanes(masks[0] if masks else None, pointer.offsets.ndim),
        function,
        at=ufunc.at if ufunc is not None and unread else None,
        reads=kind != "XCHG",
    )
    _count_atomic(machine, instruction, count)
    return old


def _atomic_swap(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    pointer, expected, value = arguments
    old, count = pointer.buffer.update(
        machine.access("atomic compare-and-swap"),
        pointer.offsets,
        (expected, value),
        active.lanes(None, pointer.offsets.ndim),
        lambda old, expected, new: np.where(old == expected, new, old),
        at=None,
        reads=True,
    )
    _count_atomic(machine, instruction, count)
    return old


def _count_atomic(machine: Machine, instruction: Instruction, lanes: int) -> None:
    dtype = instruction.result_types[0].dtype
    machine.tally.bytes_loaded += lanes * dtype.itemsize
    machine.tally.bytes_stored += lanes * dtype.itemsize
    machine.tally.flops += lanes if operations.is_float(dtype) else 0


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


def _results(instruction: Instruction, values: list[Any]) -> Any:
    return values[0] if len(instruction.results) == 1 else values


def _if(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    (condition,) = arguments
    then, *otherwise = instruction.regions
    considered = condition if active.mask is None or condition.size == 1 else condition[active.mask]
    if considered.all() or not considered.any():
        taken = [then] if considered.all() else otherwise
        return _results(instruction, machine.run_block(taken[0], active)) if taken else []
    yes, no = active.narrowed(condition), active.narrowed(~condition)
    new = machine.run_block(then, yes)
    old = machine.run_block(otherwise[0], no) if otherwise else []
    return _results(instruction, [yes.merge(a, b) for a, b in zip(new, old, strict=True)])


def _for(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    low, high, step, *carried = arguments
    body = instruction.regions[0]
    if (step <= 0).any() or instruction.attributes.get("unsignedCmp"):
        raise UnknownOperation(f"kernel {machine.code.name}: scf.for that does not count up in signed integers.")
    trips = np.maximum(0, -(-(high.astype(np.int64) - low) // step))
    if active.mask is not None:
        trips = np.where(active.mask, trips, 0)
    for turn in range(int(trips.max())):
        still = active.narrowed(trips > turn)
        index = (low + turn * step).astype(low.dtype)
        made = machine.call(body, [index, *carried], still)
        carried = made if still is active else [still.merge(new, old) for new, old in zip(made, carried, strict=True)]
    return _results(instruction, carried)


def _while(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
    before, after = instruction.regions
    carried, results, still = arguments, None, active
    while True:
        condition, *forwarded = machine.call(before, carried, still)
        results = (
            forwarded
            if results is None or still is active
            else [still.merge(new, old) for new, old in zip(forwarded, results, strict=True)]
        )
        still = still.narrowed(condition)
        if still.count == 0:
            return _results(instruction, results)
        carried = machine.call(after, forwarded, still)


HANDLERS: dict[str, Handler] = {
    **{name: _elementwise(function, 1) for name, function in operations.FLOAT_OPERATIONS.items()},
    **{name: _elementwise(function, 0) for name, function in operations.INTEGER_OPERATIONS.items()},
    **{name: _convert for name in operations.CONVERSIONS},
    "arith.cmpi": _compare,
    "arith.cmpf": _compare,
    "arith.constant": _constant,
    "arith.select": _select,
    "gpu.barrier": _ignore,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.addptr": _add_pointer,
    "tt.assert": _ignore,
    "tt.atomic_cas": _atomic_swap,
    "tt.atomic_rmw": _atomic_update,
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
    "tt.load": _load,
    "tt.make_range": _structural(structure.make_range),
    "tt.print": _ignore,
    "tt.reduce": _reduce,
    "tt.reshape": _shaped(structure.reshape),
    "tt.scan": _scan,
    "tt.splat": _shaped(structure.splat),
    "tt.split": _structural(structure.split),
    "tt.store": _store,
    "tt.trans": _shaped(structure.transpose),
    "tt.unsplat": _shaped(lambda instruction, value: value.reshape(value.shape[:1])),
}
"""Every operation that a kernel's body may hold, terminators aside."""


def _bind(block: Block) -> None:
    for instruction in block.walk():
        handler = HANDLERS.get(instruction.name)
        if handler is None:
            raise UnknownOperation(f"the executor knows no operation {instruction.name} of Triton IR.")
        instruction.handler = handler


def _largest_value(block: Block) -> int:
    """Elements of the largest value of one program."""
    sizes = [1]
    for instruction in block.walk():
        sizes += [operations.product(read.shape) for read in (*instruction.result_types, *instruction.operand_types)]
    return max(sizes)


def _find_mixed(code: KernelCode, buffers: Sequence[Buffer]) -> None:
    """Mark the buffers that the kernel both reads and writes; when a pointer's way is unclear, all of them."""
    roots: dict[int, set[int]] = {argument: {index} for index, argument in enumerate(code.body.arguments)}
    everything = set(range(len(buffers)))
    read: set[int] = set()
    written: set[int] = set()
    for instruction in code.body.walk():
        for number, kind in zip(instruction.results, instruction.result_types, strict=True):
            if kind.pointer:
                known = [roots.get(operand, everything) for operand in instruction.operands if operand in roots]
                roots[number] = everything if instruction.regions or not known else set().union(*known)
        if instruction.name == "tt.load" or instruction.name.startswith("tt.atomic"):
            read |= roots.get(instruction.operands[0], everything)
        if instruction.name == "tt.store" or instruction.name.startswith("tt.atomic"):
            written |= roots.get(instruction.operands[0], everything)
    shared = [id(buffer) for buffer in buffers]
    both = {shared[index] for index in read} & {shared[index] for index in written}
    for buffer in buffers:
        buffer.mixed = id(buffer) in both
