"""How arrays travel between us and a runner: one frame of a JSON header and raw bytes. Nothing is ever unpickled.

    frame = header length (4 bytes, big-endian) | header (JSON) | array 0 | array 1 | ...

The header's `arrays` lists shape and dtype of each, row-major.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_LENGTH = struct.Struct(">I")
_DTYPES = frozenset({"float32", "float64", "int32", "int64", "bool"})


class BadFrame(ValueError):
    """The bytes are not a frame of this form."""


def pack(header: Mapping[str, Any], arrays: Sequence[np.ndarray] = ()) -> bytes:
    """One frame."""
    described = [{"shape": list(array.shape), "dtype": array.dtype.name} for array in arrays]
    text = json.dumps({**header, "arrays": described}).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *(np.ascontiguousarray(array).tobytes() for array in arrays)])


def unpack(frame: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Header and arrays of a frame; the arrays are read-only views of it.

    Raises:
        BadFrame: it is no such frame, or is longer or shorter than its header says.
    """
    try:
        (length,) = _LENGTH.unpack_from(frame)
        header = json.loads(frame[_LENGTH.size : _LENGTH.size + length])
        described = header.pop("arrays")
        at = _LENGTH.size + length
        arrays = []
        for item in described:
            shape, name = tuple(int(n) for n in item["shape"]), item["dtype"]
            if name not in _DTYPES or any(n < 0 for n in shape):
                raise BadFrame(f"an array of {name}{shape}")
            count = int(np.prod(shape, dtype=object))
            dtype = np.dtype(name)
            if at + count * dtype.itemsize > len(frame):
                raise BadFrame("an array past the end")
            arrays.append(np.frombuffer(frame, dtype, count, at).reshape(shape))
            at += count * dtype.itemsize
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"expected a header and its arrays: {error}") from error
    if at != len(frame):
        raise BadFrame(f"{len(frame) - at} bytes after the last array")
    return header, arrays
