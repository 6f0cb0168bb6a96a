"""`pallas_evo export`: what an archive holds as a dataset, or as training pairs."""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas_evo.errors import PallasEvoError, UsageError

if TYPE_CHECKING:
    from pallas_evo.archive import Archive
    from pallas_evo.reporting.dataset_rows import TaskFacts


class Format(StrEnum):
    """What is written."""

    archive = "archive"
    kernelbook = "kernelbook"


def export(
    source: Annotated[str, typer.Argument(metavar="SRC", help="An archive, a folder with some, or a URL.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make; an earlier export is replaced.")],
    form: Annotated[
        Format, typer.Option("--format", help="The dataset (needs the extra `export`), or pairs before and after.")
    ] = Format.archive,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout in place of the lines.")] = False,
) -> None:
    """Write what archives and ShinkaEvolve runs hold as a dataset. Nothing is written to them.

    Example: pallas_evo export runs/archive.sqlite --out dataset
    """
    from pallas_evo import __version__
    from pallas_evo.reporting.dataset_folder import new_folder
    from pallas_evo.reporting.kernelbook import write_kernelbook

    if not str(out):
        raise UsageError("--out: expected a folder, came nothing.")
    write: Any = write_kernelbook
    if form is Format.archive:
        try:
            from pallas_evo.reporting.dataset import write_dataset
        except ModuleNotFoundError as error:
            raise UsageError(f"--format archive needs {error.name}. Run: pip install 'pallas-evo[export]'") from error
        write = write_dataset
    with new_folder(out) as folder, archive_of(source) as archive:
        known = task_facts()
        for task in archive.tasks():
            if task.id not in known:
                sys.stderr.write(f"left out: {task.id} is none of the tasks of this pallas_evo\n")
        tally = write(archive, known, folder, version=__version__, day=f"{datetime.now(UTC):%Y-%m-%d}")
        if not tally.programs:
            raise UsageError(f"{source}: expected programs to export, and there are none.")
        files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    rows = {level: tally.rows[level] for level in sorted(tally.rows)}
    if as_json:
        said = {"out": str(out), "format": form.value, "programs": tally.programs, "rows": sum(rows.values())}
        sys.stdout.write(json.dumps({**said, "rows_by_level": rows, "files": files}) + "\n")
        return
    for name, size in files.items():
        sys.stdout.write(f"{out / name}  {size / 1e6:.1f} MB\n")
    sys.stdout.write(f"{tally.programs} programs, {sum(rows.values())} verdicts\n")


def task_facts() -> dict[str, TaskFacts]:
    """What the dataset says of each of the 45 tasks."""
    from pallas_evo.archive import sha256_of_text
    from pallas_evo.paths import SEEDS, original_file, seed_file
    from pallas_evo.reporting.dataset_rows import TaskFacts
    from pallas_evo.tasks import load_tasks
    from pallas_evo.tasks.listing import reference_source

    fixes = json.loads((SEEDS / "tpu" / "fixes.json").read_text(encoding="utf-8"))
    return {
        task.id: TaskFacts(
            id=task.id,
            number=task.number,
            level=task.level,
            version=task.version,
            original=original_file(task.id).read_text(encoding="utf-8"),
            baseline=reference_source(task.id),
            seed_sha256=sha256_of_text(seed_file(task.id).read_text(encoding="utf-8")),
            fix=fixes.get(task.id, {}).get("fix"),
        )
        for task in load_tasks()
    }


@contextmanager
def archive_of(source: str) -> Iterator[Archive]:
    """What lies at a path or behind a URL as one archive: it itself, or several and run folders put together.

    Raises:
        UsageError: nothing there can be exported.
    """
    from pallas_evo.archive import open_archive
    from pallas_evo.cli.sources import opened
    from pallas_evo.reporting.archived import ArchiveReader
    from pallas_evo.reporting.shinka import ShinkaReader

    with opened(source) as found, ExitStack() as stack:
        archives = [reader.archive for reader in found.readers if isinstance(reader, ArchiveReader)]
        runs = [reader for reader in found.readers if isinstance(reader, ShinkaReader)]
        if len(archives) == 1 and not runs:
            _say(found.problems)
            yield archives[0]
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pallas-evo-")))
        together = stack.enter_context(open_archive(folder / "together.sqlite"))
        for one in archives:
            one.copy_into(together)
        problems = [*found.problems, *_add_runs(together, runs, folder)]
        if not archives and not together.summary().programs:
            raise UsageError("\n".join(problems))
        _say(problems)
        yield together


def _say(problems: Sequence[str]) -> None:
    for problem in problems:
        sys.stderr.write(f"left out: {problem}\n")


def _add_runs(archive: Archive, runs: Sequence[Any], folder: Path) -> list[str]:
    """Add run folders to an archive; a sentence for each that holds no verdicts of ours."""
    from pallas_evo.evolution.archiving import archive_run
    from pallas_evo.evolution.rundir import RunSettings
    from pallas_evo.tasks import get_task

    problems = []
    for number, run in enumerate(runs):
        wanted = "expected a run whose programs pallas_evo judged"
        name = run.tasks(best=1)[0].task if run.tasks(best=1) else ""
        try:
            task = get_task(name)
        except UsageError:
            problems.append(f"{run.name}: {wanted}, and it is of no task of ours. inspect shows it.")
            continue
        copy = folder / f"run-{number}.sqlite"
        settings = RunSettings(task=task.id, generations=0, run_id=run.run_id[:32])
        try:
            run.copy_to(copy)
            if not archive_run(archive, run.folder, settings, task, database=copy):
                problems.append(f"{run.name}: {wanted}, and no gen_*/results/evaluation.json is. inspect shows it.")
        except PallasEvoError as error:
            problems.append(str(error))
        except (sqlite3.Error, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{run.name}: {wanted}, and its files are not as ours are ({error}). inspect shows it.")
    return problems
