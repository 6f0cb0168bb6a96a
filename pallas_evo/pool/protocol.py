"""What client, server and judges say to each other: frames of JSON, each with a length and a cap.

A frame is four bytes, the length in network order, then that much UTF-8 JSON, an object. On the socket:

    server: {kind: hello, protocol, version, build, pid, target, gpus}
    client: {op: judge, source, task, target, config_text, config_name, overrides, deadline_s, cuda_visible_devices}
         or {op: status}
    server: any number of {kind: waiting, ahead}, one every few seconds, so that silence means trouble
    server: one of {kind: judged | usage | failure | unsuitable | refused | status, ...}, and the connection ends

`judged` holds what `pallas_evo.pool.answering` makes of an evaluation; `usage` is the caller's mistake, `failure` ours;
with `unsuitable` (another target or GPU) and `refused` the client does without the service.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pallas_evo import __version__

PROTOCOL = 1
HEADER = struct.Struct("!I")
REQUEST_BYTES = 8 << 20  # a source of 1 MB, every character of it escaped
ANSWER_BYTES = 64 << 20
HEARTBEAT_S = 5.0
SILENCE_S = 30.0  # without a frame the other side is taken for dead


class ProtocolError(Exception):
    """The other side is gone, silent, or says what no side of ours says."""


def pack(message: Mapping[str, Any], most: int = ANSWER_BYTES) -> bytes:
    """One frame.

    Raises:
        ProtocolError: it is over the cap.
    """
    payload = json.dumps(message).encode()
    if len(payload) > most:
        raise ProtocolError(f"a message of {len(payload)} bytes is over the cap of {most}")
    return HEADER.pack(len(payload)) + payload


def unpack(payload: bytes) -> dict[str, Any]:
    """A frame's content.

    Raises:
        ProtocolError: it is no JSON object.
    """
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a frame that is no JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("a frame that is no JSON object")
    return message


def length(header: bytes, most: int) -> int:
    """What a header announces.

    Raises:
        ProtocolError: more than the cap.
    """
    (size,) = HEADER.unpack(header)
    if size > most:
        raise ProtocolError(f"a frame of {size} bytes, over the cap of {most}")
    return int(size)


class Reader:
    """Frames from a descriptor, each with a deadline. Bytes after a frame are kept for the next.

    Args:
        descriptor: of a pipe or a socket.
        most: a frame that announces more is not read.
    """

    def __init__(self, descriptor: int, most: int = ANSWER_BYTES) -> None:
        self._descriptor, self._most = descriptor, most
        self._taken = bytearray()
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLIN | select.POLLHUP)

    def frame(self, seconds: float | None) -> dict[str, Any] | None:
        """The next frame, or None where it is not there whole within so many seconds (None: wait for ever).

        Raises:
            ProtocolError: the other side has closed, or says what is no frame.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            if len(self._taken) >= HEADER.size:
                whole = HEADER.size + length(bytes(self._taken[: HEADER.size]), self._most)
                if len(self._taken) >= whole:
                    payload = bytes(self._taken[HEADER.size : whole])
                    del self._taken[:whole]
                    return unpack(payload)
            left = None if end is None else end - time.monotonic()
            if (left is not None and left <= 0) or not self._poller.poll(None if left is None else left * 1000):
                return None
            try:
                piece = os.read(self._descriptor, 1 << 20)
            except OSError as error:
                raise ProtocolError(f"the connection broke ({error.strerror})") from error
            if not piece:
                raise ProtocolError("the connection was closed")
            self._taken += piece


def send(connection: socket.socket, message: Mapping[str, Any], most: int = REQUEST_BYTES) -> None:
    """One frame over a socket, within its timeout.

    Raises:
        ProtocolError: it did not get through.
    """
    try:
        connection.sendall(pack(message, most))
    except OSError as error:
        raise ProtocolError(f"the connection broke ({error.strerror or error})") from error


@cache
def build() -> str:
    """What tells this code and its interpreter from another: a service that runs older code must not be asked.

    A hash of the interpreter's prefix and of the path, size and time of every source file of the package.
    """
    root = Path(__file__).resolve().parents[1]
    said = [sys.prefix, sys.version, str(root)]
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__")))
        for name in sorted(names):
            if name.endswith(".py"):
                found = os.stat(os.path.join(folder, name))
                said.append(f"{folder}/{name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.blake2b("\n".join(said).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def hello(**more: Any) -> dict[str, Any]:
    """The first frame of a server."""
    return {"kind": "hello", "protocol": PROTOCOL, "version": __version__, "build": build(), "pid": os.getpid(), **more}
