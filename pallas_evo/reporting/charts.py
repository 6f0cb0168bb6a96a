"""Small charts of characters, for a terminal: a curve over generations, bars, a histogram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def running_best(values: Sequence[float | None]) -> list[float | None]:
    """The best so far at each place; None until there is one."""
    best: float | None = None
    found = []
    for value in values:
        if value is not None and (best is None or value > best):
            best = value
        found.append(best)
    return found


def curve(values: Sequence[float | None], *, width: int = 60, height: int = 8) -> list[str]:
    """The best so far, left to right, as lines of text with the scale at the left; nothing without values."""
    best = running_best(values)
    known = [value for value in best if value is not None]
    if not known:
        return []
    columns = [best[len(best) * place // width] for place in range(width)] if len(best) > width else list(best)
    columns[-1] = best[-1]
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    levels = [None if value is None else round((value - low) / span * (height - 1)) for value in columns]
    lines = []
    for level in reversed(range(height)):
        label = f"{low + span * level / (height - 1):.3g}" if level in (0, height - 1) and high > low else ""
        if high == low:
            label = f"{low:.3g}" if level == 0 else ""
        marks = "".join("●" if at == level else "│" if at is not None and at > level else " " for at in levels)
        lines.append(f"{label:>8} ┤{marks}")
    if high == low:
        lines = lines[-1:]
    return lines


def bars(counts: Mapping[str, int], *, width: int = 40) -> list[str]:
    """One bar a name, the longest first."""
    most = max(counts.values(), default=0)
    names = max(map(len, counts), default=0)
    return [
        f"{name:>{names}} {count:>6} {_bar(count / most * width)}"
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _bar(length: float) -> str:
    eighths = max(1, round(length * 8))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def histogram(samples: Sequence[float], *, bins: int = 10, width: int = 30, unit: str = "us") -> list[str]:
    """How often the samples fell where; one line where all are equal."""
    if not samples:
        return []
    low, high = min(samples), max(samples)
    if low == high:
        return [f"{low:>10.4g} {unit} {len(samples):>4}"]
    counts = [0] * bins
    for sample in samples:
        counts[min(bins - 1, int((sample - low) / (high - low) * bins))] += 1
    step = (high - low) / bins
    most = max(counts)
    return [
        f"{low + step * place:>10.4g} {unit} {count:>4} {_bar(count / most * width) if count else ''}".rstrip()
        for place, count in enumerate(counts)
    ]
