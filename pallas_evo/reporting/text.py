"""Text and numbers as they may be shown: hostile text made harmless, floats in few digits, values as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

# Control characters but newline and tab (a terminal obeys them), marks that turn the direction of text and characters
# without width (they hide what a line of code does), and halves of characters, which cannot be printed at all.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

NOTHING = "-"
"""What stands where nothing was measured."""


def clean(text: object) -> str:
    """The text without anything that a terminal or a reader's eye would obey."""
    return _UNSAFE.sub("\ufffd", str(text).replace("\r\n", "\n"))


def one_line(text: object, width: int = 100) -> str:
    """The text cleaned, on one line, cut to a width."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def number(value: float | None, digits: int = 4) -> str:
    """A float in so many significant digits; a dash for None."""
    if value is None:
        return NOTHING
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def fixed(value: float | None, decimals: int = 2, unit: str = "") -> str:
    """A float with so many decimals and a unit; a dash for None."""
    return NOTHING if value is None else f"{value:.{decimals}f}{unit}"


def day(moment: datetime | None) -> str:
    """A moment to the minute."""
    return NOTHING if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def filters_passed(filters: Mapping[str, bool]) -> str:
    """`5/5`, or the names of those that refused."""
    failed = [name for name, passed in filters.items() if not passed]
    if not filters:
        return NOTHING
    return f"{len(filters)}/{len(filters)}" if not failed else "refused by " + ", ".join(failed)


def jsonable(value: Any) -> Any:
    """The value as strict JSON: views as objects, moments as ISO text, floats that JSON lacks as their name."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    return [jsonable(item) for item in value]


def restored(value: Any) -> Any:
    """Undo how the archive and the result files write NaN and infinity."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: restored(item) for key, item in value.items()}
    return [restored(item) for item in value] if isinstance(value, list) else value
