"""The numbers of a kernel that can be tuned: constants at the top of its EVOLVE block, and what each may become."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CONSTANT = re.compile(r"^([A-Z][A-Z0-9_]*)( *= *)(\d+)(?=[ \t]*(?:#.*)?$)", re.MULTILINE)

_POWERS = tuple(1 << power for power in range(13))

_RANGES: tuple[tuple[str, int, int], ...] = (  # name's beginning, least and largest value, both powers of two
    ("BLOCK_", 1, 2048),
    ("NUM_WARPS", 1, 16),
    ("MAX_WARPS", 1, 32),
    ("ELEMENTS_PER_WARP", 32, 2048),
    ("WIDE_", 16, 256),
    ("PROGRAMS_EACH", 1, 16),
    ("ROWS_AT_ONCE", 1, 16),
    ("GROUP", 1, 64),
    ("UNROLL", 1, 16),
)
STAGES = (1, 2, 3, 4, 5)


def knobs_of(block: str) -> dict[str, int]:
    """The tunable constants of a block. A number that belongs to the formula has a name that is not in the table."""
    found = {match.group(1): int(match.group(3)) for match in _CONSTANT.finditer(block)}
    return {name: value for name, value in found.items() if values_of(name, value, has_dot(block))}


def values_of(name: str, value: int, dot: bool) -> tuple[int, ...]:
    """What the constant may become, its own value left out; nothing where it must stay.

    Triton's blocks are powers of two; a block that a dot works on has at least 16 elements along each axis.
    """
    if name.startswith("NUM_STAGES"):
        return tuple(stages for stages in STAGES if stages != value)
    for beginning, least, largest in _RANGES:
        if name.startswith(beginning):
            least = max(least, 16) if dot and beginning == "BLOCK_" else least
            near = (max(least, value // 8), min(largest, value * 8)) if beginning == "BLOCK_" else (least, largest)
            return tuple(power for power in _POWERS if near[0] <= power <= near[1] and power != value)
    return ()


def with_knobs(block: str, values: Mapping[str, int]) -> str:
    """The block with these constants changed."""

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"{name}{match.group(2)}{values[name]}" if name in values else match.group(0)

    return _CONSTANT.sub(put, block)


def has_dot(block: str) -> bool:
    """Whether the kernel multiplies matrices."""
    return "jnp.dot(" in block or "pl.dot(" in block
