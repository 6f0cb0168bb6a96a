"""`pallas_evo doctor`: what this machine can do."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Any

import typer

PACKAGES = ("pallas-evo", "jax", "jaxlib", "numpy", "triton", "shinka-evolve", "sqlalchemy", "landlock", "pyseccomp")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout in place of the lines.")] = False,
) -> None:
    """Say what this machine can do: GPU, jail, versions, timers.

    Example: pallas_evo doctor
    """
    found = examine()
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    versions = ", ".join(f"{name} {is_at}" for name, is_at in found["versions"].items() if is_at)
    lines = [
        ("machine", f"{found['machine']}, {found['cores']} cores, {found['memory_gb']} GB, Linux {found['kernel']}"),
        ("versions", f"Python {found['python']}, {versions}"),
        ("jail", found["jail"]["level"] + ("" if found["jail"]["level"] != "none" else f": {found['jail']['why']}")),
        ("gpu", f"present, driver {found['gpu']['driver']}" if found["gpu"]["present"] else "none"),
        ("timers", ", ".join(found["timers"]) or "none: candidates are judged correct or not, and stay untimed"),
        ("offline", "Triton and ptxas for sm_80, sm_90, ..." if found["ptx"] else "none: install the `ptx` extra"),
    ]
    for name, said in lines:
        sys.stdout.write(f"{name:>9}  {said}\n")


def examine() -> dict[str, Any]:
    """What `doctor --json` prints."""
    from pallas_evo.jail import LEVELS, level, probe
    from pallas_evo.running import driver_version, gpu_present

    probes = {name: probe(name) for name in LEVELS if name != "none"}
    reached = level()
    return {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "jail": {
            "level": reached,
            "why": "; ".join(f"{name}: {one.why}" for name, one in probes.items() if not one.works),
            "levels": {name: one.works for name, one in probes.items()},
        },
        "gpu": {"present": gpu_present(), "driver": driver_version()},
        "timers": ["cupti", "wall"] if gpu_present() else [],
        "ptx": find_spec("triton") is not None,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
