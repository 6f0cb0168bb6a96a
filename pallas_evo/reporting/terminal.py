"""Runs and tasks on a terminal. Candidate text is cleaned of what a terminal would obey, and is never markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pallas_evo.reporting.charts import Strokes, bars, curve, running_best, strokes
from pallas_evo.reporting.screen import ID_DIGITS, Grid, device_of, head, say, score_of
from pallas_evo.reporting.text import NOTHING, clean, day, filters_passed, fixed, one_line
from pallas_evo.reporting.views import UNTIMED, ProgramRow, RunView, Step, TaskDetail, TaskView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_RUNS = 20
_MOST_ISLANDS = 40
_MOST_GENERATIONS = 60  # lines in a pipe


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
        say(screen, f"[{where[source]}] {source}")
    if repeats:
        some = f", {repeats[0]}" if len(repeats) == 1 else f", {repeats[0]} and {len(repeats) - 1} more"
        say(screen, f"Runs that an archive above holds whole are not counted twice ({len(repeats)}{some})")
    if runs:
        say(screen, "")
        screen.print(_runs_table(screen, runs[-_MOST_RUNS:], where))
        if len(runs) > _MOST_RUNS:
            say(screen, f"The newest {_MOST_RUNS} of {len(runs)} runs; --json lists all.")
        for run in {run.id: run for run in runs[-_MOST_RUNS:] if run.message}.values():
            say(screen, f"{one_line(run.name or run.id, 40)}: {one_line(run.message, 400)}")
    ranked = [view for view in tasks if view.best]
    if ranked:
        say(screen, "")
        screen.print(_best_table(screen, ranked, where))
    shown = {(view.source, view.task) for view in ranked}
    empty = sorted({view.task for view in tasks if (view.source, view.task) not in shown})
    if empty:
        say(screen, f"No correct program yet ({len(empty)}): {one_line(', '.join(empty), 400)}")
    programs, evaluations, accepted = _totals(tasks)
    say(screen, _counted(programs, evaluations, accepted))


def _counted(programs: int, evaluations: int, accepted: int) -> str:
    def some(count: int, noun: str) -> str:
        return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

    return f"{some(programs, 'program')}, {some(evaluations, 'evaluation')}, {accepted} accepted"


def _totals(tasks: Sequence[TaskView]) -> tuple[int, int, int]:
    """A task that stands there under two identities counts once."""
    once = {(view.source, view.task): view for view in tasks}.values()
    return (
        sum(view.programs for view in once),
        sum(view.evaluations for view in once),
        sum(view.accepted for view in once),
    )


def _runs_table(screen: Console, runs: Sequence[RunView], where: Mapping[str, str]) -> Table:
    names = ("<?in", "<run", "<?date", "<task", "<?device", "?programs", "correct", "best", "?seed", "gain")
    grid = Grid(screen, *names)
    for run in runs:
        grid.add(
            where[run.source],
            one_line(run.name or run.id, 32) + ("" if run.status in ("", "finished") else f" ({run.status})"),
            day(run.date),
            one_line(run.task or NOTHING, 32),
            device_of(run.device, run.timer),
            str(run.programs) if run.programs or run.evaluations else NOTHING,
            str(run.correct) if run.programs or run.evaluations else NOTHING,
            score_of(run.best, run.timer),
            score_of(run.seed, run.timer),
            fixed(run.gain, 2, "x"),
        )
    return grid.table()


def _under(view: TaskView) -> str:
    """What makes the view's scores comparable, beside task and device."""
    parts = [f"task version {view.version}" if view.version else "", view.timer or "", ", ".join(view.sizes)]
    return "; ".join(one_line(part, 40) for part in parts if part and part != UNTIMED)


_BEST = ("score", "us", "XLA us", "roofline", "<?filters")


def _best_table(screen: Console, tasks: Sequence[TaskView], where: Mapping[str, str]) -> Table:
    grid = Grid(screen, "<?in", "<task", "<?device", "<program", "<", *_BEST)
    newest: dict[tuple[str, str], int | None] = {}
    for view in tasks:
        latest = newest.setdefault((view.source, view.task), view.version)
        version = f" v{view.version}" if view.version != latest else ""
        for place, row in enumerate(view.best):
            first = place == 0
            grid.add(
                where[view.source] if first else "",
                one_line(view.task, 40) + version if first else "",
                device_of(view.device, view.timer) if first else "",
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
        score_of(row.score, row.timer),
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
    head(screen, f"{view.task}  {device_of(view.device, view.timer)}  {f'({under})  ' if under else ''}{view.source}")
    say(screen, _counted(view.programs, view.evaluations, view.accepted))
    if view.best:
        grid = Grid(screen, "<program", "<", "<?name", *_BEST)
        seed = [view.seed] if view.seed is not None and view.seed.id not in {row.id for row in view.best} else []
        for row in (*view.best, *seed):
            grid.add(clean(row.id)[:ID_DIGITS], _kind(row, view), one_line(row.name or "", 30), *_scores(row))
        screen.print(grid.table())
    _progress(screen, detail, draw)
    if view.rejected:
        head(screen, "Rejected, by reason")
        named = {one_line(name, 40): count for name, count in view.rejected.items()}
        say(screen, "\n".join(bars(named, draw=draw)))
    if detail.islands:
        head(screen, "Islands")
        grid = Grid(screen, "<run", "island", "programs", "correct", "best")
        for step in detail.islands[:_MOST_ISLANDS]:
            island = NOTHING if step.step is None else str(step.step)
            best = score_of(step.best, view.timer)
            grid.add(one_line(step.run, 40), island, str(step.evaluations), str(step.correct), best)
        screen.print(grid.table())
        if len(detail.islands) > _MOST_ISLANDS:
            say(screen, f"{_MOST_ISLANDS} of {len(detail.islands)}; --json lists all.")


def _progress(screen: Console, detail: TaskDetail, draw: Strokes) -> None:
    """The best so far over generations: a curve on a terminal, a line of numbers for each in a pipe."""
    steps = by_step(detail.generations)
    if not steps:
        return
    best = running_best([score for _, _, _, score in steps])
    if screen.is_terminal and len(steps) > 1 and detail.view.timer != UNTIMED and best[-1] is not None:
        head(screen, f"Best score so far, generation {steps[0][0]} to {steps[-1][0]}")
        say(screen, "\n".join(curve([score for _, _, _, score in steps], width=min(60, screen.width - 14), draw=draw)))
        return
    shown = list(zip(steps, best, strict=True))
    said = "Generations"
    if len(steps) > _MOST_GENERATIONS:  # those in which the best rose, and the last
        shown = [one for one, before in zip(shown, [None, *best[:-1]], strict=True) if one[1] != before] + [shown[-1]]
        shown = shown[-_MOST_GENERATIONS:]
        said = f"Generations in which the best rose, and the last of {len(steps)}; --json lists all"
    head(screen, said)
    timer = detail.view.timer
    grid = Grid(screen, "generation", "programs", "correct", "best", "best so far")
    for (step, evaluations, correct, score), so_far in shown:
        grid.add(str(step), str(evaluations), str(correct), score_of(score, timer), score_of(so_far, timer))
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
    return [(step, *found[step]) for step in sorted(found)]
