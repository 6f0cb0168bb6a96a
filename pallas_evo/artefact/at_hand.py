"""The architecture of the GPU at hand, which a candidate is compiled for beside the A100."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from pallas_evo.artefact.architectures import ARCHITECTURES

AUTO = "auto"


@cache
def architecture_at_hand() -> str | None:
    """A key of ARCHITECTURES for the first GPU that this process sees, by NVML; None where there is no such GPU."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if chosen in ("", "-1"):
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, or there is no driver: either way no GPU is at hand
        return None
    try:
        by_index = chosen.isdigit()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(chosen)) if by_index else pynvml.nvmlDeviceGetHandleByUUID(chosen)
        )
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    name = f"sm_{major}{minor}"
    return name if name in ARCHITECTURES else None


def resolve(names: Sequence[str]) -> list[str]:
    """The architectures of a configuration, each once: `auto` becomes the GPU's at hand, or nothing without one."""
    here = architecture_at_hand() if AUTO in names else None
    return list(dict.fromkeys(name for one in names if (name := here if one == AUTO else one)))
