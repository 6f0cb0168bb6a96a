"""The tasks, the devices and the reasons as a report takes them: reporting imports none of the three."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pallas_evo import __version__
from pallas_evo.devices import find_device
from pallas_evo.errors import UsageError
from pallas_evo.reasons import REASONS
from pallas_evo.reporting.report import Facts, Peaks
from pallas_evo.tasks import get_task, load_tasks
from pallas_evo.tasks.floors import dense_flops
from pallas_evo.types import Floor


def facts() -> Facts:
    """What a page and the plots need to know beside the archives."""
    return Facts(
        tasks=tuple(task.id for task in load_tasks()),
        peaks=_peaks,
        work=_work,
        reasons={code: meaning for code, (_, meaning) in REASONS.items()},
        version=__version__,
    )


def _peaks(kind: str) -> Peaks | None:
    device = find_device(kind)
    if device is None:
        return None
    return Peaks(name=device.name, bandwidth_gb_s=device.bandwidth_gb_s, tf32_tflop_s=device.tf32_tflop_s)


def _work(task_id: str, shapes: Sequence[Sequence[int]]) -> Floor | None:
    """What the task must do at these input shapes, whatever is drawn; None where they are no shapes of its inputs."""
    try:
        task = get_task(task_id)
        dims: dict[str, int] = {}
        bytes_read = 0
        for spec, shape in zip(task.inputs, shapes, strict=True):
            bytes_read += np.dtype(spec.dtype).itemsize * math.prod(shape)
            for name, size in zip(spec.shape, shape, strict=True):
                if (dims.setdefault(name, size) if isinstance(name, str) else name) != size:
                    return None
        return Floor(bytes_read=bytes_read, flops=dense_flops(task, dims))
    except (UsageError, KeyError, TypeError, ValueError):  # a stranger's result file may hold anything
        return None
