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
from pallas_evo.running.executor.memory import Access, Buffer
from pallas_evo.running.executor.reading import Block, Instruction, KernelCode


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
"""Runs one instruction: its results, given its operands and who is active."""
