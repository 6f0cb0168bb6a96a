"""`pallas_evo bench`: what the judge is worth on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pallas_evo.cli.evaluate import Target
from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.tasks import get_task, load_tasks


def bench(
    out: Annotated[str, typer.Option(metavar="DIR", help="Where bench.json and bench.md are written.")] = "runs/bench",
    only: Annotated[
        str | None, typer.Option(metavar="PARTS", help="Some of suite,self,throughput,wall; all by default.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(metavar="IDS", help="Task ids, comma-separated; all by default.")] = None,
    at_once: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Candidates judged at once: a round of throughput for each.")
    ] = "1,2,4,8",
    candidates: Annotated[int, typer.Option(metavar="N", min=1, help="Candidates of a round of throughput.")] = 45,
    judges: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="In the pool. Default: half the cores, at most 8.")
    ] = None,
    target: Annotated[Target, typer.Option(help="cpu: suite and throughput in the executor, untimed.")] = Target.auto,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="YAML for the evaluations.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="One value of it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the record in DIR.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The record on stdout in place of the tables.")] = False,
) -> None:
    """Measure the seeds, the judge and this GPU: times, self-ratios, throughput, wall clock against device time.

    Results are on the disk as they come; --resume goes on after a kill. Exit codes: 0 done, 1 a seed falls short, 2 a
    wrong option, or no GPU, 3 something failed that is ours.

    Example: pallas_evo bench --out runs/mine --only suite,wall
    """
    from pallas_evo.bench import PARTS, Plan, Record, run_bench
    from pallas_evo.bench.running import ON_ANY_MACHINE
    from pallas_evo.bench.table import markdown, our_failures, seeds_accepted
    from pallas_evo.config import load_config
    from pallas_evo.running import gpu_present

    if target is not Target.cpu and not gpu_present():
        raise UsageError(
            "bench times kernels on an NVIDIA GPU, and none was found here. --target cpu runs the suite and the "
            "throughput in the executor, untimed."
        )
    plan = Plan(
        tasks=_tasks(tasks),
        parts=_parts(only, PARTS if target is not Target.cpu else ON_ANY_MACHINE, PARTS),
        target="cpu" if target is Target.cpu else "cuda",
        at_once=_numbers(at_once),
        candidates=candidates,
        judges=judges or max(1, min(8, len(os.sched_getaffinity(0)) // 2)),
        config=load_config(Path(config) if config else None, overrides or ()),
    )
    record = Record(Path(out), resume=resume)
    data = run_bench(plan, record, progress=_progress)
    page = markdown(data)
    (Path(out) / "bench.md").write_text(page, encoding="utf-8")
    sys.stdout.write(json.dumps(data, allow_nan=False) + "\n" if as_json else page)
    sys.stdout.flush()
    failures = our_failures(data)
    for line in failures:
        sys.stderr.write(f"{line}\n")
    accepted, of = seeds_accepted(data)
    raise typer.Exit(PallasEvoError.exit_code if failures else 1 if accepted < of else 0)


def _tasks(ids: str | None) -> tuple[str, ...]:
    if ids is None:
        return tuple(task.id for task in load_tasks())
    return tuple(dict.fromkeys(get_task(name.strip()).id for name in ids.split(",")))


def _parts(only: str | None, default: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    if only is None:
        return default
    named = [name.strip() for name in only.split(",")]
    for name in named:
        if name not in known:
            raise UsageError(f"--only {name}: there is no such part. Choose from {', '.join(known)}.")
    return tuple(named)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise UsageError(f"--at-once {text}: expected numbers from 1 on, comma-separated, for example 1,2,4,8.")
    return tuple(dict.fromkeys(found))


@contextmanager
def _progress(what: str, count: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr where that is a terminal; nothing in a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        job = bar.add_task("", total=count)
        yield lambda name: bar.update(job, advance=1, description=name)
