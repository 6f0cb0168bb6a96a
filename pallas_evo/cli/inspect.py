"""`pallas_evo inspect`: what evolution did, on the terminal, as JSON, as a page and as plots."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pallas_evo.errors import ArchiveError, PallasEvoError, UsageError

if TYPE_CHECKING:
    from pallas_evo.cli.sources import Found
    from pallas_evo.reporting.views import ProgramDetail, Reader, RunView, TaskView

T = TypeVar("T")

_UNREADABLE = (PallasEvoError, ValueError, TypeError, LookupError, AttributeError)
"""What reading a source raises whose rows are damaged: what should be JSON or a date is none, a column is gone."""
_OVERVIEW_BEST = 3
_TASK_BEST = 10


def inspect(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder, searched at any depth, a database, or a URL.")],
    task: Annotated[str | None, typer.Option(metavar="ID", help="One task: progress, rejections, islands.")] = None,
    program: Annotated[
        str | None, typer.Option(metavar="ID", help="One program in full, by its id or the first digits of it.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page (needs the extra `report`).")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the plots as PNG and SVG (needs the extra `report`).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout in place of the tables.")] = False,
) -> None:
    """Show what archives and ShinkaEvolve runs below PATH hold. Nothing is written to them.

    Example: pallas_evo inspect runs/ --task L1/softmax
    """
    from pallas_evo.cli.sources import opened

    with opened(path) as found:
        for problem in found.problems:
            _leave_out(problem)
        if program is not None:
            _show_program(found, program, task, as_json=as_json)
        elif task is not None:
            _show_task(found, task, as_json=as_json)
        elif as_json or (html is None and plots is None):
            _show_overview(found, as_json=as_json)
        if html is not None or plots is not None:
            _write(found, html, plots)


def _leave_out(problem: str) -> None:
    sys.stderr.write(f"left out: {problem}\n")


def _read(found: Found, wanted: Callable[[Reader], T]) -> list[T]:
    """What each reader says. One that cannot, a damaged file for one, is named and left out from then on.

    Raises:
        ArchiveError: none can.
    """
    said = []
    for reader in list(found.readers):
        try:
            said.append(wanted(reader))
        except PallasEvoError as error:
            problem: PallasEvoError = error
        except _UNREADABLE as error:
            problem = ArchiveError(
                f"{reader.name}: expected rows of an archive or a run, came some that cannot be read "
                f"({type(error).__name__}: {error}). It was left as it was; make it anew or give another."
            )
        else:
            continue
        if len(found.readers) == 1:
            raise problem
        found.readers.remove(reader)
        found.problems.append(str(problem))
        _leave_out(str(problem))
    return said


def _document(found: Found, **more: Any) -> str:
    """The one JSON document: what was read, what was left out, then the content."""
    from pallas_evo.reporting.text import jsonable

    content = {
        "sources": [reader.name for reader in found.readers],
        "repeats": [reader.name for reader in found.repeats],
        "problems": found.problems,
        **more,
    }
    return json.dumps(jsonable(content), allow_nan=False) + "\n"


def _show_overview(found: Found, *, as_json: bool) -> None:
    from pallas_evo.cli.rendering import console
    from pallas_evo.reporting.terminal import print_overview

    def both(reader: Reader) -> tuple[tuple[RunView, ...], tuple[TaskView, ...]]:
        return reader.runs(), reader.tasks(best=_OVERVIEW_BEST)

    said = _read(found, both)
    # The latest run last, whichever source it is of; runs without a date first.
    runs = sorted((run for mine, _ in said for run in mine), key=lambda run: run.date.timestamp() if run.date else 0.0)
    tasks = [view for _, mine in said for view in mine]
    if as_json:
        sys.stdout.write(_document(found, runs=runs, tasks=tasks))
    else:
        sources = [reader.name for reader in found.readers]
        print_overview(console(), sources, runs, tasks, [reader.name for reader in found.repeats])


def _show_task(found: Found, task: str, *, as_json: bool) -> None:
    from pallas_evo.cli.rendering import console
    from pallas_evo.reporting.terminal import print_task

    said = _read(found, lambda reader: [reader.detail(view) for view in reader.tasks(best=_TASK_BEST, only=task)])
    details = [detail for mine in said for detail in mine]
    if not details:
        known = sorted({view.task for mine in _read(found, lambda reader: reader.tasks(best=1)) for view in mine})
        raise UsageError(
            f"--task: expected a task that is here ({', '.join(known) or 'there is none'}), came {task!r}."
        )
    if as_json:
        sys.stdout.write(_document(found, task=task, views=details))
        return
    for detail in details:
        print_task(console(), detail)


def _show_program(found: Found, prefix: str, task: str | None, *, as_json: bool) -> None:
    from pallas_evo.cli.rendering import console
    from pallas_evo.reporting.terminal_program import print_program

    detail = _with_original(_program(found, prefix.strip(), task))
    if as_json:
        sys.stdout.write(_document(found, program=detail))
    else:
        print_program(console(), detail)


def _program(found: Found, prefix: str, task: str | None) -> ProgramDetail:
    """The one program, wherever it lies; the first that has it where several do."""
    from pallas_evo.cli.sources import Found

    if not prefix:
        raise UsageError("--program: expected the first digits of a program's id, came nothing.")
    everywhere = Found(readers=[*found.readers, *found.repeats], problems=found.problems)
    said = _read(everywhere, lambda reader: [(reader, *key) for key in reader.find(prefix, task)])
    places = [place for mine in said for place in mine]
    if not places:
        where = f" of {task}" if task else ""
        raise UsageError(
            f"--program: expected the first digits of a program{where} that is here, came {prefix!r}. "
            "List programs: pallas_evo inspect PATH --task ID"
        )
    if len({(of, id) for _, of, id in places}) > 1:
        some = ", ".join(dict.fromkeys(f"{of} {id[:16]}" for _, of, id in places[:8]))
        more = ", ..." if len(places) > 8 else ""
        raise UsageError(
            f"--program: {prefix!r} begins more than one program: {some}{more}. Give more digits, or --task."
        )
    reader, of, id = places[0]
    return _read(Found(readers=[reader]), lambda reader: reader.program(of, id))[0]


def _with_original(detail: ProgramDetail) -> ProgramDetail:
    """The lineage with the TPU-sized original behind it, where it ends at the seed that comes with us."""
    from pallas_evo.paths import original_file, seed_file
    from pallas_evo.reporting.views import ProgramRow

    rows = (detail.row, *detail.lineage)
    first = rows[-1]
    source = detail.lineage_code.get(first.id) if detail.lineage else detail.code
    if any(row.origin == "tpu_original" for row in rows):
        return detail
    try:
        if source != seed_file(first.task).read_text(encoding="utf-8"):
            return detail
        original = original_file(first.task).read_text(encoding="utf-8")
    except (OSError, ValueError):  # a task of somebody else's
        return detail
    from pallas_evo.archive import sha256_of_text

    id = sha256_of_text(original)
    row = ProgramRow(task=first.task, id=id, name="seeds/tpu, as it comes with pallas_evo", origin="tpu_original")
    return replace(detail, lineage=(*detail.lineage, row), lineage_code={**detail.lineage_code, id: original})


def _write(found: Found, html: Path | None, plots: Path | None) -> None:
    """The page and the plots, of one reading."""
    from pallas_evo.cli.facts import facts
    from pallas_evo.reporting.report import read_report, write_html

    known = facts()
    try:
        report = read_report(found.readers, known, problems=found.problems)
    except _UNREADABLE:  # each by itself, so that the one that cannot be read is named and left out
        _read(found, lambda reader: read_report([reader], known))
        report = read_report(found.readers, known, problems=found.problems)
    if html is not None:
        write_html(report, html)
        sys.stderr.write(f"{html}: written\n")
    if plots is not None:
        from pallas_evo.reporting.plots import write_plots

        made = write_plots(report, plots)
        sys.stderr.write(f"{plots}: {len(made)} files written\n")
