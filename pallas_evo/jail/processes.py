"""Looking at other processes through /proc: what a child has become, and what it left."""

from __future__ import annotations

import contextlib
import os
import signal


def threads_below(pid: int) -> int:
    """Threads of a process and of the processes below it; 0 where /proc does not tell."""
    total = 0
    left = [pid]
    while left and total < 1 << 20:
        current = left.pop()
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{current}/status") as file:
                total += next((int(line.split()[1]) for line in file if line.startswith("Threads:")), 0)
            with open(f"/proc/{current}/task/{current}/children") as file:
                left += [int(child) for child in file.read().split()]
    return total


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
