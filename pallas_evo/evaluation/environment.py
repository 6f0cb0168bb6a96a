"""What an evaluation depends on beside the candidate."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@cache
def environment() -> Mapping[str, Any]:
    """What an evaluation depends on beside the candidate: versions and machine."""

    def of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {
        "pallas_evo": of("pallas-evo"),
        "python": platform.python_version(),
        **{package: of(package) for package in ("jax", "jaxlib", "triton", "numpy")},
        "machine": platform.machine(),
        "kernel": platform.release(),
    }
