"""Loads, stores and atomic updates: from lanes and masks to a buffer's elements, and their counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from pallas_evo.running.executor import operations
from pallas_evo.running.executor.machine import Active, Machine
from pallas_evo.running.executor.reading import Instruction, TensorType


def load(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
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


def store(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> None:
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


def atomic_update(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
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


def atomic_swap(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
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
