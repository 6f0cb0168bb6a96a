"""Charts of a page as inline SVG.

Places along x are percentages and places along y pixels, so that a chart takes whatever width there is while its
letters keep their size: a phone shows the same chart, narrower. Colours are classes of the page's style. Every text
goes through `_text`, which escapes it; all else in a chart is a number of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pallas_evo.reporting.report import Attained, Peaks, Share, Stair, plausible
from pallas_evo.reporting.safe import brief, figure, finite

_TOP, _BOTTOM = 10, 34
"""Room above and below the plotting area, in pixels; below lie the ticks' labels and the axis' name."""


@dataclass(frozen=True)
class Scale:
    """Values to a share of the axis, 0 to 1; what lies outside is drawn at the end."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where the value lies."""
        if not self.log:
            place = (value - self.low) / (self.high - self.low)
        elif value <= 0:
            return 0.0
        else:
            place = math.log(value / self.low) / math.log(self.high / self.low)
        return min(1.0, max(0.0, place))

    def ticks(self, count: int = 5) -> list[float]:
        """Round values within."""
        return _log_ticks(self.low, self.high, count) if self.log else _linear_ticks(self.low, self.high, count)


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= raw * 0.999)
    return [step * place for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    nice = (1, 2, 5) if last - first <= 3 else (1,)
    step = max(1, math.ceil((last - first) / count))
    found = [n * 10.0**power for power in range(first, last + 1, step) for n in nice]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]


# ---- pieces ------------------------------------------------------------------------------------------------------


def _text(x: float, y: float, text: object, kind: str = "", anchor: str = "middle", dx: int = 0) -> str:
    at = f'x="{100 * x:.2f}%" y="{y:.1f}"' + (f' dx="{dx}"' if dx else "")
    return f'<text {at} class="{kind} {anchor}">{escape(brief(text, 80))}</text>'


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _tick(value: float, scale: Scale) -> str:
    """A tick's label: a power of ten where the axis spans many of them."""
    if scale.log and scale.high / scale.low > 1e4:
        return f"10{str(round(math.log10(value))).translate(_RAISED)}"
    return f"{value:,.6g}"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    ends = f'x1="{100 * x1:.2f}%" y1="{y1:.1f}" x2="{100 * x2:.2f}%" y2="{y2:.1f}"'
    return f'<line {ends} class="{kind}"/>'


def _dot(x: float, y: float, radius: float, kind: str, said: str = "") -> str:
    inside = f"<title>{escape(brief(said, 160))}</title>" if said else ""
    return f'<circle cx="{100 * x:.2f}%" cy="{y:.1f}" r="{radius}" class="{kind}">{inside}</circle>'


def _chart(height: float, body: Iterable[str], title: str, kind: str = "") -> Markup:
    said = escape(brief(title, 200))
    head = f'<svg class="chart {kind}" height="{height:.0f}" role="img" aria-label="{said}">'
    return Markup(f"{head}<title>{said}</title>{''.join(body)}</svg>")


def _frame(height: float, x: Scale, y: Scale, x_name: str, *, down: int = 4, whole: bool = False) -> list[str]:
    """Grid, ticks and the name of the x axis, whose ticks may be whole numbers only."""
    base = height - _BOTTOM
    found = []
    for tick in y.ticks(down):
        place = base - y.at(tick) * (base - _TOP)
        found += [_line(0, place, 1, place, "grid"), _text(0, place + 4, _tick(tick, y), "tick", "end", -6)]
    for tick in x.ticks(6):
        if whole and tick != round(tick):
            continue
        found.append(_line(x.at(tick), base, x.at(tick), base + 4, "axis"))
        found.append(_text(x.at(tick), base + 16, _tick(tick, x), "tick"))
    found += [_line(0, base, 1, base, "axis"), _text(0.5, height - 2, x_name, "tick")]
    return found


# ---- charts ------------------------------------------------------------------------------------------------------


def speed_scale(shares: Sequence[Share]) -> Scale:
    """One scale for all bars of speed, XLA in it, in octaves."""
    octaves = [0.0]
    for share in shares:
        for view in share.views:
            rows = (*view.best[:1], view.seed)
            octaves += [math.log2(row.score) for row in rows if row is not None and row.score and row.score > 0]
    low, high = max(-5, math.floor(min(octaves))), min(5, math.ceil(max(octaves)))
    return Scale(2.0 ** min(low, -1), 2.0 ** max(high, 1), log=True)


def speed_axis(scale: Scale) -> Markup:
    """The scale of `speed`, for the head of its column."""
    octaves = range(round(math.log2(scale.low)), round(math.log2(scale.high)) + 1)
    step = max(1, math.ceil(len(octaves) / 5))
    body = [
        _text(scale.at(2.0**n), 11, f"{2.0**n:g}\N{MULTIPLICATION SIGN}", "tick" if n == 0 else "tick minor")
        for n in octaves
        if n == 0 or (n % step == 0 and n != octaves[-1]) or n == octaves[-1]
    ]
    return _chart(14, body, "speed, as a multiple of XLA's", "cell")


def speed(scale: Scale, best: float, seed: float | None, said: str) -> Markup:
    """One task: a ring for the seed, a disc for the best program, a line between; XLA is the line at 1."""
    body = [_line(scale.at(1), 0, scale.at(1), 22, "xla")]
    if seed is not None and seed > 0:
        body += [_line(scale.at(seed), 11, scale.at(best), 11, "span"), _dot(scale.at(seed), 11, 3.5, "ring")]
    body.append(_dot(scale.at(best), 11, 4, "best" if best > 1 else "best slow"))
    return _chart(22, body, said, "cell")


def fast(share: Share) -> Markup:
    """How many tasks have a program more than p times as fast as XLA, against p; the seeds' line beside it."""
    best = sorted(view.best[0].score or 0.0 for view in share.views)
    seeds = sorted(view.seed.score for view in share.views if view.seed is not None and view.seed.score)
    height, x, y = 220, Scale(0, max(2.5, math.ceil(2 * min(best[-1], 6.0)) / 2)), Scale(0, share.of)
    base = height - _BOTTOM
    body = _frame(height, x, y, "p", down=5)
    for p in (1.0, 1.5, 2.0):
        body.append(_line(x.at(p), _TOP, x.at(p), base, "xla" if p == 1 else "grid"))
    for scores, kind in ((seeds, "seed"), (best, "best")):
        from_x, level = 0.0, len(scores)
        for score in [*scores, None] if scores else []:
            to_x = 1.0 if score is None else x.at(score)
            here = base - y.at(level) * (base - _TOP)
            body.append(_line(from_x, here, to_x, here, kind))
            if score is not None:
                body.append(_line(to_x, here, to_x, base - y.at(level - 1) * (base - _TOP), kind))
            from_x, level = to_x, level - 1
    return _chart(height, body, f"Tasks more than p times as fast as XLA, of {share.of}")


_MOST_STAIRS = 8


def progress(stairs: Sequence[Stair], *, seed: float | None, title: str) -> Markup:
    """The best score so far of each run over generations, the highest run in front. The scores are speeds."""
    drawn = stairs[:_MOST_STAIRS]
    scores = [score for stair in drawn for _, score in stair.steps]
    if not scores or max(stair.last for stair in drawn) < 1:
        return Markup("")
    seed = seed if plausible(seed) else None  # or it is a stranger's claim
    scores += [seed] if seed is not None else []
    if 0.5 <= max(scores) <= 1:
        scores.append(1.0)
    height, y = 220, _score_scale(scores)
    x = Scale(min(stair.steps[0][0] for stair in drawn), max(stair.last for stair in drawn))
    if x.high <= x.low:
        x = Scale(x.low - 1, x.high)
    body = _frame(height, x, y, "generation", whole=True)
    base = height - _BOTTOM

    def place(score: float) -> float:
        return base - y.at(score) * (base - _TOP)

    if y.low <= 1 <= y.high:
        body += [_line(0, place(1), 1, place(1), "xla"), _text(1, place(1) - 4, "XLA", "tick", "end")]
    if seed is not None:
        body += [_line(0, place(seed), 1, place(seed), "seed"), _text(0, place(seed) - 4, "seed", "tick", "start", 4)]
    for number, stair in reversed(list(enumerate(drawn))):
        body += _stair(stair, x, place, "best" if number == 0 else "other")
    at, score = drawn[0].steps[-1]
    body.append(_dot(x.at(at), place(score), 4, "best", f"{figure(score)} at generation {at}"))
    return _chart(height, body, title)


def _score_scale(scores: Sequence[float]) -> Scale:
    low, high = min(scores), max(scores)
    margin = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    return Scale(max(0.0, low - margin), high + margin)


def _stair(stair: Stair, x: Scale, place: Callable[[float], float], kind: str) -> list[str]:
    found: list[str] = []
    for (from_generation, score), (to_generation, better) in zip(
        stair.steps, [*stair.steps[1:], (stair.last, stair.steps[-1][1])], strict=True
    ):
        from_x, to_x = x.at(from_generation), x.at(to_generation)
        found.append(_line(from_x, place(score), to_x, place(score), kind))
        if better != score:
            found.append(_line(to_x, place(score), to_x, place(better), kind))
    return found


def spark(stair: Stair, *, title: str) -> Markup:
    """One run's best so far in the height of three lines, on a scale of its own; a dashed line where XLA lies."""
    scores = [score for _, score in stair.steps]
    if 0.6 * min(scores) <= 1 <= 1.6 * max(scores):
        scores.append(1.0)
    height, y = 44, _score_scale(scores)
    x = Scale(min(0, stair.steps[0][0]), max(stair.last, stair.steps[0][0] + 1))

    def place(score: float) -> float:
        return height - 4 - y.at(score) * (height - 8)

    body = [_line(0, place(1), 1, place(1), "xla")] if y.low <= 1 <= y.high else []
    body += _stair(stair, x, place, "best")
    body.append(_dot(x.at(stair.last), place(stair.steps[-1][1]), 2.5, "best"))
    return _chart(height, body, title, "cell")


def bar(share_of_longest: float) -> Markup:
    """A bar in a table's cell."""
    width = 100 * min(1.0, max(0.0, share_of_longest))
    return Markup(
        '<svg class="chart cell" height="12" aria-hidden="true">'
        f'<rect width="{max(0.5, width):.2f}%" height="12" class="bar"/></svg>'
    )


_LETTER = 0.0066
"""A letter's width in shares of a page's full width."""


def roofline(peaks: Peaks, points: Sequence[Attained], *, title: str) -> Markup:
    """Attained GFLOP/s against FLOP per byte, both logarithmic: a disc each best program, a ring XLA's, the roofs.

    Tasks that must do no FLOP at all are not on it.
    """
    points = [point for point in points if point.flops > 0 and point.bytes_read > 0]
    if not points:
        return Markup("")
    ridge = peaks.tf32_tflop_s * 1e3 / peaks.bandwidth_gb_s
    attained = [point.gflop_s(time) for point in points for time in (point.time_us, point.xla_us) if time]
    intensities = [*(point.intensity for point in points), ridge]
    x = Scale(
        10 ** math.floor(math.log10(min(intensities))), 10 ** math.ceil(math.log10(max(intensities) * 2)), log=True
    )
    top = peaks.tf32_tflop_s * 1e3
    y = Scale(10 ** math.floor(math.log10(min(attained))), 10 ** math.ceil(math.log10(top * 1.5)), log=True)
    height = 420
    base = height - _BOTTOM

    def place(gflop_s: float) -> float:
        return base - y.at(gflop_s) * (base - _TOP)

    body = _frame(height, x, y, "intensity, FLOP per byte that must be read", down=7)
    start = max(x.low, y.low / peaks.bandwidth_gb_s)
    body.append(_line(x.at(start), place(start * peaks.bandwidth_gb_s), x.at(ridge), place(top), "roof"))
    body.append(_line(x.at(ridge), place(top), 1, place(top), "roof"))
    body.append(_text(1, place(top) - 6, f"{figure(peaks.tf32_tflop_s)} TFLOP/s, dense TF32", "tick", "end"))
    middle = math.sqrt(max(start, ridge / 300) * ridge)
    body.append(
        _text(
            x.at(middle),
            place(middle * peaks.bandwidth_gb_s) - 6,
            f"{figure(int(peaks.bandwidth_gb_s))} GB/s",
            "tick",
            "end",
            -8,
        )
    )
    body.append(_text(0, _TOP - 2, "GFLOP/s", "tick", "start", 4))
    taken = [  # (left end, height, width) of what stands there
        (x.at(point.intensity) - _LETTER, place(point.gflop_s(time)), 2 * _LETTER)
        for point in points
        for time in (point.time_us, point.xla_us)
        if time
    ]
    for point in sorted(points, key=lambda point: -point.gflop_s(point.time_us)):
        at, here = x.at(point.intensity), place(point.gflop_s(point.time_us))
        said = f"{point.task}: {figure(point.gflop_s(point.time_us))} GFLOP/s, {figure(point.time_us)} us"
        if point.xla_us:
            there = place(point.gflop_s(point.xla_us))
            body += [
                _line(at, there, at, here, "span"),
                _dot(at, there, 3.5, "ring", f"XLA, {point.task}: {figure(point.xla_us)} us"),
            ]
        body.append(_dot(at, here, 4, "best", said))
        # A name where there is room for it at a page's full width; a phone shows none.
        name = point.task.rpartition("/")[2]
        start, wide = at + 1.3 * _LETTER, len(name) * _LETTER
        if all(abs(here - level) > 11 or start + wide < left or left + width < start for left, level, width in taken):
            body.append(_text(at, here + 4, name, "name", "start", 8))
            taken.append((start, here, wide))
    return _chart(height, body, title)


_STRIP_LOW = 1e-6
"""Where the axis of `strip` begins: a share of the threshold, in logarithms; smaller ones lie there too."""


def strip(values: Sequence[tuple[str, Sequence[tuple[str, float, float]]]]) -> Markup:
    """(filter, (task, value, threshold) of each best program): how much of each threshold is used, logarithmic."""
    row, x = 30, Scale(_STRIP_LOW, 10.0, log=True)
    height = row * len(values) + 38
    body = []
    for tick in (1e-6, 1e-4, 1e-2, 1.0):
        name = "threshold" if tick == 1 else f"{tick:.0e}".replace("e-0", "e-")
        kind = "roof" if tick == 1 else "grid"
        body += [_line(x.at(tick), 0, x.at(tick), height - 36, kind), _text(x.at(tick), height - 22, name, "tick")]
    body.append(_text(0.5, height - 4, "value over its threshold", "tick"))
    for place, (name, found) in enumerate(values):
        y = row * place + 22
        body += [_text(0, y - 10, name, "name", "start", 2), _line(0, y, 1, y, "grid")]
        for task, value, threshold in found:
            share = value / threshold if threshold > 0 else (0.0 if value <= 0 else math.inf)
            at = x.at(share) if finite(share) is not None else 1.0
            said = f"{task}: {name} {figure(value)}, at most {figure(threshold)}"
            body.append(_dot(at, y, 3.5, "best faint" if share <= 1 else "bad", said))
    return _chart(height, body, "Filters' values over their thresholds", "whole")
