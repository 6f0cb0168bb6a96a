"""What the GPU says of itself around a measurement, by NVML. It is read and recorded; nothing on it is ever set."""

from __future__ import annotations

from functools import cache
from typing import Any

from pallas_evo.running.gpus import gpu_uuid


def read() -> dict[str, Any] | None:
    """Clocks (MHz), temperature (C), power (W) and throttle reasons (NVML's bits) now; None where NVML is not there.

    Of the GPU that this process's children see first.
    """
    nvml, handle = _handle()
    if nvml is None:
        return None
    try:
        return {
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "power_w": round(nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 1),
            "throttle_reasons": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        }
    except (nvml.NVMLError, AttributeError):  # an older driver does not know all of them
        return None


@cache
def _handle() -> tuple[Any, Any]:
    """NVML, started once and left so: starting it takes longer than a measurement."""
    try:
        import pynvml
    except ImportError:
        return None, None
    try:
        pynvml.nvmlInit()
        uuid = gpu_uuid()
        if uuid.startswith("GPU-"):
            return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError:
        return None, None
