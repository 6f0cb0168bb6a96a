"""One program on a terminal: verdict, lineage, gates, filters, times, resources, environment, diff and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pallas_evo.reporting.charts import histogram, strokes
from pallas_evo.reporting.screen import ID_DIGITS, Grid, head, say, score_of
from pallas_evo.reporting.text import NOTHING, clean, fixed, number, one_line
from pallas_evo.reporting.views import UNTIMED, ProgramDetail, ProgramRow

if TYPE_CHECKING:
    from rich.console import Console

_MOST_ANCESTORS = 12


def print_program(screen: Console, detail: ProgramDetail) -> None:
    """One program: verdict, lineage, gates, filters, times, resources, environment, diff and source."""
    row = detail.row
    head(screen, f"{row.task}  {row.id}  {detail.source}")
    verdict = {True: "correct", False: f"rejected: {row.reason or ''}", None: "never judged"}[row.correct]
    score = "" if row.score is None else UNTIMED if row.timer == UNTIMED else f"score {number(row.score)}"
    about = [verdict, row.origin or "", row.name or "", score, one_line(row.device or "", 40)]
    about += [
        f"{name} {value}"
        for name, value in (("run", row.run), ("generation", row.generation), ("island", row.island))
        if value is not None
    ]
    say(screen, "  ".join(one_line(part, 120) for part in about if part))
    for said in dict.fromkeys((row.message, detail.measured.get("text_feedback") or "")):
        if said:
            say(screen, said)
    for finding in detail.findings:
        say(screen, f"{finding['reason']}: {finding['message']}")
        if finding.get("fix"):
            say(screen, f"  mended by: {finding['fix']}")
    _lineage(screen, detail.lineage)
    _measurements(screen, detail)
    if detail.diff:
        head(screen, "Diff to its parent")
        _code(screen, detail.diff, "diff")
    head(screen, "Source")
    _code(screen, detail.code, "python")
    for ancestor in detail.lineage:
        if ancestor.id in detail.lineage_code:
            kind = {"tpu_original": "TPU-sized original", "seed": "Seed"}.get(ancestor.origin or "", "First ancestor")
            head(screen, f"{kind} {clean(ancestor.id)[:ID_DIGITS]}")
            _code(screen, detail.lineage_code[ancestor.id], "python")


def _code(screen: Console, code: str, language: str) -> None:
    if not screen.is_terminal:  # byte for byte what a pipe wants, and no line broken or filled up
        say(screen, code.rstrip("\n"))
        return
    from rich.syntax import Syntax

    screen.print(Syntax(clean(code), language, background_color="default", word_wrap=True))


def _lineage(screen: Console, lineage: Sequence[ProgramRow]) -> None:
    if not lineage:
        return
    head(screen, f"Lineage, {len(lineage)} back")
    left_out = len(lineage) - _MOST_ANCESTORS
    shown = lineage if left_out <= 0 else [*lineage[: _MOST_ANCESTORS - 2], None, *lineage[-2:]]
    for row in shown:
        if row is None:
            say(screen, f"  ... {left_out} more ...")
            continue
        where = f"gen {row.generation}" if row.generation is not None else ""
        said = score_of(row.score, row.timer) if row.correct else row.reason or ""
        parts = (clean(row.id)[:ID_DIGITS], row.origin or "", where, said, row.name or "")
        say(screen, "  " + "  ".join(one_line(part, 60) for part in parts if part))


def _measurements(screen: Console, detail: ProgramDetail) -> None:
    measured, draw = detail.measured, strokes(screen.encoding)
    passed, failed = draw.passed, draw.failed
    filters, sizes = measured.get("filters") or {}, measured.get("sizes") or {}
    if gates := measured.get("gates"):
        head(screen, "Gates")
        grid = Grid(screen, "<", "<gate", "seconds", "value", "threshold", "<reason", "<?message")
        for gate in gates:
            verdict = filters.get(gate["name"]) or (_nearest(sizes) if gate["name"] == "numerics" else {})
            grid.add(
                passed if gate["passed"] else failed,
                gate["name"],
                fixed(gate.get("seconds"), 3),
                number(verdict["value"], 3) if verdict else "",
                number(verdict["threshold"], 3) if verdict else "",
                gate.get("reason") or "",
                one_line(gate.get("message") or "", 90),
            )
        screen.print(grid.table())
    if filters:
        head(screen, "Filters")
        grid = Grid(screen, "<", "<filter", "value", "threshold", "<message")
        for name, verdict in filters.items():
            mark = passed if verdict["passed"] else failed
            value, threshold = number(verdict.get("value")), number(verdict.get("threshold"))
            grid.add(mark, name, value, threshold, one_line(verdict.get("message") or "", 90))
        screen.print(grid.table())
    _sizes(screen, sizes)
    for size_name, slots in detail.samples_us.items():
        for slot, samples in slots.items():
            head(screen, f"{size_name}, {slot}: {len(samples)} samples")
            say(screen, "\n".join(histogram(samples, draw=draw)))
    made = [("", sm, one) for sm, one in (measured.get("compiled") or {}).items()]
    for one in detail.verifications:  # a seed is compiled at every size, apart from what judges it
        for size_name, by_sm in (one.get("details", {}).get("sizes") or {}).items() if one["rung"] == "ptx" else ():
            made += [(size_name, sm, figures) for sm, figures in by_sm.items()]
    if made:
        head(screen, "Compiled")
        grid = Grid(screen, "<for", "<at", "registers", "spilled bytes", "shared bytes", "occupancy", "seconds")
        for size_name, sm, figures in made:
            counts = (str(figures[name]) for name in ("registers", "spill_bytes", "shared_bytes"))
            grid.add(sm, size_name, *counts, f"{figures['occupancy']:.0%}", fixed(figures.get("seconds")))
        screen.print(grid.table())
    if detail.verifications:
        head(screen, "Verified")
        for one in detail.verifications:
            say(screen, f"  {passed if one['passed'] else failed} {one['rung']}  {one_line(one['message'], 100)}")
    if environment := measured.get("environment"):
        head(screen, "Environment")
        say(screen, "\n".join(f"  {name}: {one_line(_plain(value), 120)}" for name, value in environment.items()))


def _nearest(sizes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The normwise error that comes nearest to its bound, or is the farthest beyond, as a filter's value."""
    known = [
        {"value": error, "threshold": bound}
        for size in sizes.values()
        if (error := size.get("normwise_error")) is not None and (bound := size.get("bound")) is not None
    ]
    return max(known, key=lambda one: one["value"] / one["threshold"] if one["threshold"] else one["value"], default={})


def _sizes(screen: Console, sizes: Mapping[str, Mapping[str, Any]]) -> None:
    if not sizes:
        return
    head(screen, "Sizes")
    grid = Grid(screen, "<size", "<?inputs", "error", "bound", "us", "XLA us", "?floor us", "roofline")
    for name, size in sizes.items():
        shapes = " ".join("x".join(map(str, shape)) for shape in size.get("shape") or ())
        grid.add(
            name,
            one_line(shapes, 60),
            number(size.get("normwise_error"), 3),
            number(size.get("bound"), 3),
            fixed(size.get("median_us")),
            fixed(size.get("xla_us")),
            fixed(size.get("floor_us")),
            fixed(size.get("roofline_percent"), 1, "%"),
        )
    screen.print(grid.table())


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_plain, value))
    return NOTHING if value is None else str(value)
