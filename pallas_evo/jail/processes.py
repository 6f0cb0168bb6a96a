"""Looking at other processes through /proc: what a child has become, and what it left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable


def below(pid: int) -> list[int]:
    """A process's children, and theirs, and so on; none where /proc does not tell."""
    found: list[int] = []
    left = [pid]
    while left and len(found) < 1000:
        current = left.pop()
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{current}/task/{current}/children") as file:
            children = [int(child) for child in file.read().split()]
            found += children
            left += children
    return found


def threads_of(pids: Iterable[int]) -> int:
    """Threads of these processes, together."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as file:
            total += next((int(line.split()[1]) for line in file if line.startswith("Threads:")), 0)
    return total


class Handles:
    """Processes held by descriptors, which can't come to mean another process, as numbers can."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def hold(self, pids: Iterable[int]) -> None:
        """Hold these, where the kernel can (5.3 and later)."""
        for pid in pids:
            with contextlib.suppress(OSError, AttributeError):
                self._fds.append(os.pidfd_open(pid))

    def kill(self) -> None:
        """SIGKILL to each that is still there."""
        for fd in self._fds:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def wait(self, deadline_s: float) -> None:
        """Until all have ended, and let go of them."""
        end = time.monotonic() + deadline_s
        while self._fds:
            poller = select.poll()
            poller.register(self._fds[-1], select.POLLIN)
            poller.poll(max(0.0, end - time.monotonic()) * 1000)
            os.close(self._fds.pop())


def marked(token: str) -> list[int]:
    """Processes whose environment, at their start, held this worker's token."""
    needle = f"PALLAS_EVO_WORKER={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if needle in file.read(1 << 16):
                    found.append(int(name))
    return found


def kill_marked(token: str) -> None:
    """Best effort for a child that could start processes in other sessions: what bears its token is killed."""
    for _ in range(20):
        found = [pid for pid in marked(token) if pid != os.getpid()]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
