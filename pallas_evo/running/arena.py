"""Memory that we and a GPU's process both see, so that large arrays are copied once and never pass through a pipe.

An anonymous file, inherited by the child as a descriptor; it grows to what is put in and dies with its last holder.
What is read out of it is copied at once: the other side could change it later.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_ALIGN = 4096
_DTYPES = frozenset({"float32", "int32", "float64", "int64", "bool"})


class Arena:
    """Arrays in shared memory, laid one after another from the start.

    Args:
        descriptor: of an arena that another process made; a new one without it.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("pallas_evo") if descriptor is None else descriptor
        self._map: mmap.mmap | None = None

    def write(self, arrays: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """Put arrays in, over what was there; returns what `read` needs to find them."""
        starts, end = [], 0
        for array in arrays:
            starts.append(end)
            end += -(-array.nbytes // _ALIGN) * _ALIGN
        view = self._view(end)
        for start, array in zip(starts, arrays, strict=True):
            if array.nbytes:
                np.ndarray(array.shape, array.dtype, view, start)[...] = array
        return [
            {"at": start, "shape": list(array.shape), "dtype": array.dtype.name}
            for start, array in zip(starts, arrays, strict=True)
        ]

    def read(self, entries: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
        """Copies of the arrays that `write` described.

        Raises:
            ValueError: an entry that does not fit what is there.
        """
        arrays = []
        for entry in entries:
            shape, at, name = tuple(int(n) for n in entry["shape"]), int(entry["at"]), entry["dtype"]
            if name not in _DTYPES or at < 0 or any(n < 0 for n in shape):
                raise ValueError(f"expected an array, came {name}{shape} at {at}")
            count = int(np.prod(shape, dtype=object))
            end = at + count * np.dtype(name).itemsize
            if end > os.fstat(self.descriptor).st_size:
                raise ValueError(f"{name}{shape} at {at} ends past the {os.fstat(self.descriptor).st_size} bytes there")
            arrays.append(np.ndarray(shape, name, self._view(end), at).copy())
        return arrays

    def _view(self, size: int) -> mmap.mmap:
        """The memory, at least `size` bytes of it."""
        size = max(size, 1)  # nothing cannot be mapped
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, size)
        if self._map is None or len(self._map) < size:
            # The old mapping goes when the last array on it does.
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return self._map

    def close(self) -> None:
        """Give the memory back; the other side keeps what it has mapped."""
        self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
