"""Buffers of a kernel's launch: bounds, elements never written, and programs that race.

Every access comes as offsets in elements with a leading axis for programs, lazily broadcast (axes of size 1 stand for
many equal lanes). `programs` are the ids of those programs, in the same leading axis.

Two programs race for an element when one plainly stores it and the other touches it at all, or when one updates it
atomically and the other loads it plainly. Atomic updates of one element by many programs are in order. A lock built
from atomics is not seen as one: what it guards is still a race here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

NOBODY, SEVERAL = -1, -2
"""Marks in the per-element records of who touched an element; a program's id stands for itself."""


class Refused(Exception):
    """The kernel did what no correct kernel does; becomes a `Rejection`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Access:
    """Who accesses: operation and kernel by name, the ids of the chunk's programs, and the launch grid."""

    operation: str
    kernel: str
    programs: np.ndarray
    grid: tuple[int, int, int]

    def program(self, identity: int) -> str:
        """A program's id along the axes of the grid."""
        x, y, _ = self.grid
        return f"program ({identity % x}, {identity // x % y}, {identity // x // y})"

    def rows(self, dimensions: int) -> np.ndarray:
        """Program ids with one trailing axis of size 1 for each axis of a lane."""
        return self.programs.reshape((-1,) + (1,) * (dimensions - 1))


class Buffer:
    """One buffer in a kernel's view.

    Args:
        data: C-contiguous array, written in place.
        defined: which elements have a value; None: all.
        name: what messages call it, for example `input 0`.
    """

    def __init__(self, data: np.ndarray, defined: np.ndarray | None, name: str) -> None:
        self.shape = data.shape
        self.data = data.reshape(-1)
        self.defined = None if defined is None else defined.reshape(-1)
        self.name = name
        self.mixed = False  # both read and written in this launch: then readers are recorded
        self._writer: np.ndarray | None = None
        self._reader: np.ndarray | None = None
        self._updater: np.ndarray | None = None

    @classmethod
    def unwritten(cls, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Buffer:
        """A buffer in which nothing is defined: NaN, or the least integer, so that what leaks shows."""
        if dtype == np.bool_:
            poison: Any = False
        elif dtype.kind in "iu":
            poison = np.iinfo(dtype).min
        else:
            poison = np.nan
        return cls(np.full(shape, poison, dtype), np.zeros(shape, np.bool_), name)

    def finish(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The data and what of it is defined, in the buffer's shape, after all programs ran."""
        if self.defined is not None:
            for record in (self._writer, self._updater):
                if record is not None:
                    self.defined |= record != NOBODY
            if self.defined.all():
                self.defined = None
        defined = None if self.defined is None else self.defined.reshape(self.shape)
        return self.data.reshape(self.shape), defined

    def load(self, access: Access, offsets: np.ndarray, mask: np.ndarray | None, dtype: np.dtype[Any]) -> np.ndarray:
        """The elements at `offsets`; lanes that the mask leaves out have an arbitrary value."""
        mask = None if mask is None or mask.all() else mask
        self._check_bounds(access, offsets, mask)
        if self._writer is not None or self.mixed:
            self._check_marks(access, self._writer, offsets, mask, "stores")
            self._check_marks(access, self._updater, offsets, mask, "updates atomically")
            if self.mixed:
                self._reader = self._mark(self._reader, access, offsets, mask)
        if self.defined is not None:
            self._check_defined(access, offsets, mask)
        return self._view(dtype).take(offsets, mode="clip")

    def store(self, access: Access, offsets: np.ndarray, value: np.ndarray, mask: np.ndarray | None) -> int:
        """Store `value`; returns how many elements of the broadcast lanes were stored."""
        offsets, value, programs = self._lanes(access, offsets, value, mask)
        if offsets.size == 0:
            return 0
        self._check_bounds(access, offsets, None, programs)
        self._check_marks(access, self._reader, offsets, None, "loads", programs)
        self._check_marks(access, self._updater, offsets, None, "updates atomically", programs)
        if self._writer is None:
            self._writer = np.full(self.data.size, NOBODY, np.int32)
        before = self._writer.take(offsets)
        if before.max() != NOBODY:
            self._refuse_where((before != NOBODY) & (before != programs), access, offsets, before, programs, "stores")
        self._writer[offsets] = programs
        after = self._writer.take(offsets)
        if not (after == programs).all():
            self._refuse_where(after != programs, access, offsets, after, programs, "stores")
        data = self._view(value.dtype)
        data[offsets] = value
        bits = np.dtype(f"u{value.dtype.itemsize}")
        differ = data.view(bits).take(offsets) != value.view(bits)
        if differ.any():
            where = int(np.argmax(differ))
            raise Refused(
                "race",
                f"Kernel {access.kernel}: one {access.operation} of {_program_at(access, programs, differ, where)} "
                f"writes element {int(offsets.flat[where])} of {self.name} twice with different values. "
                "Give every lane an element of its own, or reduce before storing.",
            )
        return int(offsets.size)

    def update(
        self,
        access: Access,
        offsets: np.ndarray,
        operands: tuple[np.ndarray, ...],
        mask: np.ndarray | None,
        function: Callable[..., np.ndarray],
        *,
        at: Callable[..., None] | None,
        reads: bool,
    ) -> tuple[np.ndarray | None, int]:
        """Update elements atomically, lane after lane: `new = function(old, *operands)`.

        Args:
            at: `ufunc.at` of the function, for when nobody reads the old values; None: they are read.
            reads: whether the new value depends on the old one.

        Returns:
            The old values in the shape of the broadcast lanes (0 where masked out; None with `at`), and the count.
        """
        rows = access.rows(offsets.ndim)
        masks = () if mask is None else (mask,)
        shape = np.broadcast_shapes(*(array.shape for array in (offsets, rows, *operands, *masks)))
        chosen = np.ones(shape, np.bool_) if mask is None else np.broadcast_to(mask, shape)
        lanes = np.broadcast_to(offsets, shape)[chosen]
        values = [np.broadcast_to(operand, shape)[chosen] for operand in operands]
        programs = np.broadcast_to(rows, shape)[chosen]
        old = None if at is not None else np.zeros(shape, operands[0].dtype)
        if lanes.size == 0:
            return old, 0
        self._check_bounds(access, lanes, None, programs)
        self._check_marks(access, self._writer, lanes, None, "stores", programs)
        self._check_marks(access, self._reader, lanes, None, "loads", programs)
        if self.defined is not None and reads:
            self._check_defined(access, lanes, None, programs)
        self._updater = self._mark(self._updater, access, lanes, None, programs)
        data = self._view(operands[0].dtype)
        if at is not None:
            at(data, lanes, values[0])
            return None, int(lanes.size)
        seen = np.empty(lanes.size, data.dtype)
        for turn in _turns(lanes):
            seen[turn] = data[lanes[turn]]
            data[lanes[turn]] = function(seen[turn], *(value[turn] for value in values))
        assert old is not None
        old[chosen] = seen
        return old, int(lanes.size)

    def _view(self, dtype: np.dtype[Any]) -> np.ndarray:
        return self.data if self.data.dtype == dtype else self.data.view(dtype)

    def _lanes(
        self, access: Access, offsets: np.ndarray, value: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets, values and program ids of the lanes that store, broadcast against each other."""
        programs = access.rows(offsets.ndim)
        masks = () if mask is None else (mask,)
        shape = np.broadcast_shapes(*(array.shape for array in (offsets, value, programs, *masks)))
        offsets, value = np.broadcast_to(offsets, shape), np.broadcast_to(value, shape)
        if mask is None or mask.all():
            return offsets, value, programs
        chosen = np.broadcast_to(mask, shape)
        return offsets[chosen], value[chosen], np.broadcast_to(programs, shape)[chosen]

    def _check_bounds(
        self, access: Access, offsets: np.ndarray, mask: np.ndarray | None, programs: np.ndarray | None = None
    ) -> None:
        if offsets.size == 0 or (offsets.min() >= 0 and offsets.max() < self.data.size):
            return
        outside = (offsets < 0) | (offsets >= self.data.size)
        if mask is not None:
            outside = outside & mask
        if not outside.any():
            return
        where = int(np.argmax(outside))
        offset = int(np.broadcast_to(offsets, outside.shape).flat[where])
        who = _program_at(access, programs, outside, where)
        raise Refused(
            "out_of_bounds",
            f"Kernel {access.kernel}: {access.operation} of {who} at element {offset} of {self.name}, which has "
            f"{self.data.size} elements (shape {list(self.shape)}). Mask the access "
            "(plgpu.load and plgpu.store take mask=), or choose a block that divides the size.",
        )

    def _check_defined(
        self, access: Access, offsets: np.ndarray, mask: np.ndarray | None, programs: np.ndarray | None = None
    ) -> None:
        assert self.defined is not None
        missing = ~self.defined.take(offsets, mode="clip")
        for record in (self._writer, self._updater):
            if record is not None:
                missing &= record.take(offsets, mode="clip") == NOBODY
        if mask is not None:
            missing = missing & mask
        if not missing.any():
            return
        where = int(np.argmax(missing))
        offset = int(np.broadcast_to(offsets, missing.shape).flat[where])
        raise Refused(
            "unwritten",
            f"Kernel {access.kernel}: {access.operation} of {_program_at(access, programs, missing, where)} reads "
            f"element {offset} of {self.name}, which nothing has written. Store it first, or start from zeros made "
            "inside kernel() and passed with input_output_aliases.",
        )

    def _mark(
        self,
        record: np.ndarray | None,
        access: Access,
        offsets: np.ndarray,
        mask: np.ndarray | None,
        programs: np.ndarray | None = None,
    ) -> np.ndarray:
        """Record that the programs touch the elements; an element that two have touched is marked SEVERAL."""
        if record is None:
            record = np.full(self.data.size, NOBODY, np.int32)
        if programs is None:
            rows = access.rows(offsets.ndim)
            shape = np.broadcast_shapes(offsets.shape, rows.shape, () if mask is None else mask.shape)
            chosen = ... if mask is None else np.broadcast_to(mask, shape)
            offsets = np.broadcast_to(offsets, shape)[chosen]
            programs = np.broadcast_to(rows, shape)[chosen]
        before = record.take(offsets)
        marks = np.where((before == NOBODY) | (before == programs), programs, SEVERAL)
        record[offsets] = marks
        shared = record.take(offsets) != marks  # two programs marked one element just now
        record[offsets[shared]] = SEVERAL
        return record

    def _check_marks(
        self,
        access: Access,
        record: np.ndarray | None,
        offsets: np.ndarray,
        mask: np.ndarray | None,
        verb: str,
        programs: np.ndarray | None = None,
    ) -> None:
        if record is None:
            return
        marks = record.take(offsets, mode="clip")
        rows = access.rows(offsets.ndim) if programs is None else programs
        conflict = (marks != NOBODY) & (marks != rows)
        if mask is not None:
            conflict = conflict & mask
        if conflict.any():
            self._refuse_where(conflict, access, offsets, marks, rows, verb)

    def _refuse_where(
        self,
        conflict: np.ndarray,
        access: Access,
        offsets: np.ndarray,
        marks: np.ndarray,
        programs: np.ndarray,
        verb: str,
    ) -> None:
        if not conflict.any():
            return
        where = int(np.argmax(conflict))
        mark = int(np.broadcast_to(marks, conflict.shape).flat[where])
        other = "another program" if mark == SEVERAL else access.program(mark)
        offset = int(np.broadcast_to(offsets, conflict.shape).flat[where])
        raise Refused(
            "race",
            f"Kernel {access.kernel}: {access.operation} of {_program_at(access, programs, conflict, where)} touches "
            f"element {offset} of {self.name}, which {other} of the same grid {verb}. Let each element be written by "
            "one program, add with plgpu.atomic_add, or split the work into two pallas_calls.",
        )


def _program_at(access: Access, programs: np.ndarray | None, lanes: np.ndarray, where: int) -> str:
    """The program of the lane at the flat index `where` of the array `lanes`."""
    rows = access.rows(lanes.ndim) if programs is None else programs
    if lanes.shape[:1] == (1,) and programs is None:
        rows = rows[:1]  # a lane that stands for all programs
    return access.program(int(np.broadcast_to(rows, lanes.shape).flat[where]))


def _turns(offsets: np.ndarray) -> list[np.ndarray]:
    """Split lanes into groups without equal offsets, the first lane of each offset first: one lane, one turn."""
    order = np.argsort(offsets, kind="stable")
    sorted_offsets = offsets[order]
    starts = np.flatnonzero(np.r_[True, sorted_offsets[1:] != sorted_offsets[:-1]])
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    by_rank = np.argsort(rank, kind="stable")
    return np.split(order[by_rank], np.flatnonzero(np.diff(rank[by_rank])) + 1)
