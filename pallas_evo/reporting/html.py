"""One self-contained page: no network, opens from disk, says all it has to say without its script. Needs jinja2.

Candidate text is hostile. The template escapes everything; what it takes as markup comes from `svg`, which escapes too,
and from the few lines here that end in `Markup`. The page's own policy names the hashes of its one style and its one
script, so that nothing else in it could run even if it got in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from pallas_evo.reporting import svg
from pallas_evo.reporting.report import BEST, FACTORS, Attained, Identity, Report, Share, TaskPage, attained
from pallas_evo.reporting.safe import NOTHING, brief, cut, embedded, figure, finite, fixed, visible
from pallas_evo.reporting.text import day
from pallas_evo.reporting.views import UNTIMED, Family, ProgramRow, TaskView, gain

MOST_CODE = 40_000
"""Characters of one source or diff; beyond, it is cut and says so."""

WIDEST_LINE = 2_000
"""Characters of one line of code, likewise."""

MOST_TEXT = 8_000_000
"""Characters of sources and diffs in a page, as they stand in it: the best programs first, then their lineages."""

MOST_WORDS = 200
"""Characters of a name in what programs read of the page."""

_CURVE = 3
"""Tasks that a curve over them takes, at least."""

MOST_ROWS = 200
"""Rows of a list of runs or islands."""


def render(report: Report) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        visible=visible, brief=brief, figure=figure, fixed=fixed, day=day, percent=_percent, short=_short, value=_value
    )
    style, script = _template("report.css"), _template("report.js")
    timed = [share for share in report.shares if share.timed]
    scale = svg.speed_scale(timed)
    sections = _sections(report)
    places = {section["task"]: section["number"] for section in sections}
    return environment.get_template("report.html").render(
        report=report,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'",
        factors=FACTORS,
        nothing=NOTHING,
        most_rows=MOST_ROWS,
        best_shown=BEST,
        shares=[_share(report, share, scale) for share in report.shares],
        axis=svg.speed_axis(scale),
        rejections=_bars(report.rejected),
        sections=sections,
        places=places,
        device=_device,
        bars=_bars,
        data=Markup(embedded(_data(report))),
    )


def _template(name: str) -> str:
    return files("pallas_evo.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else NOTHING


def _value(number: object) -> str:
    """A number as it is, for sorting and for whoever reads the page by a program; nothing where there is none."""
    return "" if finite(number) is None else str(number)


def _short(id: str) -> str:
    """The first digits of an id, as `--program` takes them."""
    return brief(str(id)[:10], 16)


def _device(of: Identity | TaskView | Any) -> str:
    """What a score was made on: a device and a timer, or that nothing was timed."""
    said = brief(of.device or "no device named", 60)
    if of.timer in (None, ""):
        return said if of.device else "not judged correct"
    return f"{said}, {'not timed' if of.timer == UNTIMED else brief(of.timer, 20)}"


# ---- the overview ------------------------------------------------------------------------------------------------


def _share(report: Report, share: Share, scale: svg.Scale) -> dict[str, Any]:
    """One identity of the overview: its rows, and its charts where it was timed."""
    pages = {id(page.view): page for page in report.pages}
    rows = [_comparison(view, scale, timed=share.timed) for view in share.views]
    peaks, points = attained(share, report.facts)
    return {
        "share": share,
        "rows": rows,
        "fast": svg.fast(share) if share.timed and share.correct >= _CURVE else "",
        "sparks": [spark for view in share.views if (spark := _spark(pages[id(view)]))] if share.timed else [],
        "peaks": peaks,
        "points": [_point(point) for point in points],
        "roofline": svg.roofline(peaks, points, title=f"Roofline of {_device(share.identity)}") if peaks else "",
        "filters": svg.strip(found) if (found := _filter_values(share)) else "",
        "filter_rows": [
            {"task": view.task, "filters": view.best[0].filters} for view in share.views if view.best[0].filters
        ],
        "filter_names": [name for name, _ in found],
    }


def _comparison(view: TaskView, scale: svg.Scale, *, timed: bool) -> dict[str, Any]:
    """Best against seed and XLA. XLA is 1 by the score's definition."""
    best, seed = view.best[0], view.seed
    seed_score = seed.score if seed is not None else None
    said = f"{view.task}: best {figure(best.score)} times XLA's speed, seed {figure(seed_score)}"
    return {
        "view": view,
        "best": best,
        "seed": seed,
        "seed_score": seed_score,
        "gain": gain(best.score, seed_score),
        "chart": svg.speed(scale, best.score or 0.0, seed_score, said) if timed else "",
    }


def _spark(page: TaskPage) -> dict[str, Any] | None:
    """A small curve, where some run went over a generation."""
    stairs = [stair for stair in page.stairs if stair.last > 0]
    if not stairs:
        return None
    first, best = stairs[0].steps[0][1], stairs[0].steps[-1][1]
    title = f"{page.view.task}: best score {figure(first)} to {figure(best)} over {stairs[0].last} generations"
    chart = svg.spark(stairs[0], title=title)
    return {"task": page.view.task, "first": first, "best": best, "last": stairs[0].last, "chart": chart}


def _point(point: Attained) -> dict[str, Any]:
    return {
        "task": point.task,
        "intensity": point.intensity,
        "gflop_s": point.gflop_s(point.time_us) if point.flops else None,
        "gb_s": point.gb_s(point.time_us),
        "xla_gflop_s": point.gflop_s(point.xla_us) if point.flops and point.xla_us else None,
        "xla_gb_s": point.gb_s(point.xla_us) if point.xla_us else None,
        "roofline_percent": point.row.roofline_percent,
    }


def _filter_values(share: Share) -> list[tuple[str, list[tuple[str, float, float]]]]:
    """Of each filter the values of the best programs that have one."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for view in share.views:
        for name, verdict in view.best[0].filters.items():
            value, threshold = finite(verdict.get("value")), finite(verdict.get("threshold"))
            if value is not None and threshold is not None:
                found.setdefault(str(name), []).append((view.task, value, threshold))
    return list(found.items())


def _bars(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Counts, the largest first, each with its bar."""
    most = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "count": count, "bar": svg.bar(count / most)} for name, count in ordered if count]


def _data(report: Report) -> dict[str, Any]:
    """The overview's numbers, for whoever reads the page by a program."""
    return {
        "made_at": report.made_at,
        "programs": report.programs,
        "evaluations": report.evaluations,
        "accepted": report.accepted,
        "rejected": {brief(name, MOST_WORDS): count for name, count in report.rejected.items()},
        "shares": [
            {
                "device": share.identity.device and brief(share.identity.device, MOST_WORDS),
                "timer": share.identity.timer and brief(share.identity.timer, MOST_WORDS),
                "sizes": [brief(size, MOST_WORDS) for size in share.identity.sizes],
                "correct": share.correct,
                "of": share.of,
                "fast": {f"{p:g}": count for p, count in share.fast.items()},
                "geometric_mean": share.geometric_mean,
                "tasks": [_data_row(view) for view in share.views],
            }
            for share in report.shares
        ],
    }


def _data_row(view: TaskView) -> dict[str, Any]:
    best, seed = view.best[0], view.seed
    return {
        "task": brief(view.task, MOST_WORDS),
        "task_version": view.version,
        "program": brief(best.id, MOST_WORDS),
        "score": best.score,
        "time_us": best.time_us,
        "xla_us": best.xla_us,
        "roofline_percent": best.roofline_percent,
        "seed_score": seed.score if seed is not None else None,
    }


# ---- tasks -------------------------------------------------------------------------------------------------------


def _sections(report: Report) -> list[dict[str, Any]]:
    """One section a task, with a part for each source and identity; a program's text stands once in a section."""
    allowed = _affordable(report.pages)
    sections: dict[str, dict[str, Any]] = {}
    shown: dict[tuple[str, str], str] = {}
    for page in report.pages:
        task = page.view.task
        section = sections.setdefault(task, {"task": task, "number": len(sections) + 1, "parts": []})
        section["parts"].append(_part(page, allowed, shown, len(report.sources) > 1))
    return list(sections.values())


def _affordable(pages: Sequence[TaskPage]) -> set[tuple[str, str]]:
    """(task, id) of the programs whose text goes into the page: the best of every task before any ancestor."""
    wanted: list[tuple[int, int, tuple[str, str], int]] = []
    for place, page in enumerate(pages):
        best = [row.id for row in page.view.best]
        for id, code in page.family.code.items():
            size = _size(code) + _size(page.family.diffs.get(id) or "")
            rank = best.index(id) if id in best else len(best)
            wanted.append((rank, place, (page.view.task, id), size))
    found: set[tuple[str, str]] = set()
    left = MOST_TEXT
    for _, _, key, size in sorted(wanted):
        if key not in found and size <= left:
            found.add(key)
            left -= size
    return found


def _size(code: str) -> int:
    """Characters that a text takes in the page: hidden ones are written out there, and brackets escaped."""
    return len(escape(cut(code, most=MOST_CODE, widest=WIDEST_LINE)))


def _part(
    page: TaskPage, allowed: set[tuple[str, str]], shown: dict[tuple[str, str], str], named: bool
) -> dict[str, Any]:
    view = page.view
    seed = view.seed.score if view.seed is not None else None
    names = list(dict.fromkeys(name for row in view.best for name in row.filters))
    return {
        "view": view,
        "named": named,
        "best": view.best[0] if view.best else None,
        "gain": gain(view.best[0].score, seed) if view.best else None,
        "seed": seed,
        "progress": svg.progress(page.stairs, seed=seed, title=f"{view.task}: best score so far over generations")
        if view.timed
        else "",
        "stairs": page.stairs,
        "filters": [(name, [row.filters.get(name) for row in view.best]) for name in names],
        "islands": [step for step in page.detail.islands if step.step is not None],
        "nodes": [_node(*place, page, allowed, shown) for place in _tree(page.family)],
    }


def _node(
    id: str,
    depth: int,
    branches: bool,
    page: TaskPage,
    allowed: set[tuple[str, str]],
    shown: dict[tuple[str, str], str],
) -> dict[str, Any]:
    """One program of a lineage; its text, or the mark of the node that has it already, or neither."""
    family, task = page.family, page.view.task
    row = family.nodes[id]
    parent = family.nodes.get(row.parent) if row.parent is not None else None
    node: dict[str, Any] = {
        "id": id,
        "row": row,
        "depth": min(depth, 7),
        "rank": next((n for n, best in enumerate(page.view.best, 1) if best.id == id), None),
        "change": gain(row.score, parent.score)
        if parent is not None and row.correct and parent.correct and id not in family.skipped
        else None,
        "parent": parent if branches else None,
        "skipped": family.skipped.get(id, 0),
        "elsewhere": shown.get((task, id)),
        "mark": None,
        "code": None,
        "diff": None,
        "kind": _kind(row),
    }
    if node["elsewhere"] is None and (task, id) in allowed:
        node["mark"] = shown[task, id] = f"p{len(shown) + 1}"
        node["code"] = cut(family.code.get(id, ""), most=MOST_CODE, widest=WIDEST_LINE)
        diff = family.diffs.get(id)
        node["diff"] = _diff(diff) if diff else None
    return node


def _kind(row: ProgramRow) -> str:
    kinds = {"tpu_original": "TPU-sized original", "seed": "seed"}
    if row.origin in kinds:
        return kinds[row.origin]
    return f"generation {figure(row.generation)}" if row.generation is not None else str(row.origin or "program")


def _diff(text: str) -> Markup:
    """A unified diff, each line in a colour of its kind."""
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    lines = []
    for line in cut(text, most=MOST_CODE, widest=WIDEST_LINE).split("\n"):
        kind = "head" if line.startswith(("+++", "---")) else kinds.get(line[:1])
        lines.append(Markup('<span class="{}">{}</span>').format(kind, line) if kind else escape(line))
    return Markup("\n").join(lines)


def _tree(family: Family) -> Iterator[tuple[str, int, bool]]:
    """(id, depth, whether a branch begins with it) from the first programs down, brothers deeper than their parent.

    A family of a stranger's run may go round in a circle: each program comes once.
    """
    children: dict[str | None, list[str]] = {}
    for id, row in family.nodes.items():
        children.setdefault(row.parent if row.parent in family.nodes else None, []).append(id)
    seen: set[str] = set()
    for first in (*children.get(None, ()), *family.nodes):
        waiting = [(first, 0, False)]
        while waiting:
            id, depth, branches = waiting.pop()
            if id in seen:
                continue
            seen.add(id)
            yield id, depth, branches
            mine = children.get(id, [])
            several = len(mine) > 1
            waiting += [(child, depth + several, several) for child in reversed(mine)]
