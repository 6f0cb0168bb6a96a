"""What XLA found when it tuned a baseline's matrix products on this GPU, kept so that it is tuned once, and alone.

XLA tries variants of a matrix product out while it compiles: seconds of CPU time for each candidate, and a choice that
depends on what else the GPU does. So the first compilation of a task's baseline at a size holds the GPU alone, XLA
writes what it chose into a folder of ours, and later processes read it there: all candidates meet the same baseline.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pallas_evo.running.gpus import driver_version, gpu_uuid
from pallas_evo.types import Workload

FLAG = "--xla_gpu_per_fusion_autotune_cache_dir"


@cache
def folder() -> Path:
    """Where choices are kept, for this user, GPU, driver and XLA; only its owner may look in or write."""
    root = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if os.environ.get("HOME") else None)
    try:
        if root is None:
            raise OSError("no home")
        made = Path(root) / "pallas_evo" / "tuning" / _identity()
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
        if made.stat().st_uid != os.getuid() or stat.S_IMODE(made.stat().st_mode) & 0o022:
            raise OSError("another's")
        return made
    except OSError:  # no home, or none that can be written: then each process of ours tunes for itself
        return Path(tempfile.mkdtemp(prefix="pallas_evo-tuning-"))


def tuned(workload: Workload) -> bool:
    """Whether the baseline at these shapes has been tuned."""
    return _mark(workload).exists()


def note_tuned(workload: Workload) -> None:
    """The baseline at these shapes has been tuned, with the GPU held alone."""
    _mark(workload).touch()


def _mark(workload: Workload) -> Path:
    shapes = json.dumps([workload.task_id, [[list(spec.shape), spec.dtype] for spec in workload.inputs]])
    return folder() / f"{hashlib.sha256(shapes.encode()).hexdigest()[:16]}.tuned"


def _identity() -> str:
    return f"{version('jaxlib')}-{driver_version()}-{gpu_uuid()}"
