"""What a jailed child tries when a level is probed: each attempt must be refused."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from collections.abc import Callable

from pallas_evo.jail.frames import Channel


def attempts() -> dict[str, Callable[[], object]]:
    """What -> how. An attempt that raises OSError was refused."""
    return {
        "start a process": lambda: _fork(),
        "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "open a local socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        "list the root folder's files": lambda: os.listdir("/etc"),
        "read the first process's environment": lambda: _other_environment(),
        "write outside its folder": lambda: _write_outside(),
        "make shared memory": lambda: _shared_memory(),
    }


def main(channel: Channel) -> None:
    """Answer with the list of what was not refused."""
    got_through = []
    for what, attempt in attempts().items():
        try:
            attempt()
        except OSError:
            continue
        got_through.append(what)
    channel.send(json.dumps(got_through).encode())


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _write_outside() -> None:
    outside = os.path.join(os.path.dirname(os.getcwd()), f"pallas-evo-probe-{os.urandom(8).hex()}")
    os.close(os.open(outside, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(outside)


def _other_environment() -> None:
    with open("/proc/1/environ", "rb") as file:
        file.read(1)


def _shared_memory() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.shmget(0, 4096, 0o1600) < 0:
        raise OSError(ctypes.get_errno(), "shmget")
