"""What an NVIDIA architecture offers one block and one multiprocessor, from the CUDA programming guide's tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Limits of one compute capability. `reserved_bytes` of shared memory go to the system with each block."""

    capability: int
    shared_block_bytes: int
    shared_processor_bytes: int
    warps: int
    blocks: int
    registers: int = 65536
    reserved_bytes: int = 1024


def _make(capability: int, shared_block_kb: int, shared_processor_kb: int, warps: int, blocks: int) -> Architecture:
    return Architecture(
        capability=capability,
        shared_block_bytes=shared_block_kb << 10,
        shared_processor_bytes=shared_processor_kb << 10,
        warps=warps,
        blocks=blocks,
    )


ARCHITECTURES: dict[str, Architecture] = {
    "sm_80": _make(80, 163, 164, 64, 32),
    "sm_86": _make(86, 99, 100, 48, 16),
    "sm_89": _make(89, 99, 100, 48, 24),
    "sm_90": _make(90, 227, 228, 64, 32),
    "sm_100": _make(100, 227, 228, 64, 32),
    "sm_120": _make(120, 99, 100, 48, 24),
}


def occupancy(architecture: Architecture, registers: int, shared_bytes: int, num_warps: int) -> float:
    """Resident warps over the most that a multiprocessor can hold; 0 where not even one block fits."""
    per_warp = -(-max(registers, 1) * 32 // 256) * 256
    by_registers = architecture.registers // per_warp // num_warps
    by_shared = architecture.shared_processor_bytes // (shared_bytes + architecture.reserved_bytes)
    blocks = min(by_registers, by_shared, architecture.blocks, architecture.warps // num_warps)
    return blocks * num_warps / architecture.warps
