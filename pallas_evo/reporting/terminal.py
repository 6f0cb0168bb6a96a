"""Views on a terminal. All text of candidates is cleaned of what a terminal would obey, and is never markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pallas_evo.reporting.charts import Strokes, bars, curve, histogram, running_best, strokes
from pallas_evo.reporting.text import NOTHING, clean, day, filters_passed, fixed, number, one_line
from pallas_evo.reporting.views import UNTIMED, ProgramDetail, ProgramRow, RunView, Step, TaskDetail, TaskView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_RUNS = 20
_MOST_ISLANDS = 40
_MOST_ANCESTORS = 12
_MOST_GENERATIONS = 60  # lines in a pipe
ID_DIGITS = 10
"""How many digits of a program's id a list shows; `--program` takes any prefix that is one program's."""


# ---- runs and the best of each task --------------------------------------------------------------------------------


def print_overview(
    screen: Console,
    sources: Sequence[str],
    runs: Sequence[RunView],
    tasks: Sequence[TaskView],
    repeats: Sequence[str] = (),
) -> None:
    """Runs, then the best programs of each task under each identity. `repeats` are sources shown by an archive."""
    where = {source: str(place + 1) for place, source in enumerate(sources)}
    for source in sources:
        _say(screen, f"[{where[source]}] {source}")
    if repeats:
        some = f", {repeats[0]}" if len(repeats) == 1 else f", {repeats[0]} and {len(repeats) - 1} more"
        _say(screen, f"Runs that an archive above holds whole are not counted twice ({len(repeats)}{some})")
    if runs:
        _say(screen, "")
        screen.print(_runs_table(screen, runs[-_MOST_RUNS:], where))
        if len(runs) > _MOST_RUNS:
            _say(screen, f"The newest {_MOST_RUNS} of {len(runs)} runs; --json lists all.")
        for run in {run.id: run for run in runs[-_MOST_RUNS:] if run.message}.values():
            _say(screen, f"{one_line(run.name or run.id, 40)}: {one_line(run.message, 400)}")
    ranked = [view for view in tasks if view.best]
    if ranked:
        _say(screen, "")
        screen.print(_best_table(screen, ranked, where))
    shown = {(view.source, view.task) for view in ranked}
    empty = sorted({view.task for view in tasks if (view.source, view.task) not in shown})
    if empty:
        _say(screen, f"No correct program yet ({len(empty)}): {one_line(', '.join(empty), 400)}")
    programs, evaluations, accepted = _totals(tasks)
    _say(screen, f"{programs} programs, {evaluations} evaluations, {accepted} accepted")


def _totals(tasks: Sequence[TaskView]) -> tuple[int, int, int]:
    """A task that stands there under two identities counts once."""
    once = {(view.source, view.task): view for view in tasks}.values()
    return (
        sum(view.programs for view in once),
        sum(view.evaluations for view in once),
        sum(view.accepted for view in once),
    )


class _Grid:
    """A table. Columns are named `<left` or `right`; a screen that is too narrow for all gets none of `<?left` or
    `?right`, as far as that takes, the last first."""

    def __init__(self, screen: Console, *columns: str) -> None:
        self._width = screen.width
        self._columns = columns
        self._rows: list[list[str]] = []

    def add(self, *cells: str) -> None:
        """One row. Every cell is cleaned here, whatever its maker did."""
        self._rows.append([clean(cell) for cell in cells])

    def table(self) -> Table:
        """What can be printed."""
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        names = [column.lstrip("<?") for column in self._columns]
        widths = [max(map(cell_len, column)) + 2 for column in zip(names, *self._rows, strict=True)]
        shown = list(range(len(names)))
        for place in reversed(range(len(names))):
            if sum(widths[one] for one in shown) > self._width and "?" in self._columns[place][:2]:
                shown.remove(place)
        table = Table(box=None, padding=(0, 1), header_style="bold")
        for place in shown:
            left = self._columns[place].startswith("<")
            table.add_column(names[place], justify="left" if left else "right", no_wrap=True)
        for row in self._rows:
            table.add_row(*(Text(row[place]) for place in shown))
        return table


def _runs_table(screen: Console, runs: Sequence[RunView], where: Mapping[str, str]) -> Table:
    names = ("<?in", "<run", "<?date", "<task", "<?device", "?programs", "correct", "best", "?seed", "gain")
    grid = _Grid(screen, *names)
    for run in runs:
        grid.add(
            where[run.source],
            one_line(run.name or run.id, 32) + ("" if run.status in ("", "finished") else f" ({run.status})"),
            day(run.date),
            one_line(run.task or NOTHING, 32),
            _device(run.device, run.timer),
            str(run.programs),
            str(run.correct),
            _score(run.best, run.timer),
            _score(run.seed, run.timer),
            fixed(run.gain, 2, "x"),
        )
    return grid.table()


def _device(device: str | None, timer: str | None) -> str:
    said = one_line(device or NOTHING, 28)
    return f"{said}, {UNTIMED}" if timer == UNTIMED else said


def _score(score: float | None, timer: str | None) -> str:
    """An untimed score says correct, and is no speed."""
    return UNTIMED if timer == UNTIMED and score is not None else number(score)


def _under(view: TaskView) -> str:
    """What makes the view's scores comparable, beside task and device."""
    parts = [f"task version {view.version}" if view.version else "", view.timer or "", ", ".join(view.sizes)]
    return "; ".join(one_line(part, 40) for part in parts if part and part != UNTIMED)


_BEST = ("score", "us", "XLA us", "roofline", "<?filters")


def _best_table(screen: Console, tasks: Sequence[TaskView], where: Mapping[str, str]) -> Table:
    grid = _Grid(screen, "<?in", "<task", "<?device", "<program", "<", *_BEST)
    newest: dict[tuple[str, str], int | None] = {}
    for view in tasks:
        latest = newest.setdefault((view.source, view.task), view.version)
        version = f" v{view.version}" if view.version != latest else ""
        for place, row in enumerate(view.best):
            first = place == 0
            grid.add(
                where[view.source] if first else "",
                one_line(view.task, 40) + version if first else "",
                _device(view.device, view.timer) if first else "",
                clean(row.id)[:ID_DIGITS],
                _kind(row, view),
                *_scores(row),
            )
    return grid.table()


def _kind(row: ProgramRow, view: TaskView) -> str:
    if row.origin == "seed" or (view.seed is not None and row.id == view.seed.id):
        return "seed"
    return f"gen {row.generation}" if row.generation is not None else (row.origin or "")


def _scores(row: ProgramRow) -> tuple[str, ...]:
    return (
        _score(row.score, row.timer),
        fixed(row.time_us),
        fixed(row.xla_us),
        fixed(row.roofline_percent, 1, "%"),
        filters_passed({name: bool(verdict.get("passed")) for name, verdict in row.filters.items()}),
    )


# ---- one task ------------------------------------------------------------------------------------------------------


def print_task(screen: Console, detail: TaskDetail) -> None:
    """One task under one identity: best programs, progress, rejections, islands."""
    view, draw = detail.view, strokes(screen.encoding)
    under = _under(view)
    _head(screen, f"{view.task}  {_device(view.device, view.timer)}  {f'({under})  ' if under else ''}{view.source}")
    _say(screen, f"{view.programs} programs, {view.evaluations} evaluations, {view.accepted} accepted")
    if view.best:
        grid = _Grid(screen, "<program", "<", "<?name", *_BEST)
        seed = [view.seed] if view.seed is not None and view.seed.id not in {row.id for row in view.best} else []
        for row in (*view.best, *seed):
            grid.add(clean(row.id)[:ID_DIGITS], _kind(row, view), one_line(row.name or "", 30), *_scores(row))
        screen.print(grid.table())
    _progress(screen, detail, draw)
    if view.rejected:
        _head(screen, "Rejected, by reason")
        named = {one_line(name, 40): count for name, count in view.rejected.items()}
        _say(screen, "\n".join(bars(named, draw=draw)))
    if detail.islands:
        _head(screen, "Islands")
        grid = _Grid(screen, "<run", "island", "programs", "correct", "best")
        for step in detail.islands[:_MOST_ISLANDS]:
            island = NOTHING if step.step is None else str(step.step)
            best = _score(step.best, view.timer)
            grid.add(one_line(step.run, 40), island, str(step.evaluations), str(step.correct), best)
        screen.print(grid.table())
        if len(detail.islands) > _MOST_ISLANDS:
            _say(screen, f"{_MOST_ISLANDS} of {len(detail.islands)}; --json lists all.")


def _progress(screen: Console, detail: TaskDetail, draw: Strokes) -> None:
    """The best so far over generations: a curve on a terminal, a line of numbers for each in a pipe."""
    steps = by_step(detail.generations)
    if not steps:
        return
    best = running_best([score for _, _, _, score in steps])
    if screen.is_terminal and len(steps) > 1 and detail.view.timer != UNTIMED and best[-1] is not None:
        _head(screen, f"Best score so far, generation {steps[0][0]} to {steps[-1][0]}")
        _say(screen, "\n".join(curve([score for _, _, _, score in steps], width=min(60, screen.width - 14), draw=draw)))
        return
    shown = list(zip(steps, best, strict=True))
    said = "Generations"
    if len(steps) > _MOST_GENERATIONS:  # those in which the best rose, and the last
        shown = [one for one, before in zip(shown, [None, *best[:-1]], strict=True) if one[1] != before] + [shown[-1]]
        shown = shown[-_MOST_GENERATIONS:]
        said = f"Generations in which the best rose, and the last of {len(steps)}; --json lists all"
    _head(screen, said)
    timer = detail.view.timer
    grid = _Grid(screen, "generation", "programs", "correct", "best", "best so far")
    for (step, evaluations, correct, score), so_far in shown:
        grid.add(str(step), str(evaluations), str(correct), _score(score, timer), _score(so_far, timer))
    screen.print(grid.table())


def by_step(steps: Sequence[Step]) -> list[tuple[int, int, int, float | None]]:
    """All runs together: (generation, evaluations, correct, best), in order."""
    found: dict[int, tuple[int, int, float | None]] = {}
    for step in steps:
        if step.step is None:
            continue
        evaluations, correct, best = found.get(step.step, (0, 0, None))
        scores = [score for score in (best, step.best) if score is not None]
        found[step.step] = (
            evaluations + step.evaluations,
            correct + step.correct,
            max(scores, default=None),
        )
    return [(number, *found[number]) for number in sorted(found)]


# ---- one program ---------------------------------------------------------------------------------------------------


def print_program(screen: Console, detail: ProgramDetail) -> None:
    """One program: verdict, lineage, gates, filters, times, resources, environment, diff and source."""
    row = detail.row
    _head(screen, f"{row.task}  {row.id}  {detail.source}")
    verdict = {True: "correct", False: f"rejected: {row.reason or ''}", None: "never judged"}[row.correct]
    score = "" if row.score is None else UNTIMED if row.timer == UNTIMED else f"score {number(row.score)}"
    about = [verdict, row.origin or "", row.name or "", score, one_line(row.device or "", 40)]
    about += [
        f"{name} {value}"
        for name, value in (("run", row.run), ("generation", row.generation), ("island", row.island))
        if value is not None
    ]
    _say(screen, "  ".join(one_line(part, 120) for part in about if part))
    for said in dict.fromkeys((row.message, detail.measured.get("text_feedback") or "")):
        if said:
            _say(screen, said)
    for finding in detail.findings:
        _say(screen, f"{finding['reason']}: {finding['message']}")
        if finding.get("fix"):
            _say(screen, f"  mended by: {finding['fix']}")
    _lineage(screen, detail.lineage)
    _measurements(screen, detail)
    if detail.diff:
        _head(screen, "Diff to its parent")
        _code(screen, detail.diff, "diff")
    _head(screen, "Source")
    _code(screen, detail.code, "python")
    for ancestor in detail.lineage:
        if ancestor.id in detail.lineage_code:
            kind = {"tpu_original": "TPU-sized original", "seed": "Seed"}.get(ancestor.origin or "", "First ancestor")
            _head(screen, f"{kind} {clean(ancestor.id)[:ID_DIGITS]}")
            _code(screen, detail.lineage_code[ancestor.id], "python")


def _code(screen: Console, code: str, language: str) -> None:
    if not screen.is_terminal:  # byte for byte what a pipe wants, and no line broken or filled up
        _say(screen, code.rstrip("\n"))
        return
    from rich.syntax import Syntax

    screen.print(Syntax(clean(code), language, background_color="default", word_wrap=True))


def _lineage(screen: Console, lineage: Sequence[ProgramRow]) -> None:
    if not lineage:
        return
    _head(screen, f"Lineage, {len(lineage)} back")
    left_out = len(lineage) - _MOST_ANCESTORS
    shown = lineage if left_out <= 0 else [*lineage[: _MOST_ANCESTORS - 2], None, *lineage[-2:]]
    for row in shown:
        if row is None:
            _say(screen, f"  ... {left_out} more ...")
            continue
        where = f"gen {row.generation}" if row.generation is not None else ""
        said = _score(row.score, row.timer) if row.correct else row.reason or ""
        parts = (clean(row.id)[:ID_DIGITS], row.origin or "", where, said, row.name or "")
        _say(screen, "  " + "  ".join(one_line(part, 60) for part in parts if part))


def _measurements(screen: Console, detail: ProgramDetail) -> None:
    measured, draw = detail.measured, strokes(screen.encoding)
    passed, failed = draw.passed, draw.failed
    filters = measured.get("filters") or {}
    if gates := measured.get("gates"):
        _head(screen, "Gates")
        grid = _Grid(screen, "<", "<gate", "seconds", "value", "threshold", "<reason", "<?message")
        for gate in gates:
            verdict = filters.get(gate["name"], {})
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
        _head(screen, "Filters")
        grid = _Grid(screen, "<", "<filter", "value", "threshold", "<message")
        for name, verdict in filters.items():
            mark = passed if verdict["passed"] else failed
            value, threshold = number(verdict.get("value")), number(verdict.get("threshold"))
            grid.add(mark, name, value, threshold, one_line(verdict.get("message") or "", 90))
        screen.print(grid.table())
    _sizes(screen, measured.get("sizes") or {})
    for size_name, slots in detail.samples_us.items():
        for slot, samples in slots.items():
            _head(screen, f"{size_name}, {slot}: {len(samples)} samples")
            _say(screen, "\n".join(histogram(samples, draw=draw)))
    if compiled := measured.get("compiled"):
        _head(screen, "Compiled")
        grid = _Grid(screen, "<for", "registers", "spilled bytes", "shared bytes", "occupancy", "seconds")
        for sm, made in compiled.items():
            figures = (str(made[name]) for name in ("registers", "spill_bytes", "shared_bytes"))
            grid.add(sm, *figures, f"{made['occupancy']:.0%}", fixed(made.get("seconds")))
        screen.print(grid.table())
    if detail.verifications:
        _head(screen, "Verified")
        for one in detail.verifications:
            _say(screen, f"  {passed if one['passed'] else failed} {one['rung']}  {one_line(one['message'], 100)}")
    if environment := measured.get("environment"):
        _head(screen, "Environment")
        _say(screen, "\n".join(f"  {name}: {one_line(_plain(value), 120)}" for name, value in environment.items()))


def _sizes(screen: Console, sizes: Mapping[str, Mapping[str, Any]]) -> None:
    if not sizes:
        return
    _head(screen, "Sizes")
    grid = _Grid(screen, "<size", "<?inputs", "error", "bound", "us", "XLA us", "?floor us", "roofline")
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


def _head(screen: Console, text: str) -> None:
    from rich.text import Text

    screen.print()
    screen.print(Text(one_line(text, 400), style="bold"), soft_wrap=True)


def _say(screen: Console, text: str) -> None:
    from rich.text import Text

    screen.print(Text(clean(text)), soft_wrap=True)
