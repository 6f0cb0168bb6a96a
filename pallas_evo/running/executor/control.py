"""Branches and loops in which the programs of a chunk may take different ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor.machine import Active, Machine
from pallas_evo.running.executor.reading import Instruction


def _results(instruction: Instruction, values: list[Any]) -> Any:
    return values[0] if len(instruction.results) == 1 else values


def run_if(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
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


def run_for(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
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


def run_while(machine: Machine, instruction: Instruction, arguments: list[Any], active: Active) -> Any:
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
