"""Peaks of the GPUs that scores are made on, from their makers' datasheets, and the physical floor they give.

Dense TF32 tensor peaks (half of what a datasheet quotes "with sparsity") and memory bandwidths:

A100 80GB PCIe, SXM   NVIDIA A100 Tensor Core GPU datasheet (2021): 1,935 and 2,039 GB/s, 156 TFLOP/s
H100 SXM, PCIe        NVIDIA H100 Tensor Core GPU datasheet: 3,350 and 2,000 GB/s, 494.7 and 378 TFLOP/s
H200                  NVIDIA H200 Tensor Core GPU datasheet: 4,800 GB/s, 494.7 TFLOP/s
L4                    NVIDIA L4 datasheet: 300 GB/s, 60 TFLOP/s
RTX 4090              NVIDIA Ada architecture whitepaper: 1,008 GB/s, 82.6 TFLOP/s
B200                  NVIDIA HGX B200 datasheet, per GPU: 8,000 GB/s, 1,125 TFLOP/s

Compute capabilities (`sm`): NVIDIA CUDA programming guide, and developer.nvidia.com/cuda-gpus.
"""

from __future__ import annotations

from dataclasses import dataclass

from pallas_evo.types import Floor


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU model. `bandwidth_gb_s` is the memory's, 1e9 bytes; `tf32_tflop_s` the dense tensor peak."""

    name: str
    sm: str  # what Triton and ptxas compile for it
    bandwidth_gb_s: float
    tf32_tflop_s: float


_TABLE = (  # the first whose words are all in the name that JAX gives
    (("A100", "PCIE"), Device(name="A100 PCIe", sm="sm_80", bandwidth_gb_s=1935, tf32_tflop_s=156)),
    (("A100",), Device(name="A100 SXM", sm="sm_80", bandwidth_gb_s=2039, tf32_tflop_s=156)),
    (("H200",), Device(name="H200", sm="sm_90", bandwidth_gb_s=4800, tf32_tflop_s=494.7)),
    (("H100", "PCIE"), Device(name="H100 PCIe", sm="sm_90", bandwidth_gb_s=2000, tf32_tflop_s=378)),
    (("H100",), Device(name="H100 SXM", sm="sm_90", bandwidth_gb_s=3350, tf32_tflop_s=494.7)),
    (("B200",), Device(name="B200", sm="sm_100", bandwidth_gb_s=8000, tf32_tflop_s=1125)),
    (("L4",), Device(name="L4", sm="sm_89", bandwidth_gb_s=300, tf32_tflop_s=60)),
    (("4090",), Device(name="RTX 4090", sm="sm_89", bandwidth_gb_s=1008, tf32_tflop_s=82.6)),
)


def find_device(kind: str) -> Device | None:
    """The entry for a device kind such as `NVIDIA A100 80GB PCIe`, or None where it is not in the table."""
    words = kind.upper().replace("-", " ").split()
    for needed, device in _TABLE:
        if all(word in words for word in needed):
            return device
    return None


def floor_us(floor: Floor, device: Device) -> float:
    """The least time, in us, in which the device can read those bytes and do those FLOPs."""
    return max(floor.bytes_read / (device.bandwidth_gb_s * 1e3), floor.flops / (device.tf32_tflop_s * 1e6))


def binds(floor: Floor, device: Device) -> str:
    """Which of the two makes the floor: `memory` or `compute`."""
    memory = floor.bytes_read / (device.bandwidth_gb_s * 1e3)
    return "memory" if memory >= floor.flops / (device.tf32_tflop_s * 1e6) else "compute"


LAUNCH_US = 2.0
"""What one kernel costs before and after its work: about what the shortest seed takes on an H200 (pwm_scan, 1.7 us)."""


def limited_by(binds: str, *, floor_us: float, median_us: float, kernels: int) -> str:
    """What keeps a measured program from being faster: `launch`, or what makes its floor.

    `launch`: starting and draining its kernels, LAUNCH_US each, is more than the floor and at least half of the time
    that was measured, so that neither memory nor arithmetic can be what it waits for.

    Args:
        binds: `memory` or `compute`, as `binds` gives it.
        floor_us: the physical floor.
        median_us: the measured time.
        kernels: launches of one call.
    """
    launch_us = LAUNCH_US * max(kernels, 1)
    return "launch" if launch_us > floor_us and launch_us >= median_us / 2 else binds
