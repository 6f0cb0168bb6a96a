"""What a bench keeps of one verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pallas_evo.devices import limited_by


def row_of(verdict: Mapping[str, Any], size: str) -> dict[str, Any]:
    """A row of the suite from a verdict as `evaluate --json` prints it; what was not measured is None.

    Args:
        size: the timed size whose times the row shows.
    """
    at_size = verdict["sizes"].get(size) or {}
    timing = verdict["environment"].get("timing", {})
    here = timing.get(size, {})
    return {
        "correct": verdict["correct"],
        "reason": verdict["reason"],
        "message": verdict["message"],
        "score": verdict["combined_score"],
        "timer": verdict["timer"],
        "size": size,
        "median_us": at_size.get("median_us"),
        "xla_us": at_size.get("xla_us"),
        "floor_us": at_size.get("floor_us"),
        "roofline_percent": at_size.get("roofline_percent"),
        "binds": bound_by(at_size, here),
        "kernels": (here.get("kernels") or {}).get("candidate"),
        "wall_us": _median(here.get("wall_candidate_us")),
        "wall_xla_us": _median(here.get("wall_baseline_us")),
        "held_s": held_s(verdict),
        "gates_s": {gate["name"]: gate["seconds"] for gate in verdict["gates"]},
        "duration_s": verdict["duration_s"],
        "compiled": verdict["compiled"],
        "ran_on": verdict["ran_on"],
        "candidate_sha256": verdict["candidate_sha256"],
        "samples_us": at_size.get("samples_us"),
        "timing": here,
    }


def held_s(verdict: Mapping[str, Any]) -> float | None:
    """Seconds for which the GPU was this candidate's alone, over all timed sizes; None where it was not timed."""
    held = [one["held_s"] for one in verdict["environment"].get("timing", {}).values() if one.get("held_s") is not None]
    return sum(held) if held else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of all values does not exceed; None where there is none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def _median(samples: Sequence[float] | None) -> float | None:
    return float(statistics.median(samples)) if samples else None


def bound_by(at_size: Mapping[str, Any], timing: Mapping[str, Any]) -> str | None:
    """What binds a timed program: `memory`, `compute` or `launch`; None where no floor is known."""
    if not timing.get("binds") or not at_size.get("median_us") or at_size.get("floor_us") is None:
        return None
    return limited_by(
        timing["binds"],
        floor_us=at_size["floor_us"],
        median_us=at_size["median_us"],
        kernels=(timing.get("kernels") or {}).get("candidate", 1),
    )
