"""`python -m pallas_evo.seed`: build the archive of the 45 seeds and verify each as far as this machine can.

What is verified already, for this source, on this kind of machine, by this code, is not verified again unless asked:
the second run takes seconds, and one that was killed goes on where it ended. Each verdict is on the disk as soon as it
stands.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas_evo.errors import PallasEvoError
from pallas_evo.paths import DEFAULT_ARCHIVE, SEEDS, original_file, seed_file
from pallas_evo.tasks import get_task, load_tasks
from pallas_evo.types import Task

if TYPE_CHECKING:
    from pallas_evo.archive import Archive, ProgramRecord
    from pallas_evo.verification import Rung, Verification

FINDINGS_FILE = SEEDS / "tpu" / "findings.json"
FIXES_FILE = SEEDS / "tpu" / "fixes.json"
MOST_THREADS = 8

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass
class Outcome:
    """One seed: where it stands in the archive, its rungs by name, and our own failure, if one came between."""

    task: Task
    sha256: str
    parent_sha256: str
    rungs: dict[str, Rung] = field(default_factory=dict)
    fresh: bool = False
    trouble: str | None = None

    @property
    def verified(self) -> bool:
        """Whether every rung that this machine can run was reached and passed."""
        return self.trouble is None and bool(self.rungs) and not self.failed

    @property
    def failed(self) -> list[Rung]:
        return [one for one in self.rungs.values() if one.passed is False]


@app.command()
def seed(
    archive: Annotated[
        str, typer.Option(metavar="URL", help="The archive: a path to an SQLite file, or a SQLAlchemy URL.")
    ] = str(DEFAULT_ARCHIVE),
    only: Annotated[str | None, typer.Option(metavar="ID", help="One task's seed only, for example L1/relu.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Verify what is verified already, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout in place of the table.")] = False,
) -> None:
    """Build the archive of seed kernels, verify each as far as this machine can, and say so.

    Exit codes: 0 all verified, 1 a seed falls short, 2 a wrong option, task or archive, 3 our own failure.

    Example: python -m pallas_evo.seed --only L1/softmax --archive /tmp/seeds.sqlite
    """
    started = time.perf_counter()
    tasks = load_tasks() if only is None else (get_task(only),)
    # The references need JAX's CPU backend alone: no GPU memory is taken, and its greeting is no news to anybody.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from pallas_evo.archive import open_archive, sha256_of_json
    from pallas_evo.verification import Verification, environment, gpu_name

    with open_archive(archive) as store, _interruptible():
        gpu = gpu_name()
        here = environment(gpu)
        verification = Verification(gpu=gpu)
        run_id = f"seed-{sha256_of_json(here)[:16]}" + (f"-{only.replace('/', '-')}" if only else "")
        outcomes = _store_programs(store, tasks)
        run = store.add_run("seed", run_id=run_id, task=only, environment=here)
        _verify_all(store, verification, outcomes, here, again=again)
        line = summary_line(outcomes, verification)
        code = _exit_code(outcomes)
        status = "failed" if code else "finished"
        if (run.status, run.message) != (status, line):
            store.finish_run(run_id, status=status, message=line)
        if as_json:
            report = _report(store, outcomes, here, line, time.perf_counter() - started)
            sys.stdout.write(json.dumps(report, allow_nan=False) + "\n")
        else:
            _print_table(outcomes)
            sys.stdout.write(line + "\n")
    sys.stdout.flush()
    for outcome in outcomes:
        if outcome.trouble:
            sys.stderr.write(f"{outcome.task.id}: {outcome.trouble}\n")
        for rung in outcome.failed:
            sys.stderr.write(f"{outcome.task.id}: {rung.name}: {rung.message}\n")
    raise typer.Exit(code)


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. What was verified is stored; the next run goes on from there.\n")
        raise typer.Exit(130) from None


# ---- what is stored before anything is verified


def _store_programs(store: Archive, tasks: Sequence[Task]) -> list[Outcome]:
    """Tasks, originals with what the GPU gates say to them, and seeds: one transaction, the same however often."""
    measured = json.loads(_text(FINDINGS_FILE))
    fixes = json.loads(_text(FIXES_FILE))
    outcomes = []
    with store.batch():
        store.add_tasks(tasks)
        for task in tasks:
            name = task.id.partition("/")[2]
            original = store.add_program(
                task.id, _text(original_file(task.id)), origin="tpu_original", name=f"{name} (TPU original)"
            )
            _store_finding(store, original, measured, fixes[task.id]["fix"])
            kernel = store.add_program(
                task.id, _text(seed_file(task.id)), origin="seed", parent_sha256=original.sha256, name=name
            )
            outcomes.append(Outcome(task=task, sha256=kernel.sha256, parent_sha256=original.sha256))
    return outcomes


def _store_finding(store: Archive, original: ProgramRecord, measured: Mapping[str, Any], fix: str) -> None:
    """What was measured of this very source; of an original that was changed since, nothing is known."""
    finding = measured["findings"].get(original.task)
    if finding is None or finding["source_sha256"] != original.sha256:
        return
    store.add_finding(
        original,
        finding["reason"],
        finding["message"],
        environment=measured["environment"],
        fix=fix,
        details=finding["details"],
    )


def _text(path: os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise PallasEvoError(
            f"{path}: a file of this package cannot be read ({error.strerror}). Install it again."
        ) from (error)


# ---- verifying


def _verify_all(
    store: Archive,
    verification: Verification,
    outcomes: Sequence[Outcome],
    here: Mapping[str, Any],
    *,
    again: bool,
) -> None:
    """Every seed's rungs, on a few threads that each drive child processes; verdicts go to the archive as they come."""
    from pallas_evo.verification import RUNGS, Rung

    missing = verification.not_run()
    for outcome in outcomes:
        known = {} if again else _known(store, outcome, here)
        outcome.rungs = {name: known[name] for name in RUNGS if name in known}
        outcome.rungs |= {name: Rung(name=name, passed=None, message=why) for name, why in missing.items()}
    left = [outcome for outcome in outcomes if set(RUNGS) - set(outcome.rungs)]
    if not left:
        return
    # The heaviest, of the last level, first: the pool then ends evenly.
    jobs: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    for outcome in sorted(left, key=lambda one: -one.task.level):
        jobs.put(outcome)
    stop = threading.Event()
    with _progress(len(outcomes), len(outcomes) - len(left)) as advance:

        def work() -> None:
            while not stop.is_set():
                try:
                    outcome = jobs.get_nowait()
                except queue.Empty:
                    return
                try:
                    _verify(store, verification, outcome, here, replace=again)
                except PallasEvoError as error:
                    outcome.trouble = str(error)
                advance(outcome.task.id)

        threads = min(MOST_THREADS, max(2, len(os.sched_getaffinity(0))), len(left))
        with ThreadPoolExecutor(threads, thread_name_prefix="seed") as pool:
            try:
                for future in [pool.submit(work) for _ in range(threads)]:
                    future.result()
            finally:
                stop.set()  # an interrupt, or an error that is nobody's: the others end after their present seed


def _known(store: Archive, outcome: Outcome, here: Mapping[str, Any]) -> dict[str, Rung]:
    """Rungs that this source reached before in just this environment. What failed is tried again."""
    from pallas_evo.verification import Rung

    stored = store.verifications(program=(outcome.task.id, outcome.sha256), environment=here)
    return {
        one.rung: Rung(
            name=one.rung,
            passed=True,
            message=one.message,
            seconds=one.details.get("seconds"),
            details={name: value for name, value in one.details.items() if name != "seconds"},
        )
        for one in stored
        if one.passed
    }


def _verify(
    store: Archive, verification: Verification, outcome: Outcome, here: Mapping[str, Any], *, replace: bool
) -> None:
    from pallas_evo.verification import RUNGS

    outcome.fresh = True
    source = _text(seed_file(outcome.task.id))
    wanted = [name for name in RUNGS if name not in outcome.rungs]
    found: dict[str, Rung] = {}
    for rung in verification.verify(outcome.task, source, wanted):
        if rung.evaluation is not None:  # the verdict before what rests on it
            store.add_evaluation((outcome.task.id, outcome.sha256), rung.evaluation)
            rung = replace_fields(rung, evaluation=None)
        found[rung.name] = rung
        if rung.passed is not None:
            store.add_verification(
                (outcome.task.id, outcome.sha256),
                rung.name,
                passed=rung.passed,
                environment=here,
                message=rung.message,
                details={**rung.details, "seconds": rung.seconds},
                replace=replace,
            )
    merged = {**outcome.rungs, **found}
    outcome.rungs = {name: merged[name] for name in RUNGS if name in merged}


@contextmanager
def _progress(total: int, done: int) -> Iterator[Any]:
    """A bar on stderr where that is a terminal; nothing in a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("verifying"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        job = bar.add_task("", total=total, completed=done)
        yield lambda name: bar.update(job, advance=1, description=name)


# ---- what is said at the end


def _exit_code(outcomes: Sequence[Outcome]) -> int:
    if any(outcome.trouble for outcome in outcomes):
        return PallasEvoError.exit_code
    return 0 if all(outcome.verified for outcome in outcomes) else 1


def summary_line(outcomes: Sequence[Outcome], verification: Verification) -> str:
    """`45/45 seeds verified (cpu; sm_80 and sm_90 compiled; no GPU here: device numerics not run)`."""
    from pallas_evo.verification import ARCHITECTURES

    missing = verification.not_run()
    unread = {one.rungs["ptx"].message for one in outcomes if "ptx" in one.rungs and one.rungs["ptx"].passed is None}
    not_compiled = missing.get("ptx") or next((why for why in sorted(unread) if "reached" not in why), None)
    compiled = f"{not_compiled}: not compiled" if not_compiled else f"{' and '.join(ARCHITECTURES)} compiled"
    device = (
        f"{missing['numerics_gpu']}: device numerics not run"
        if "numerics_gpu" in missing
        else f"device numerics on {verification.gpu}"
    )
    verified = sum(outcome.verified for outcome in outcomes)
    plural = "" if len(outcomes) == 1 else "s"
    return f"{verified}/{len(outcomes)} seed{plural} verified (cpu; {compiled}; {device})"


def _figures(outcome: Outcome) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The compiled figures at sm_80, medium, and the numerics case nearest its bound."""
    from pallas_evo.verification import worst_case

    ptx = outcome.rungs.get("ptx")
    compiled = ptx.details.get("sizes", {}).get("medium", {}).get("sm_80") if ptx else None
    cases = [
        case
        for name in ("numerics_cpu", "numerics_gpu")
        if name in outcome.rungs and (case := worst_case(outcome.rungs[name]))
    ]
    worst = max(cases, key=lambda case: case["normwise_error"] / (case["bound"] or float("inf")), default=None)
    return compiled, worst


def _print_table(outcomes: Sequence[Outcome]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from pallas_evo.verification import RUNGS

    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    mark = {True: "✓", False: "✗", None: "·"} if unicode else {True: "yes", False: "NO", None: "-"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, safe_box=True)
    table.add_column("seed", no_wrap=True)
    for name in ("trace", "lower", "ptx", "cpu", "judge", "gpu"):
        table.add_column(name, justify="center", no_wrap=True)
    for name in ("regs", "spills", "shared", "error", "bound"):  # short, so that all of it fits 120 columns
        table.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        compiled, worst = _figures(outcome)
        marks = [mark[outcome.rungs[name].passed] if name in outcome.rungs else mark[None] for name in RUNGS]
        sizes = [str(compiled[name]) for name in ("registers", "spill_bytes", "shared_bytes")] if compiled else [""] * 3
        errors = (
            [f"{worst[name]:.1e}" if worst[name] else "exact" for name in ("normwise_error", "bound")] if worst else []
        )
        table.add_row(outcome.task.id, *marks, *sizes, *errors)
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=120)
    console.print(table)
    console.print("registers, spills and shared bytes: sm_80 at medium; error and bound: normwise, the nearest case\n")


def _report(
    store: Archive, outcomes: Sequence[Outcome], here: Mapping[str, Any], line: str, seconds: float
) -> dict[str, Any]:
    """The object of `--json`."""
    seeds = []
    for outcome in outcomes:
        findings = store.findings(program=(outcome.task.id, outcome.parent_sha256))
        seeds.append(
            {
                "task": outcome.task.id,
                "sha256": outcome.sha256,
                "verified": outcome.verified,
                "verified_before": not outcome.fresh,
                "trouble": outcome.trouble,
                "rungs": {
                    name: {key: value for key, value in asdict(rung).items() if key != "evaluation"}
                    for name, rung in outcome.rungs.items()
                },
                "original": {
                    "sha256": outcome.parent_sha256,
                    "findings": [
                        {"reason": one.reason, "message": one.message, "fix": one.fix, **one.details}
                        for one in findings
                    ],
                },
            }
        )
    return {
        "archive": store.name,
        "verified": sum(outcome.verified for outcome in outcomes),
        "total": len(outcomes),
        "summary": line,
        "environment": dict(here),
        "seeds": seeds,
        "duration_s": round(seconds, 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. What is wrong is said in one sentence on stderr."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="python -m pallas_evo.seed")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except PallasEvoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
