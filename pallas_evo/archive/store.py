"""`open_archive` and the `Archive` that it gives: one method for each thing to store or to ask.

Long, because it is the whole interface with its documentation; what the methods do lies in the modules beside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from pallas_evo.archive import copying, digests, migrate, reads, remarks, texts, writes
from pallas_evo.archive.connected import Connected
from pallas_evo.archive.encoding import new_id, sha256_of_json
from pallas_evo.archive.location import check_place, locate, read_version
from pallas_evo.archive.records import (
    CopyReport,
    EvaluationRecord,
    FindingRecord,
    IdentitySummary,
    MeasuredRecord,
    ProgramRecord,
    RunDigest,
    RunRecord,
    SampleRecord,
    ScoreIdentity,
    StepRecord,
    Summary,
    TaskSummary,
    TextRecord,
    VerificationRecord,
    standing,
)
from pallas_evo.errors import ArchiveError, UsageError
from pallas_evo.types import Evaluation, Task

T = TypeVar("T")

ProgramKey = ProgramRecord | tuple[str, str]
"""A program: its record, or (task id, full sha256)."""


def open_archive(url_or_path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> Archive:
    """Open an archive, or make a new one where nothing is.

    Args:
        url_or_path: a path to an SQLite file, or a SQLAlchemy URL.
        create: make the archive where there is none; without it that is an error.
        read_only: write nothing, not even beside the file. Never creates.

    Raises:
        ArchiveError: the place cannot be used, or what is there is no sound archive of this schema; it is left alone.
        PallasEvoError: the machine failed, a full disk for one.
    """
    location = locate(url_or_path)
    if location.path is not None:
        if not check_place(location, writing=not read_only):
            if read_only or not create:
                raise ArchiveError(
                    f"{location.name}: expected an archive, and nothing is there. Run: python -m pallas_evo.seed "
                    f"--archive {location.name}"
                )
            migrate.create_file(location)
        migrate.check_version(*read_version(location), location.name)
        return Archive(location, read_only=read_only)
    archive = Archive(location, read_only=read_only)
    try:
        archive._prepare(create=create and not read_only)
    except BaseException:
        archive.close()
        raise
    return archive


class Archive(Connected):
    """Tasks, programs, evaluations, raw timing samples, runs, verifications and findings in one database.

    Made by `open_archive`; a context manager that closes itself. Every method that writes is one transaction, which
    is on the disk when the method returns; `batch` and `together` join many. Where a database server restarts in the
    middle, the transaction is done again for a minute. May be shared between threads, not between processes: open it
    in each.
    """

    # ---- tasks and programs ------------------------------------------------------------------------------------

    def add_tasks(self, tasks: Iterable[Task]) -> int:
        """Store tasks at the version they are at; returns how many were not there yet."""
        tasks = tuple(tasks)
        return self._write(lambda connection: writes.add_tasks(connection, tasks))

    def tasks(self) -> tuple[Task, ...]:
        """Every task at its newest stored version, in number order."""
        with self._reading() as connection:
            return reads.tasks(connection)

    def add_program(
        self,
        task_id: str,
        source: str,
        *,
        origin: str,
        parent_sha256: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
        generation: int | None = None,
        island: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ProgramRecord:
        """Store a program and return it; its identity is the task and the sha256 of the source.

        One that is there stays as it is, unless it was a mere `candidate`, which takes the origin, name and parent of
        what it turns out to be. With `run_id` the program is also noted as part of that run.

        Args:
            task_id: a task that was added.
            source: the whole file.
            origin: seed, tpu_original, mutation or candidate.
            parent_sha256: a program of the same task that was added; the diff to it is stored.
            name: a name for people.
            run_id, generation, island: where in a run it appeared.
            metadata: anything else that JSON can hold; of the appearance where a run is given.

        Raises:
            UsageError: the task, parent or run is not in the archive, or the origin is unknown.
        """
        place: dict[str, Any] = {"generation": generation, "island": island, "parent_sha256": parent_sha256}

        def add(connection: Connection) -> ProgramRecord:
            sha256 = writes.add_program(
                connection,
                task_id,
                source,
                origin=origin,
                parent_sha256=parent_sha256,
                name=name,
                metadata=None if run_id else metadata,
            )
            if run_id:
                writes.add_to_run(connection, run_id, task_id, sha256, **place, metadata=metadata or {})
            return reads.program(connection, task_id, sha256, run_id=run_id)

        return self._write(add)

    def program(self, task: str, sha256: str) -> ProgramRecord:
        """The program of a task whose sha256 begins so.

        Raises:
            UsageError: there is none, or more than one.
        """
        with self._reading() as connection:
            return reads.program(connection, task, sha256)

    def programs(
        self,
        task: str | None = None,
        *,
        origin: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        with_text: bool = True,
    ) -> tuple[ProgramRecord, ...]:
        """Programs, oldest first (a run's by generation). `with_text=False` leaves out source and diff: much faster."""
        with self._reading() as connection:
            return reads.programs(connection, task=task, origin=origin, run_id=run_id, limit=limit, with_text=with_text)

    def lineage(self, program: ProgramKey) -> tuple[ProgramRecord, ...]:
        """The program itself, its parent, and so on to the first."""
        task, sha256 = _key(program)
        with self._reading() as connection:
            reads.program(connection, task, sha256)
            return tuple(
                reads.program(connection, task, ancestor) for ancestor in writes.ancestors(connection, task, sha256)
            )

    # ---- evaluations -------------------------------------------------------------------------------------------

    def add_evaluation(
        self,
        program: ProgramKey,
        evaluation: Evaluation,
        *,
        run_id: str | None = None,
        config_yaml: str | None = None,
        other_samples_us: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
        evaluation_id: str | None = None,
    ) -> str:
        """Store an evaluation, all of it or nothing, and return its id. When this returns it is on the disk.

        Args:
            program: the program that was judged; its task and version were added.
            evaluation: the judge's word.
            run_id: the run that it belongs to.
            config_yaml: the resolved configuration.
            other_samples_us: raw samples beside the candidate's: size -> slot (`xla`) -> samples.
            evaluation_id: one that `new_id` drew. An evaluation that is there under it stays as it is.

        Raises:
            UsageError: program, task version or run are not in the archive.
            PallasEvoError: the evaluation contradicts itself or the program, or could not be stored.
        """
        task, sha256 = _key(program)
        if (task, sha256) != (evaluation.task, evaluation.candidate_sha256):
            raise UsageError(
                f"program {sha256} of {task}: expected its own, came that of {evaluation.candidate_sha256} of "
                f"{evaluation.task}."
            )
        stored = evaluation_id or new_id()

        def add(connection: Connection) -> str:
            new = writes.add_evaluation(
                connection,
                evaluation,
                evaluation_id=stored,
                run_id=run_id,
                config_yaml=config_yaml,
                other_samples_us=other_samples_us or {},
            )
            if new and evaluation.texts:
                texts.add_texts(connection, stored, evaluation.texts_size or "", evaluation.texts)
            return stored

        return self._write(add)

    def evaluation(self, evaluation_id: str) -> Evaluation:
        """The whole evaluation, equal to what was added."""
        with self._reading() as connection:
            return reads.evaluation(connection, evaluation_id)

    def evaluation_config(self, evaluation_id: str) -> str | None:
        """The resolved configuration that an evaluation was made with, as YAML."""
        with self._reading() as connection:
            return reads.config(connection, evaluation_id)

    def samples(self, evaluation_id: str) -> tuple[SampleRecord, ...]:
        """All raw timing samples of an evaluation."""
        with self._reading() as connection:
            return reads.samples(connection, evaluation_id)

    def evaluations(
        self,
        *,
        program: ProgramKey | None = None,
        task: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> tuple[EvaluationRecord, ...]:
        """Evaluations, oldest first."""
        task, sha256 = _key(program) if program is not None else (task, None)
        with self._reading() as connection:
            return reads.evaluations(connection, task=task, sha256=sha256, run_id=run_id, limit=limit)

    def identities(self, task: str | None = None) -> tuple[IdentitySummary, ...]:
        """Every identity that evaluations have: what can be ranked, each on its own."""
        with self._reading() as connection:
            return reads.identities(connection, task)

    def best(
        self, task: str, identity: ScoreIdentity, *, limit: int | None = 10, include_untimed: bool = False
    ) -> tuple[EvaluationRecord, ...]:
        """The best programs of one identity, best first, each by its newest correct evaluation.

        A program that was found wrong on the same device since is left out. With `include_untimed`, correct programs
        of the same task version that were never timed follow after all timed ones.

        Raises:
            UsageError: the identity is another task's.
        """
        if identity.task != task:
            raise UsageError(f"{task}: expected an identity of this task, came one of {identity.task}.")
        with self._reading() as connection:
            return reads.best(connection, identity, limit=limit, include_untimed=include_untimed)

    # ---- runs --------------------------------------------------------------------------------------------------

    def add_run(
        self,
        kind: str,
        *,
        run_id: str | None = None,
        task: str | None = None,
        name: str | None = None,
        config_yaml: str | None = None,
        environment: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> RunRecord:
        """Begin a run of some kind (seed, evaluate, evolve). One whose `run_id` is there is returned as it is."""
        wanted = run_id or new_id()

        def add(connection: Connection) -> RunRecord:
            stored = writes.add_run(
                connection,
                kind,
                run_id=wanted,
                task_id=task,
                name=name,
                config_yaml=config_yaml,
                environment=environment,
                metadata=metadata,
            )
            return reads.runs(connection, run_id=stored, task=None, kind=None)[0]

        return self._write(add)

    def finish_run(self, run_id: str, *, status: str = "finished", message: str = "") -> None:
        """End a run as finished or failed."""
        self._write(lambda connection: writes.finish_run(connection, run_id, status=status, message=message))

    def runs(self, *, task: str | None = None, kind: str | None = None) -> tuple[RunRecord, ...]:
        """Runs, oldest first."""
        with self._reading() as connection:
            return reads.runs(connection, run_id=None, task=task, kind=kind)

    # ---- verifications and findings -----------------------------------------------------------------------------

    def add_verification(
        self,
        program: ProgramKey,
        rung: str,
        *,
        passed: bool,
        environment: Mapping[str, Any],
        message: str = "",
        details: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> None:
        """Store how a program did at one rung of verification on one machine.

        One rung of one program has one verdict for each environment: the same verdict again changes nothing (with
        `replace` the details become the new ones), another verdict replaces it.
        """
        task, sha256 = _key(program)
        self._write(
            lambda connection: remarks.put_verification(
                connection,
                task,
                sha256,
                rung,
                passed=passed,
                message=message,
                environment=environment,
                details=details or {},
                replace=replace,
            )
        )

    def verifications(
        self,
        *,
        program: ProgramKey | None = None,
        task: str | None = None,
        rung: str | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> tuple[VerificationRecord, ...]:
        """Verifications by task, oldest first; with `environment`, those made in just that one."""
        task, sha256 = _key(program) if program is not None else (task, None)
        where = sha256_of_json(environment) if environment is not None else None
        with self._reading() as connection:
            return remarks.verifications(connection, task=task, sha256=sha256, rung=rung, environment_sha256=where)

    def add_finding(
        self,
        program: ProgramKey,
        reason: str,
        message: str,
        *,
        environment: Mapping[str, Any],
        fix: str | None = None,
        details: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> None:
        """Store what a gate says to a program that is kept because it is wrong, such as a TPU original.

        One reason is stored once for each program and environment; another message or fix replaces it.
        """
        task, sha256 = _key(program)
        self._write(
            lambda connection: remarks.put_finding(
                connection,
                task,
                sha256,
                reason,
                message=message,
                fix=fix,
                environment=environment,
                details=details or {},
                replace=replace,
            )
        )

    def findings(
        self,
        *,
        program: ProgramKey | None = None,
        task: str | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> tuple[FindingRecord, ...]:
        """Findings by task, oldest first."""
        task, sha256 = _key(program) if program is not None else (task, None)
        where = sha256_of_json(environment) if environment is not None else None
        with self._reading() as connection:
            return remarks.findings(connection, task=task, sha256=sha256, environment_sha256=where)

    # ---- counts and bulk reads, for reports and exports ---------------------------------------------------------

    def run_digests(self) -> tuple[RunDigest, ...]:
        """Every run with what it came to, oldest first; one row for each identity that it has correct scores of."""
        with self._reading() as connection:
            return digests.run_digests(connection)

    def counts(self) -> tuple[TaskSummary, ...]:
        """Programs and verdicts of each task, in task number order: `summary` without what takes a second."""
        with self._reading() as connection:
            return reads.counts(connection)

    def steps(self, task: str, identity: ScoreIdentity | None = None) -> tuple[StepRecord, ...]:
        """A task's runs by generation and island; the best scores are of `identity` alone where one is given."""
        with self._reading() as connection:
            return digests.steps(connection, task, identity)

    def find_programs(self, prefix: str, task: str | None = None, *, limit: int = 2) -> tuple[ProgramRecord, ...]:
        """Programs (of one task, or of any) whose sha256 begins so, without their text; none where it is no hex."""
        with self._reading() as connection:
            return digests.find_programs(connection, prefix, task, limit=limit)

    def roots(self) -> tuple[ProgramRecord, ...]:
        """The seeds and the TPU originals of all tasks, oldest first, without their text."""
        with self._reading() as connection:
            return digests.roots(connection)

    def ancestry(self, task: str) -> Mapping[str, tuple[str | None, str]]:
        """Every program of a task, oldest first: sha256 -> (its parent's, its origin)."""
        with self._reading() as connection:
            return digests.ancestry(connection, task)

    def programs_by_key(
        self, task: str, sha256s: Sequence[str], *, with_text: bool = True
    ) -> Mapping[str, ProgramRecord]:
        """Many programs of a task, by sha256, each with the place of its first appearance in a run."""
        with self._reading() as connection:
            return digests.programs_by_key(connection, task, sha256s, with_text=with_text)

    def evaluations_by_key(self, task: str, sha256s: Sequence[str]) -> Mapping[str, tuple[EvaluationRecord, ...]]:
        """All evaluations of many programs of a task, by sha256, oldest first."""
        with self._reading() as connection:
            return digests.evaluations_by_key(connection, task, sha256s)

    def standing(self, task: str, sha256s: Sequence[str], identity: ScoreIdentity) -> Mapping[str, EvaluationRecord]:
        """Of many programs of a task, by sha256, the evaluation that `best` would rank each by; not of those it would
        leave out."""
        with self._reading() as connection:
            found = digests.evaluations_by_key(connection, task, sha256s)
        stand = {sha256: standing(records, identity) for sha256, records in found.items()}
        return {sha256: record for sha256, record in stand.items() if record is not None}

    def measured(self, evaluation_ids: Sequence[str], *, with_samples: bool = False) -> Mapping[str, MeasuredRecord]:
        """What many evaluations measured, as plain values, by evaluation id."""
        with self._reading() as connection:
            return digests.measured(connection, evaluation_ids, with_samples=with_samples)

    def texts(
        self, evaluation_ids: Sequence[str], kinds: Collection[str] | None = None
    ) -> Mapping[str, tuple[TextRecord, ...]]:
        """The intermediate texts of many evaluations (of some kinds, or of all), by evaluation id.

        An evaluation without any is left out. Of the kinds, `jaxpr` is the tracer's word: a candidate can make it up.
        """
        with self._reading() as connection:
            return texts.texts(connection, evaluation_ids, kinds)

    # ---- the whole ---------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """Counts of everything, by task."""
        with self._reading() as connection:
            return reads.summary(connection)

    def copy_into(self, other: Archive) -> CopyReport:
        """Add to the other archive all that this one holds and it lacks. May be killed and run again."""
        if other is self or _same(self, other):
            raise UsageError(f"{self.name}: expected two archives, came the same one twice.")
        with self._reading(snapshot=True) as connection:
            return copying.copy(copying.Source(connection, self.name), other._write)


def _key(program: ProgramKey) -> tuple[str, str]:
    return (program.task, program.sha256) if isinstance(program, ProgramRecord) else program


def _same(one: Archive, other: Archive) -> bool:
    here, there = one._location.path, other._location.path
    if here is None and there is None and not (one._location.in_memory or other._location.in_memory):
        mine, theirs = one._location.url, other._location.url
        return (mine.host, mine.port, mine.database, mine.query) == (
            theirs.host,
            theirs.port,
            theirs.database,
            theirs.query,
        )
    return here is not None and there is not None and here.samefile(there)
