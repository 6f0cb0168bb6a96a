"""The page's plots as files, PNG and SVG of each, for papers and slides. Needs matplotlib (the extra `report`).

Strangers' text is drawn as it is, without mathtext: a dollar sign in it is a dollar sign.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pallas_evo.errors import UsageError
from pallas_evo.reporting.report import Report, Share, TaskPage, attained, extra_missing, plausible
from pallas_evo.reporting.safe import brief

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BEST, _SEED, _INK, _GRID = "#0a5cab", "#8d5600", "#1b1f24", "#e3e7eb"
_STYLE: dict[str, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#57606b",
    "axes.labelcolor": _INK, "text.color": _INK, "xtick.color": "#57606b", "ytick.color": "#57606b",
    "axes.grid": True, "grid.color": _GRID, "grid.linewidth": 0.7, "axes.axisbelow": True, "legend.frameon": False,
    "svg.fonttype": "none", "svg.hashsalt": "pallas_evo", "figure.dpi": 100, "savefig.dpi": 160, "axes.titlesize": 10,
    "axes.titlelocation": "left", "text.parse_math": False,
}  # fmt: skip


def write_plots(report: Report, folder: Path) -> tuple[Path, ...]:
    """Draw all that there is to draw; returns the files. Files of the same names are replaced.

    `speed`, `fast` and `roofline` are made for each identity that was timed, `progress` for each task that evolved
    under one, `rejections` once.

    Raises:
        UsageError: the folder cannot be written, or the extra `report` is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ModuleNotFoundError as error:
        raise extra_missing("--plots", error) from error
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(cast(Any, _STYLE)):
            for name, figure in _figures(report):
                FigureCanvasAgg(figure)
                for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": "pallas_evo"})):
                    path = folder / f"{name}.{ending}"
                    figure.savefig(path, bbox_inches="tight", metadata=metadata)
                    made.append(path)
    except OSError as error:
        raise UsageError(f"{folder}: expected a folder that can be written ({error.strerror}).") from error
    return tuple(made)


def _figures(report: Report) -> Iterator[tuple[str, Figure]]:
    names: set[str] = set()
    timed = [share for share in report.shares if share.timed]
    for share in timed:
        of = _name(names, share.identity.device, share.identity.timer, *share.identity.sizes)
        yield f"speed-{of}", _speed(share)
        yield f"fast-{of}", _fast(share)
        if (figure := _roofline(share, report)) is not None:
            yield f"roofline-{of}", figure
    for page in report.pages:
        if page.view.timed and any(stair.last > 0 for stair in page.stairs):
            of = _name(names, page.view.task, page.view.device, page.view.timer, *page.view.sizes)
            yield f"progress-{of}", _progress(page)
    if report.rejected:
        yield "rejections", _rejections(report)


def _name(taken: set[str], *parts: str | None) -> str:
    """A file's name of strangers' words: letters, digits and dashes, and no name twice."""
    plain = "-".join(filter(None, (re.sub(r"[^A-Za-z0-9]+", "-", part or "").strip("-") for part in parts)))[:80] or "x"
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def _title(share: Share) -> str:
    sizes = f" at {', '.join(share.identity.sizes)}" if share.identity.sizes else ""
    return brief(f"{share.identity.device}, {share.identity.timer}{sizes}", 90)


def _score(rows: Sequence[Any]) -> float:
    """The first row's score; a stranger's claim that none can be is drawn at the end of the axis."""
    return min(max(rows[0].score or 0.0, 2**-10), 2**10)


def _speed(share: Share) -> Figure:
    """Best and seed of each task, as multiples of XLA's speed."""
    figure, axes = _new(6.4, 0.6 + 0.19 * len(share.views))
    for place, view in enumerate(share.views):
        best, seed = _score(view.best), view.seed.score if view.seed is not None else None
        seed = seed if plausible(seed) else None
        if seed:
            axes.plot([seed, best], [place, place], color="#9aa3ad", linewidth=1, zorder=1)
            axes.scatter(seed, place, s=18, facecolor="white", edgecolor=_SEED, zorder=2, label="" if place else "seed")
        axes.scatter(best, place, s=20, color=_BEST if best > 1 else _INK, zorder=3, label="" if place else "best")
    axes.axvline(1, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_yticks(range(len(share.views)), [brief(view.task, 40) for view in share.views])
    axes.set_ylim(len(share.views) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel("speed, as a multiple of XLA's")
    axes.set_title(f"Best (disc) and seed (ring): {_title(share)}")
    return figure


def _fast(share: Share) -> Figure:
    """How many tasks have a program more than p times as fast as XLA."""
    figure, axes = _new(6.4, 3.4)
    seeds = sorted(view.seed.score for view in share.views if view.seed is not None and plausible(view.seed.score))
    best = sorted(_score(view.best) for view in share.views)
    end = max(2.5, min(6.0, best[-1] * 1.05))
    for scores, colour, name in ((seeds, _SEED, "seeds"), (best, _BEST, "best programs")):
        if scores:
            axes.step(
                [0, *scores, end],
                [len(scores), *range(len(scores) - 1, -1, -1), 0],
                color=colour,
                where="post",
                label=name,
            )
    axes.axvline(1, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlim(0, end)
    axes.set_ylim(0, share.of)
    axes.set_xlabel("p: more than so many times as fast as XLA")
    axes.set_ylabel(f"tasks, of {share.of}")
    axes.set_title(_title(share))
    axes.legend()
    return figure


_DECADES_HIGH = 8.0
"""About how many decades the roofline's y axis spans: names are kept apart by it."""


def _roofline(share: Share, report: Report) -> Figure | None:
    peaks, points = attained(share, report.facts)
    points = tuple(point for point in points if point.flops > 0 and point.bytes_read > 0)
    if peaks is None or not points:
        return None
    figure, axes = _new(7.2, 4.6)
    top = peaks.tf32_tflop_s * 1e3
    ridge = top / peaks.bandwidth_gb_s
    low = min(point.intensity for point in points) / 2
    high = max(ridge, *(point.intensity for point in points)) * 3
    axes.plot([low, ridge, high], [low * peaks.bandwidth_gb_s, top, top], color=_INK, linewidth=1.2)
    named: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda point: -point.gflop_s(point.time_us)):
        here = point.gflop_s(point.time_us)
        if point.xla_us:
            there = point.gflop_s(point.xla_us)
            axes.plot([point.intensity] * 2, [there, here], color="#9aa3ad", linewidth=0.8, zorder=1)
            axes.scatter(point.intensity, there, s=16, facecolor="white", edgecolor=_SEED, zorder=2)
        axes.scatter(point.intensity, here, s=20, color=_BEST, zorder=3)
        at = math.log10(point.intensity) / math.log10(high / low), math.log10(here) / _DECADES_HIGH
        if all(abs(at[0] - x) > 0.16 or abs(at[1] - y) > 0.022 for x, y in named):  # where no name stands yet
            name = brief(point.task.rpartition("/")[2], 30)
            where: dict[str, Any] = {"xy": (point.intensity, here), "xytext": (5, -2), "textcoords": "offset points"}
            axes.annotate(name, fontsize=6, **where)
            named.append(at)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("arithmetic intensity, FLOP per byte that must be read")
    axes.set_ylabel("attained GFLOP/s")
    axes.xaxis.set_major_formatter(_decade)
    axes.yaxis.set_major_formatter(_decade)
    roofs = f"{peaks.bandwidth_gb_s:,.0f} GB/s, {peaks.tf32_tflop_s:g} TFLOP/s dense TF32"
    axes.set_title(f"Best (disc), XLA (ring), roofs of {peaks.name}: {roofs}")
    return figure


def _decade(value: float, _: object) -> str:
    return f"{value:,.12g}"


_MOST_RUNS = 8


def _progress(page: TaskPage) -> Figure:
    """The best so far of each run of a task."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _new(6.4, 3.2)
    for place, stair in reversed(list(enumerate(page.stairs[:_MOST_RUNS]))):
        generations, scores = zip(*stair.steps, (stair.last, stair.steps[-1][1]), strict=True)
        axes.step(
            generations, scores, where="post", color="#9aa3ad" if place else _BEST, linewidth=0.9 if place else 1.7
        )
    if page.view.seed is not None and plausible(page.view.seed.score):
        axes.axhline(page.view.seed.score, color=_SEED, linewidth=0.9, linestyle="--", label="seed")
        axes.legend()
    low, high = axes.get_ylim()
    if low <= 1 <= high * 1.2:
        axes.axhline(1, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("generation")
    axes.set_ylabel("best score so far (XLA is 1)")
    axes.set_title(brief(f"{page.view.task}: {page.view.device}, {page.view.timer}", 90))
    return figure


_MOST_REASONS = 30


def _rejections(report: Report) -> Figure:
    counted = sorted(report.rejected.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
    figure, axes = _new(6.4, 0.8 + 0.22 * len(counted))
    axes.barh(range(len(counted)), [count for _, count in counted], color=_BEST, height=0.6)
    axes.set_yticks(range(len(counted)), [brief(name, 40) for name, _ in counted])
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlabel("evaluations rejected")
    axes.set_title("Rejections by reason")
    return figure
