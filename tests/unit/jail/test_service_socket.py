"""A candidate cannot reach the service that keeps judges warm, at any level that works here, even where it knows the
path: it can neither connect nor take the socket's place."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from jailed import assert_nothing_left, levels, run

from pallas_evo.pool.location import Claim

CODE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(PATH)

def connect_below_python():
    descriptor = libc.socket(1, 1, 0)
    if descriptor < 0:
        return -1
    return libc.connect(descriptor, b"\\1\\0" + PATH.encode() + b"\\0", len(PATH) + 3)

def listen_in_its_place():
    server = socket.socket(socket.AF_UNIX)
    server.bind(PATH)

def inherited():
    for name in os.listdir("/proc/self/fd"):
        if "socket" in os.readlink("/proc/self/fd/" + name):
            return 0
    return -1

def sent_through_what_is_open():
    sent = [os.write(fd, b"\\0\\0\\0\\2{}") for fd in range(3, 64) if is_socket(fd)]
    return 0 if sent else -1

def is_socket(fd):
    try:
        return os.fstat(fd).st_mode & 0o170000 == 0o140000
    except OSError:
        return False

ATTEMPTS = {
    "connect": connect,
    "connect below Python": connect_below_python,
    "open": lambda: os.open(PATH, os.O_RDWR),
    "open its lock": lambda: os.open(PATH + ".lock", os.O_RDWR),
    "list its folder": lambda: os.listdir(os.path.dirname(PATH)),
    "take it away": lambda: os.unlink(PATH),
    "rename it": lambda: os.rename(PATH, PATH + "2"),
    "listen in its place": listen_in_its_place,
    "a file in its folder": lambda: open(os.path.dirname(PATH) + "/mine", "w"),
    "an inherited socket": inherited,
    "a socket among descriptors": sent_through_what_is_open,
}
for what, attempt in ATTEMPTS.items():
    try:
        answer = attempt()
    except OSError:
        continue
    if not (isinstance(answer, int) and answer < 0):
        print("ALLOWED:", what, repr(answer)[:80])
print("TRIED", len(ATTEMPTS))
"""


@levels
def test_the_services_socket_is_out_of_reach(level):
    with tempfile.TemporaryDirectory(prefix="pe") as folder:
        path = Path(folder) / "judge.sock"
        claim = Claim(path)
        with claim.listen() as listener:
            os.set_inheritable(listener.fileno(), True)  # as bad as it could be: the child must still not have it
            listener.settimeout(0.05)
            before = os.stat(path)
            ran = run(f"PATH = {str(path)!r}\n{CODE}", level, deadline_s=20)
            with pytest.raises(TimeoutError):
                listener.accept()
            after = os.stat(path)
            assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
            assert sorted(os.listdir(folder)) == ["judge.sock", "judge.sock.lock"]
        claim.release()
    assert [line for line in ran.output_text.splitlines() if line.startswith("ALLOWED")] == []
    assert "TRIED 11" in ran.output_text
    assert_nothing_left(ran)
