"""Strangers' text and numbers as a page may show them: nothing in them acts, and nothing in them hides.

Escaping is the template's; here goes what escaping leaves alone. A character that has no look of its own, or that
changes how its neighbours look, is written as its code point: ⟨U+202E⟩.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

from pallas_evo.reporting.text import jsonable

NOTHING = "\N{EN DASH}"
"""What stands where nothing was measured."""

# Control characters but newline and tab; line and paragraph separators; marks that turn the direction of text; what has
# no width (joiners, fillers, variation selectors, tags); halves of characters; what is no character.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_MOST_MARKS = 3
"""Marks that may stand on one character; a pile of them covers the lines around it."""


def visible(text: object) -> str:
    """The text with every hidden character written as its code point, and piles of combining marks cut down."""
    cleaned = _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text).replace("\r\n", "\n"))
    return cleaned if cleaned.isascii() else _without_piles(cleaned)


def _without_piles(text: str) -> str:
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def brief(text: object, width: int = 60) -> str:
    """The text on one line, cut to a width in characters."""
    line = " ".join(visible(str(text)[: 8 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def cut(text: str, *, most: int, widest: int) -> str:
    """Code of at most so many characters and lines of at most so many; what is left out is counted in its place."""
    left_out = len(text) - most
    lines = visible(text[:most]).split("\n")
    shown = "\n".join(
        line if len(line) <= widest else f"{line[:widest]} … {len(line) - widest:,} characters more" for line in lines
    )
    return shown if left_out <= 0 else f"{shown}\n… {left_out:,} characters more"


def finite(value: object) -> float | None:
    """The value where it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def figure(value: object, digits: int = 3) -> str:
    """A number in so many significant digits, without an exponent between 0.001 and a million."""
    number = finite(value)
    if number is None:
        return NOTHING if value is None else brief(value, 12)
    if isinstance(value, int):
        return f"{value:,}"
    if number and not 1e-3 <= abs(number) < 1e6:
        digit, power = f"{number:.{digits - 2}e}".split("e")
        return f"{digit}e{int(power)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number)))) if number else 0
    return f"{number:,.{decimals}f}"


def fixed(value: object, decimals: int = 2, unit: str = "") -> str:
    """A number with so many decimals and its unit."""
    number = finite(value)
    if number is None:
        return NOTHING if value is None else brief(value, 12)
    return f"{number:,.{decimals}f}{unit}" if abs(number) < 1e9 else f"{number:.2e}{unit}"


def embedded(content: Any) -> str:
    """The content as JSON that may stand inside a script element: no character in it can end one."""
    text = json.dumps(jsonable(content), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
