"""Runs a kernel's whole grid, chunk after chunk of programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor import operations
from pallas_evo.running.executor.handlers import HANDLERS
from pallas_evo.running.executor.machine import Machine, Tally
from pallas_evo.running.executor.memory import Buffer
from pallas_evo.running.executor.reading import Block, KernelCode

CHUNK_ELEMENTS = 1 << 18
"""Elements of the largest value in a chunk of programs: what fits the second-level cache is fastest."""


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
