"""A whole evolution: population, ShinkaEvolve's runner, progress, and the programs in our archive at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pallas_evo.archive import Archive, open_archive
from pallas_evo.archive.encoding import new_id
from pallas_evo.config import Config, load_config, to_yaml
from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.evolution import rundir
from pallas_evo.evolution.archiving import archive_run
from pallas_evo.evolution.elites import Elites
from pallas_evo.evolution.mutator import OfflineMutator
from pallas_evo.evolution.prompt import system_message
from pallas_evo.evolution.rundir import EVALUATION, RunSettings
from pallas_evo.evolution.service import offline_service
from pallas_evo.paths import DEFAULT_ARCHIVE, EVALUATORS
from pallas_evo.tasks import get_task
from pallas_evo.types import Task

OFFLINE = "offline"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to. `best_program` is a file in the run's folder; rejections are by reason."""

    run_id: str
    folder: Path
    programs: int
    seed_score: float
    best_score: float
    best_program: Path
    best_generation: int
    rejections: dict[str, int]
    seconds: float


def evolve(
    settings: RunSettings,
    *,
    folder: Path | None = None,
    archive: str | Path = DEFAULT_ARCHIVE,
    config: Config | None = None,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Run an evolution, or go on with the one in `folder`.

    Args:
        settings: what to run. A run that is resumed keeps its own and takes `generations` only.
        folder: the run's folder; a new one under `runs/` where none is given.
        archive: where the programs are kept.
        config: the evaluation's configuration; a run that is resumed keeps its own.
        say: takes lines of progress; stderr where none is given.

    Raises:
        UsageError: the folder cannot be used, or holds another task's run.
        PallasEvoError: we failed. What was stored stays, and the run can be resumed.
    """
    task = get_task(settings.task)
    folder = (folder or rundir.new_folder(task.id)).absolute()
    say = say or _to_stderr
    rundir.make_folder(folder)
    settings = _resumed(folder, settings, config or Config())
    start = time.monotonic()
    with open_archive(archive) as store, _terminable():
        lost = rundir.clear_unfinished(folder) if settings.population else 0
        progress = _Progress(settings.generations, say)
        runner: Any = None
        try:
            with _quiet(folder), _service(folder, settings) as (model, mutator):
                settings = _populated(folder, settings, task, store, say)
                progress.count_from(folder)
                _learn(folder, mutator)

                def on_program(generation: int, metrics: dict[str, Any], correct: bool) -> None:
                    progress.program(generation, metrics, correct)
                    score = float(metrics.get("combined_score", 0.0)) if correct else 0.0
                    if mutator is not None:
                        mutator.learn((folder / f"gen_{generation}" / "main.py").read_text(encoding="utf-8"), score)

                runner = _runner(folder, settings, task, model, lost, on_program)
                try:
                    runner.run()
                finally:
                    runner.end_evaluations()
        except KeyboardInterrupt:
            say(f"Stopped. Go on with: pallas_evo evolve {task.id} --run-dir {folder}")
            raise
        finally:
            if settings.population:
                archive_run(store, folder, settings, task)
        if runner.our_failure is not None:
            store.finish_run(settings.run_id, status="failed", message=runner.our_failure)
            raise PallasEvoError(
                f"{runner.our_failure} The run stopped, no score was learnt from it. When the cause is gone: "
                f"pallas_evo evolve {task.id} --run-dir {folder}"
            )
        store.finish_run(settings.run_id)
        return _outcome(store, folder, settings, time.monotonic() - start)


def _resumed(folder: Path, settings: RunSettings, config: Config) -> RunSettings:
    """The settings of the run that lies there with the new budget, or these, written down before anything runs."""
    from pallas_evo.evolution.rundir import SETTINGS

    old = rundir.read_settings(folder / SETTINGS)
    if old is None:
        if any(folder.iterdir()):
            raise UsageError(f"{folder}: expected an empty folder or one of a run, came one with other files.")
        settings = dataclasses.replace(settings, run_id=settings.run_id or f"evolve-{new_id()}", population=0)
        (folder / EVALUATION).write_text(to_yaml(config), encoding="utf-8")
    else:
        if old.task != settings.task:
            raise UsageError(f"{folder}: expected a run of {settings.task}, came one of {old.task}.")
        settings = dataclasses.replace(old, generations=max(old.generations, settings.generations))
    rundir.write_settings(folder, settings)
    return settings


def _populated(
    folder: Path, settings: RunSettings, task: Task, store: Archive, say: Callable[[str], None]
) -> RunSettings:
    """Judge and store the population unless that is done; its size is written down last."""
    if settings.population:
        return settings
    from pallas_evo.evolution.population import make_population
    from pallas_evo.evolution.runner import fill_database

    for name in (rundir.DATABASE, f"{rundir.DATABASE}-wal", f"{rundir.DATABASE}-shm"):
        (folder / name).unlink(missing_ok=True)
    folders = make_population(folder, settings, task, store, say)
    fill_database(_database(folder, settings, len(folders)), folders)
    settings = dataclasses.replace(settings, population=len(folders))
    rundir.write_settings(folder, settings)
    return settings


def _database(folder: Path, settings: RunSettings, population: int) -> Any:
    from shinka.database import DatabaseConfig

    return DatabaseConfig(
        db_path=str(folder / rundir.DATABASE),
        num_islands=settings.islands,
        archive_size=max(settings.archive_size, population),
        num_archive_inspirations=2,
        num_top_k_inspirations=1,
    )


def _learn(folder: Path, mutator: OfflineMutator | None) -> None:
    """What is stored already; prompts alone show the programs of one island, and none that was refused."""
    import sqlite3

    if mutator is None:
        return
    with contextlib.closing(sqlite3.connect(folder / rundir.DATABASE)) as connection:
        for code, score, correct in connection.execute("SELECT code, combined_score, correct FROM programs"):
            mutator.learn(code, float(score or 0.0) if correct else 0.0)


def _runner(
    folder: Path,
    settings: RunSettings,
    task: Task,
    model: str,
    lost: int,
    on_program: Callable[[int, dict[str, Any], bool], None],
) -> Any:
    from shinka.core import EvolutionConfig
    from shinka.launch import LocalJobConfig

    from pallas_evo.evolution.runner import Runner

    evolution = EvolutionConfig(
        task_sys_msg=system_message(task, device=_device(settings)),
        llm_models=[model],
        llm_dynamic_selection=None,
        llm_kwargs={"temperatures": list(settings.temperatures), "max_tokens": settings.max_tokens},
        patch_types=list(settings.patch_types),
        patch_type_probs=list(settings.patch_type_probs),
        embedding_model=None,
        meta_rec_interval=None,
        num_generations=settings.population + settings.generations + lost,
        max_patch_resamples=2,
        max_patch_attempts=2,
        max_novelty_attempts=1,
        init_program_path=str(folder / "gen_0" / "main.py"),
        results_dir=str(folder),
        use_text_feedback=True,
        max_api_costs=settings.max_api_costs,
    )
    job = LocalJobConfig(
        eval_program_path=str(EVALUATORS / "evaluate.py"),
        time=settings.job_time,
        extra_cmd_args={
            "task": task.id,
            "target": settings.target,
            "config": str(folder / EVALUATION),
            "deadline_s": settings.deadline_s,
        },
    )
    return Runner(
        on_program=on_program,
        confirm=Elites(task, load_config(folder / EVALUATION), settings.target, folder).confirm,
        evo_config=evolution,
        job_config=job,
        db_config=_database(folder, settings, settings.population),
        max_evaluation_jobs=settings.evaluation_jobs,
        max_proposal_jobs=settings.proposal_jobs,
        max_db_workers=1,
        verbose=False,
    )


def _device(settings: RunSettings) -> str | None:
    from pallas_evo.verification import gpu_name

    return gpu_name() if settings.target != "cpu" else None


@contextmanager
def _service(folder: Path, settings: RunSettings) -> Iterator[tuple[str, OfflineMutator | None]]:
    """The model's name and our mutator, whose service stands behind the name where no other is asked for."""
    if settings.mutator != OFFLINE:
        yield settings.mutator, None
        return
    written = rundir.stored_generations(folder)
    mutator = OfflineMutator(seed=settings.seed + 1000 * len(written), use_model=not settings.random_search)
    mutator.exclude(rundir.sources(folder))
    with offline_service(mutator) as model:
        yield model, mutator


class _Progress:
    """Counts what comes and says it, one line a program."""

    def __init__(self, generations: int, say: Callable[[str], None]) -> None:
        self._say, self._generations = say, generations
        self._start = time.monotonic()
        self._best, self._new, self._before = 0.0, 0, 0
        self.rejections: Counter[str] = Counter()

    def count_from(self, folder: Path) -> None:
        """Start after the population, from what is stored."""
        import sqlite3

        with contextlib.closing(sqlite3.connect(folder / rundir.DATABASE)) as connection:
            (best,) = connection.execute("SELECT max(combined_score) FROM programs WHERE correct").fetchone()
        self._best, self._start = best or 0.0, time.monotonic()

    def program(self, generation: int, metrics: dict[str, Any], correct: bool) -> None:
        """One program was judged and stored."""
        self._new += 1
        score = float(metrics.get("combined_score", 0.0))
        self._best = max(self._best, score if correct else 0.0)
        if not correct:
            self.rejections[(metrics.get("private") or {}).get("reason") or "unknown"] += 1
        rate = 60 * self._new / max(time.monotonic() - self._start, 1e-3)
        refused = ", ".join(f"{reason} {count}" for reason, count in self.rejections.most_common(4))
        said = f"{score:.4f}" if correct else "refused"
        self._say(
            f"generation {generation}: {said}  best {self._best:.4f}  {rate:.1f}/min"
            + (f"  refused: {refused}" if refused else "")
        )


def _outcome(store: Archive, folder: Path, settings: RunSettings, seconds: float) -> Outcome:
    records = store.evaluations(run_id=settings.run_id)
    programs = {record.sha256: record for record in store.programs(run_id=settings.run_id, with_text=False)}
    correct = [record for record in records if record.correct]
    seed = min(correct, key=lambda record: programs[record.candidate_sha256].generation or 0)
    best = max(correct, key=lambda record: record.combined_score)
    generation = programs[best.candidate_sha256].generation or 0
    return Outcome(
        run_id=settings.run_id,
        folder=folder,
        programs=len(records),
        seed_score=seed.combined_score,
        best_score=best.combined_score,
        best_program=folder / f"gen_{generation}" / "main.py",
        best_generation=generation,
        rejections=dict(Counter(record.reason or "" for record in records if not record.correct)),
        seconds=seconds,
    )


@contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """ShinkaEvolve's banner, tables and log go to a file in the run's folder: our stdout is for data."""
    handler = logging.FileHandler(folder / "evolution_run.log", mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("shinka", "pallas_evo.evolution")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        with (folder / "shinka_output.log").open("a", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does, and Ctrl-C works where a shell started us with it ignored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: interrupt}
    try:
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
