"""Small charts of characters, for a terminal: a curve over generations, bars, a histogram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Strokes:
    """What charts are drawn with. `eighths` are bars of one to eight eighths of a character."""

    point: str
    stem: str
    axis: str
    eighths: str
    passed: str
    failed: str


FINE = Strokes(point="●", stem="│", axis="┤", eighths="▏▎▍▌▋▊▉█", passed="✓", failed="✗")
PLAIN = Strokes(point="*", stem=".", axis="|", eighths="########", passed="+", failed="-")
"""For a screen that has ASCII only."""


def strokes(encoding: str) -> Strokes:
    """The finest that an encoding can say."""
    try:
        f"{FINE.point}{FINE.stem}{FINE.axis}{FINE.eighths}{FINE.passed}{FINE.failed}".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return FINE


def running_best(values: Sequence[float | None]) -> list[float | None]:
    """The best so far at each place; None until there is one."""
    best: float | None = None
    found = []
    for value in values:
        if value is not None and (best is None or value > best):
            best = value
        found.append(best)
    return found


def curve(values: Sequence[float | None], *, width: int = 60, height: int = 8, draw: Strokes = FINE) -> list[str]:
    """The best so far, left to right, as lines of text with the scale at the left; nothing without values."""
    best = running_best(values)
    known = [value for value in best if value is not None]
    if not known:
        return []
    columns = [best[len(best) * place // width] for place in range(width)] if len(best) > width else list(best)
    columns[-1] = best[-1]
    low, high = min(known), max(known)
    if low == high:
        marks = "".join(" " if value is None else draw.point for value in columns)
        return [f"{low:>9.4g} {draw.axis}{marks}"]
    levels = [None if value is None else round((value - low) / (high - low) * (height - 1)) for value in columns]
    lines = []
    for level in reversed(range(height)):
        label = f"{low + (high - low) * level / (height - 1):.4g}" if level in (0, height - 1) else ""
        marks = "".join(
            draw.point if at == level else draw.stem if at is not None and at > level else " " for at in levels
        )
        lines.append(f"{label:>9} {draw.axis}{marks}".rstrip())
    return lines


def bars(counts: Mapping[str, int], *, width: int = 40, draw: Strokes = FINE) -> list[str]:
    """One bar a name, the longest first."""
    most = max(counts.values(), default=0)
    names = max(map(len, counts), default=0)
    return [
        f"{name:>{names}} {count:>6} {_bar(count / most * width, draw)}"
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _bar(length: float, draw: Strokes) -> str:
    eighths = max(1, round(length * 8))
    return draw.eighths[-1] * (eighths // 8) + (draw.eighths[eighths % 8 - 1] if eighths % 8 else "")


def histogram(
    samples: Sequence[float], *, bins: int = 10, width: int = 30, unit: str = "us", draw: Strokes = FINE
) -> list[str]:
    """How often the samples fell where: the lower end of each bin, the count, a bar. One line where all are equal."""
    if not samples:
        return []
    low, high = min(samples), max(samples)
    if low == high:
        return [f"{low:>10.4g} {unit} {len(samples):>5}"]
    counts = [0] * bins
    for sample in samples:
        counts[min(bins - 1, int((sample - low) / (high - low) * bins))] += 1
    step = (high - low) / bins
    most = max(counts)
    return [
        f"{low + step * place:>10.4g} {unit} {count:>5} {_bar(count / most * width, draw) if count else ''}".rstrip()
        for place, count in enumerate(counts)
    ]
