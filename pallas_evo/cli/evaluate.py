"""`pallas_evo evaluate`: every verdict is in the archive before it is printed."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pallas_evo.errors import UsageError
from pallas_evo.paths import DEFAULT_ARCHIVE
from pallas_evo.tasks import get_task
from pallas_evo.types import Evaluation, Task

if TYPE_CHECKING:
    from pallas_evo.archive import Archive

MOST_BYTES = 1 << 20


class Target(StrEnum):
    """Where a candidate is run."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def evaluate(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Candidates, one Python file each.")],
    task: Annotated[str, typer.Option(metavar="ID", help="What they are candidates for, for example L1/relu.")],
    target: Annotated[Target, typer.Option(help="Run on the GPU, in the executor, or on what there is.")] = Target.auto,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="YAML with other limits and thresholds.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="One value, over the file's. May be repeated.")
    ] = None,
    archive: Annotated[
        str, typer.Option(metavar="URL", help="Where verdicts are kept: a path, or a SQLAlchemy URL.")
    ] = str(DEFAULT_ARCHIVE),
    allow_unjailed: Annotated[
        bool, typer.Option("--allow-unjailed", help="Go on where nothing here can confine a candidate.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file, one a line.")] = False,
) -> None:
    """Judge candidates through all gates.

    Exit codes: 0 all accepted, 1 one is refused, 2 a wrong option, task or file, 3 our own failure.

    Example: pallas_evo evaluate mine.py --task L1/softmax --target cpu
    """
    chosen = get_task(task)
    sources = [read_source(name) for name in files]
    from pallas_evo.archive import open_archive
    from pallas_evo.cli.rendering import evaluation_to_json, print_evaluation
    from pallas_evo.config import load_config, to_yaml
    from pallas_evo.evaluation import Evaluator

    settings = load_config(Path(config) if config else None, overrides or ())
    settings.allow_unjailed = settings.allow_unjailed or allow_unjailed
    refused = False
    with open_archive(archive) as store, Evaluator(settings, target=target.value) as evaluator:
        store.add_tasks([chosen])
        for index, (name, source) in enumerate(zip(files, sources, strict=True)):
            verdict = evaluator.evaluate(source, chosen, more=index + 1 < len(files))
            stored = record(store, chosen, source, verdict, to_yaml(settings))
            refused = refused or not verdict.correct
            if as_json:
                line = evaluation_to_json(verdict, evaluation_id=stored, file=name)
                sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
            else:
                print_evaluation(name, verdict)
            sys.stdout.flush()
    raise typer.Exit(1 if refused else 0)


def record(store: Archive, task: Task, source: str, verdict: Evaluation, config_yaml: str) -> str:
    """Keep a candidate and its verdict; when this returns they are on the disk. Returns the evaluation's id."""
    with store.batch():
        program = store.add_program(task.id, source, origin="candidate")
        baselines = {
            size: {"xla": list(measured["baseline_us"])}
            for size, measured in verdict.environment.get("timing", {}).items()
        }
        return store.add_evaluation(program, verdict, config_yaml=config_yaml, other_samples_us=baselines)


def read_source(name: str) -> str:
    """The text of a candidate's file.

    Raises:
        UsageError: it is no readable UTF-8 text file of at most 1 MB.
    """
    path = Path(name)
    try:
        if not name:
            raise UsageError("A file's name is empty. Name a Python file.")
        if path.is_dir():
            raise UsageError(f"{name}: expected a Python file, and it is a folder. Name the file in it.")
        if not path.is_file() and path.exists():
            raise UsageError(f"{name}: expected a regular file, and it is none (a pipe or a device).")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise UsageError(f"{name}: there is no such file. Check the path.") from error
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{name}: the file cannot be read ({said}).") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name}: the file is over 1 MB; a candidate is one Python file of at most 256 KB.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: expected UTF-8 text; byte {error.start} is none. Is it a Python file?") from error
