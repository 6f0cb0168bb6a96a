"""What strangers wrote, made into the values that we expect: any column and any key of theirs may hold anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, given as one or as its text; empty for anything else."""
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """A whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """A text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def truth(value: Any) -> bool:
    """Whether it says yes. The string "false" of a correct.json is stored as that text, and is no truth."""
    return value in (1, True) or (isinstance(value, str) and value.strip().lower() in ("1", "true"))


def moment(value: Any) -> datetime | None:
    """Seconds since 1970 as a moment."""
    seconds = number(value)
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def samples(value: Any) -> list[float]:
    """The finite numbers of a list."""
    found = map(number, value) if isinstance(value, list) else ()
    return [one for one in found if one is not None]


def measured(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Of a file that says it is an evaluation of ours, the parts that reports show, each in its form."""
    found: dict[str, Any] = {
        "target": text(evaluation.get("target")),
        "stage": text(evaluation.get("stage")),
        "jail": text(evaluation.get("jail")),
        "duration_s": number(evaluation.get("duration_s")),
        "gates": [],
        "filters": {},
        "sizes": {},
        "compiled": {},
        "environment": mapping(evaluation.get("environment")),
    }
    gates = evaluation.get("gates")
    for gate in gates if isinstance(gates, list | tuple) else ():
        gate = mapping(gate)
        found["gates"].append(
            {
                "name": text(gate.get("name")) or "?",
                "passed": truth(gate.get("passed")),
                "reason": text(gate.get("reason")),
                "message": text(gate.get("message")) or "",
                "seconds": number(gate.get("seconds")),
            }
        )
    for name, verdict in mapping(evaluation.get("filters")).items():
        verdict = mapping(verdict)
        found["filters"][name] = {
            "passed": truth(verdict.get("passed")),
            "value": _float(verdict.get("value")),
            "threshold": _float(verdict.get("threshold")),
            "message": text(verdict.get("message")) or "",
        }
    for name, size in mapping(evaluation.get("sizes")).items():
        size = mapping(size)
        numbers = ("bound", "median_us", "xla_us", "floor_us", "roofline_percent")
        found["sizes"][name] = {
            "shape": _shapes(size.get("shape")),
            "correct": truth(size.get("correct")),
            "normwise_error": _float(size.get("normwise_error")),
            **{key: number(size.get(key)) for key in numbers},
        }
    for sm, made in mapping(evaluation.get("compiled")).items():
        made = mapping(made)
        figures = {key: whole(made.get(key)) for key in ("registers", "spill_bytes", "shared_bytes", "ptx_bytes")}
        figures |= {"occupancy": number(made.get("occupancy"))}  # type: ignore[dict-item]
        if None not in (figures["registers"], figures["spill_bytes"], figures["shared_bytes"], figures["occupancy"]):
            found["compiled"][sm] = {"sm": sm, **figures, "seconds": number(made.get("seconds"))}
    return found


def _float(value: Any) -> float | None:
    """Like `number`, but what a wrong output gives may be infinite or not a number."""
    return value if isinstance(value, float) else number(value)


def _shapes(value: Any) -> list[list[int]] | None:
    if not isinstance(value, list) or not all(isinstance(shape, list) for shape in value):
        return None
    return [[length for length in shape if isinstance(length, int)] for shape in value]
