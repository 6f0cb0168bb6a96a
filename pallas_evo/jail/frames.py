"""Length-prefixed frames over a pipe: the only way in or out of a child. Nothing here is ever unpickled.

A frame is eight bytes, the payload's length as a big-endian integer, then the payload. The parent's side of the pipe
is in `worker.py`, which trusts no length; this is the child's side.
"""

from __future__ import annotations

import os
import struct

HEADER = struct.Struct(">Q")


class Channel:
    """The child's end: frames from the parent come in on one descriptor and answers go out on the other."""

    def __init__(self, inward: int, outward: int) -> None:
        self._inward = inward
        self._outward = outward

    def receive(self) -> bytes | None:
        """The next frame, or None when the parent has closed its end."""
        header = self._read(HEADER.size)
        if header is None:
            return None
        return self._read(HEADER.unpack(header)[0])

    def send(self, payload: bytes) -> None:
        """Write one whole frame, waiting for the parent to read it."""
        view = memoryview(HEADER.pack(len(payload)) + payload)
        while view:
            view = view[os.write(self._outward, view) :]

    def _read(self, size: int) -> bytes | None:
        taken = bytearray()
        while len(taken) < size:
            piece = os.read(self._inward, min(size - len(taken), 1 << 20))
            if not piece:
                return None
            taken += piece
        return bytes(taken)
