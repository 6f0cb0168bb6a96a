"""What the GPU says of itself around a measurement, by NVML. It is read and recorded; nothing on it is ever set."""

from __future__ import annotations

from typing import Any


def read(index: int = 0) -> dict[str, Any] | None:
    """Clocks (MHz), temperature (C), power (W) and throttle reasons (NVML's bits) now; None where NVML is not there."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return {
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 1),
            "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        }
    except (pynvml.NVMLError, AttributeError):  # an older driver does not know all of them
        return None
    finally:
        pynvml.nvmlShutdown()
