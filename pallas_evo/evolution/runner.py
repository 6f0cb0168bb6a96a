"""ShinkaEvolve's runner with what it lacks: a population that is there already, and failures of ours that cost nothing.

Importing this imports `shinka.core`, which takes 7 to 12 s.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shinka.core import ShinkaEvolveRunner
from shinka.core.async_runner import AsyncRunningJob, CompletedJobPersistResult
from shinka.database import DatabaseConfig, Program, ProgramDatabase
from shinka.database.islands import DefaultIslandAssignmentStrategy

JUDGE_ATTEMPTS = 2  # evaluations after the first where we failed; the callback has retried each by then
PATIENCE_S = 3600.0  # a service or a judge may be this slow before ShinkaEvolve takes itself for stuck

log = logging.getLogger(__name__)


class KeepIsland(DefaultIslandAssignmentStrategy):  # type: ignore[misc]
    """Leaves a program on the island that it names; ShinkaEvolve would choose one for it."""

    def assign_island(self, program: Any) -> None:
        """Assign an island where the program has none."""
        if program.island_idx is None:
            super().assign_island(program)


class Runner(ShinkaEvolveRunner):  # type: ignore[misc]
    """The runner of one run folder whose database was filled by `fill_database`.

    Args:
        on_program: called with (generation, metrics, correct) after each program that is stored.
        confirm: called with (program, results folder) of each judged program before it is stored; may change results.
        arguments: those of ShinkaEvolveRunner.
    """

    def __init__(
        self,
        *,
        on_program: Callable[[int, dict[str, Any], bool], None],
        confirm: Callable[[Path, Path], None] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self._on_program = on_program
        self._confirm = confirm
        self.our_failure: str | None = None
        self.stuck_detection_timeout = PATIENCE_S

    async def _setup_initial_program(self, code: str) -> None:
        """The population is in the database already, judged; a population of one would not count as a resume."""
        await self._restore_resume_progress()

    async def _count_completed_generations_from_db(self) -> int:
        """Each generation once, whatever the number of islands."""
        return len(await self.async_db.get_persisted_generation_ids_async())

    async def _persist_completed_job(self, job: AsyncRunningJob) -> CompletedJobPersistResult:
        """Store a program only where the judge has spoken; else judge again, and at last stop the run."""
        if self.our_failure is not None:
            return CompletedJobPersistResult(job=job, success=False)
        results = Path(job.results_dir)
        for _ in range(JUDGE_ATTEMPTS):
            if was_judged(results) or self.should_stop.is_set():
                break
            log.warning("Generation %s was not judged; judging it again.", job.generation)
            await asyncio.to_thread(self.scheduler.run, job.exec_fname, job.results_dir)
        if not was_judged(results):
            self._stop(failure_in(results) or f"{results}: the evaluator left no verdict.")
            return CompletedJobPersistResult(job=job, success=False)
        if self._confirm is not None:
            await asyncio.to_thread(self._confirm, Path(job.exec_fname), results)
        persisted = await super()._persist_completed_job(job)
        if persisted.success:
            verdict, metrics = _read(results / "correct.json"), _read(results / "metrics.json")
            self._on_program(job.generation, metrics, bool(verdict.get("correct")))
        return persisted

    def _stop(self, message: str) -> None:
        """End the run; the generation has no row, so that a resumed run makes it anew."""
        self.our_failure = message
        self.should_stop.set()
        self.slot_available.set()
        self.finalization_complete.set()

    def end_evaluations(self) -> None:
        """End evaluators that are still running: ShinkaEvolve leaves them behind."""
        for job in self.running_jobs:
            process = getattr(job.job_id, "process", None)
            if process is not None and process.poll() is None:
                process.terminate()
        for job in self.running_jobs:
            process = getattr(job.job_id, "process", None)
            if process is not None:
                try:
                    process.wait(5)
                except Exception:
                    process.kill()


def was_judged(results: Path) -> bool:
    """Whether a results folder holds a verdict, and not a failure of ours."""
    return _read(results / "correct.json").get("judged") is True


def failure_in(results: Path) -> str | None:
    """What a results folder says of a failure of ours."""
    failure = (_read(results / "metrics.json").get("private") or {}).get("failure")
    return str(failure) if failure else None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def fill_database(config: DatabaseConfig, folders: list[tuple[Path, str]]) -> None:
    """Store a judged population: generation i lies in its folder and goes to island i modulo the islands.

    Args:
        config: with the database's path.
        folders: (generation folder, name) in the order of generations; each holds main.py and results/.
    """
    database = ProgramDatabase(config, embedding_model=None)
    try:
        database.island_manager.assignment_strategy = KeepIsland(database.cursor, database.conn, config)
        for generation, (folder, name) in enumerate(folders):
            metrics = _read(folder / "results" / "metrics.json")
            database.add(
                Program(
                    id=f"initial-{generation:04d}",
                    code=(folder / "main.py").read_text(encoding="utf-8"),
                    language="python",
                    generation=generation,
                    island_idx=generation % config.num_islands,
                    correct=bool(_read(folder / "results" / "correct.json").get("correct")),
                    combined_score=float(metrics.get("combined_score", 0.0)),
                    public_metrics=metrics.get("public", {}),
                    private_metrics=metrics.get("private", {}),
                    text_feedback=metrics.get("text_feedback", ""),
                    metadata={
                        "patch_type": "init",
                        "patch_name": name,
                        "patch_description": "initial population",
                        "api_costs": 0.0,
                        "stdout_log": "",
                        "stderr_log": "",
                    },
                )
            )
        database.save()
    finally:
        database.close()
