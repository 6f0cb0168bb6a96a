"""Which GPUs are here, which of them a process would use, and by which driver; nothing is started on any."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_UUID = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)


def visible(chosen: str | None) -> tuple[str, ...]:
    """GPUs by UUID, or by index where the driver does not tell; empty where there is none.

    Args:
        chosen: a value of CUDA_VISIBLE_DEVICES, None where it is not set.
    """
    known = _all()
    if chosen is None:
        return known
    found = []
    for word in (part.strip() for part in chosen.split(",")):
        if word.isdigit() and int(word) < len(known):
            found.append(known[int(word)])
        elif word.startswith(("GPU-", "MIG-")) and known:
            found.append(next((uuid for uuid in known if uuid.startswith(word)), word))
        else:
            break  # as CUDA does: what comes after an invalid one is not seen
    return tuple(found)


def mine() -> tuple[str, ...]:
    """Those of this process."""
    return visible(os.environ.get("CUDA_VISIBLE_DEVICES"))


def gpu_uuid() -> str:
    """The GPU that this process's children see first: its UUID, or its index where the driver does not tell."""
    seen = mine()
    if seen:
        return f"index-{seen[0]}" if seen[0].isdigit() else seen[0]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    return f"index-{chosen}" if chosen.isdigit() else chosen


def gpu_present() -> bool:
    """Whether this machine has an NVIDIA GPU's device file; starts nothing."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return hidden not in ("", "-1") and any(Path("/dev").glob("nvidia[0-9]*"))


def driver_version() -> str | None:
    """The NVIDIA kernel driver's version, or None."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    return next((word for word in words if word.replace(".", "").isdigit() and word.count(".") >= 1), None)


@cache
def _all() -> tuple[str, ...]:
    devices = sorted(Path("/dev").glob("nvidia[0-9]*"))
    if not devices:
        return ()
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
        if uuids:
            return tuple(uuid.decode() if isinstance(uuid, bytes) else uuid for uuid in uuids)
    except Exception:  # no NVML, or none that works: its own errors are of many kinds
        pass
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    matches = [_UUID.search(file.read_text()) for file in files]
    if len(matches) == len(devices) and all(matches):
        return tuple(match.group(1) for match in matches if match)
    return tuple(str(index) for index in range(len(devices)))
