"""The GPU's lease: a lock by its UUID that unrelated processes respect and that dies with its holder.

Running shares it; timing holds it alone, so that no other kernel runs beside the one that is timed. Whoever wants it
alone first closes a turnstile that all others pass, so that a stream of sharers cannot keep it waiting for ever.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pallas_evo.errors import DeviceUnavailable
from pallas_evo.running.gpus import gpu_uuid

POLL_S = 0.002


@contextmanager
def lease(
    uuid: str | None = None, *, shared: bool = False, deadline_s: float = 120.0, folder: Path | None = None
) -> Iterator[float]:
    """Hold the GPU for the block, alone or (`shared`) beside others who share it; yields the seconds waited.

    Raises:
        DeviceUnavailable: another process held it past the deadline, or the lock file cannot be used.
    """
    name = re.sub(r"[^A-Za-z0-9-]", "_", uuid or gpu_uuid())
    path = (folder or Path(tempfile.gettempdir())) / f"pallas_evo-gpu-{name}.lock"
    start = time.monotonic()
    end = start + deadline_s
    with ExitStack() as stack:
        with _locked(path.with_suffix(".turn"), fcntl.LOCK_EX, end, deadline_s):
            stack.enter_context(_locked(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, end, deadline_s))
        yield time.monotonic() - start


@contextmanager
def _locked(path: Path, how: int, end: float, deadline_s: float) -> Iterator[None]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise DeviceUnavailable(f"{path}: the GPU's lock file cannot be opened ({error.strerror}).") from error
    try:
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise DeviceUnavailable(
                        f"{path}: another process has held the GPU for over {deadline_s:g} s. Wait for it, or end it."
                    ) from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)
