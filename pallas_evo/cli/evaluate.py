"""`pallas_evo evaluate`: every verdict is in the archive before it is printed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas_evo.errors import UsageError, WorkerFailed
from pallas_evo.paths import DEFAULT_ARCHIVE, is_seed
from pallas_evo.tasks import get_task
from pallas_evo.types import Evaluation, Task

if TYPE_CHECKING:
    from pallas_evo.archive import Archive
    from pallas_evo.config import Config

MOST_BYTES = 1 << 20
MOST_ASKED = 32  # candidates that one command has in a service's queue at a time


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
    service: Annotated[
        str, typer.Option(metavar="auto|off|PATH", help="Judges that `pallas_evo serve` keeps warm, where it runs.")
    ] = "auto",
    elite: Annotated[
        bool, typer.Option("--elite", help="Judge what is accepted again, with new seeds; the lower score counts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file, one a line.")] = False,
    texts: Annotated[
        bool, typer.Option("--texts", help="With --json: Jaxpr, StableHLO, Triton IR and PTX of what is accepted.")
    ] = False,
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

    settings = load_config(Path(config) if config else None, overrides or ())
    settings.allow_unjailed = settings.allow_unjailed or allow_unjailed
    refused = False
    with ExitStack() as stack, open_archive(archive) as store:
        store.add_tasks([chosen])
        verdicts = stack.enter_context(closing(judge(sources, chosen, target, settings, service)))
        for name, source, first in zip(files, sources, verdicts, strict=True):
            verdict = confirm(first, source, chosen, settings, target) if elite else first
            stored = record(store, chosen, source, verdict, to_yaml(settings))
            refused = refused or not verdict.correct
            if as_json:
                more = {"texts_size": verdict.texts_size, "texts": dict(verdict.texts)} if texts else {}
                line = evaluation_to_json(verdict, evaluation_id=stored, file=name, **more)
                sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
            else:
                print_evaluation(name, verdict)
            sys.stdout.flush()
    raise typer.Exit(1 if refused else 0)


def judge(
    sources: Sequence[str], task: Task, target: Target, settings: Config, service: str = "off"
) -> Generator[Evaluation, None, None]:
    """Verdicts in order, from the service where it gives one, else from a judge of our own.

    Raises:
        WorkerFailed: the service failed, as it says.
    """
    from pallas_evo.archive.encoding import build
    from pallas_evo.config import to_yaml
    from pallas_evo.pool import client

    given_up = threading.Event()

    def look() -> None:
        if given_up.is_set():
            raise InterruptedError

    def ask(source: str) -> dict[str, Any] | None:
        request = {"source": source, "task": task.id, "target": target.value, "config_text": to_yaml(settings)}
        return None if without.is_set() else client.ask(request, service=service, look=look, say=once)

    without = threading.Event()  # one complaint, and one command does without from there on
    speaking = threading.Lock()

    def once(line: str) -> None:
        with speaking:
            if not without.is_set():
                sys.stderr.write(f"{line}\n")
            without.set()

    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(min(MOST_ASKED, len(sources)), thread_name_prefix="ask"))
        stack.callback(given_up.set)
        evaluator = None
        answers = [threads.submit(ask, source) for source in sources] if service != "off" else [None] * len(sources)
        stack.callback(lambda: [answer.cancel() for answer in answers if answer is not None])
        for index, (source, asked) in enumerate(zip(sources, answers, strict=True)):
            answer = asked.result() if asked is not None else None
            if answer is None:
                if evaluator is None:
                    from pallas_evo.evaluation import Evaluator

                    evaluator = stack.enter_context(Evaluator(settings, target=target.value))
                yield evaluator.evaluate(source, task, more=index + 1 < len(sources))
            elif answer["kind"] == "judged":
                yield build(Evaluation, answer["evaluation"])
            elif answer["kind"] == "usage":
                raise UsageError(answer["message"])
            else:
                raise WorkerFailed(answer["message"])


def confirm(first: Evaluation, source: str, task: Task, settings: Config, target: Target) -> Evaluation:
    """An accepted candidate's verdict after a second judgement, as elites get it; a refused one's as it is."""
    if not first.correct:
        return first
    from pallas_evo.evaluation.elites import rejudge

    return rejudge(source, task, settings, target=target.value, first=first)


def record(store: Archive, task: Task, source: str, verdict: Evaluation, config_yaml: str) -> str:
    """Keep a candidate and its verdict; when this returns they are on the disk. Returns the evaluation's id."""
    from pallas_evo.archive import new_id

    stored = new_id()
    baselines = {
        size: {"xla": list(measured["baseline_us"])} for size, measured in verdict.environment.get("timing", {}).items()
    }

    def keep() -> str:
        program = store.add_program(task.id, source, origin="seed" if is_seed(task.id, source) else "candidate")
        return store.add_evaluation(
            program, verdict, config_yaml=config_yaml, other_samples_us=baselines, evaluation_id=stored
        )

    return store.together(keep)


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
