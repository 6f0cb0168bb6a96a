"""Counts and bulk reads for reports and exports: what would take a query a program, in a query a page.

All of it reads indexes and small rows, or fetches large ones by key, so that 100,000 programs are counted in tenths of
a second and exported in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Connection, and_, case, distinct, func, select

from pallas_evo.archive import encoding, reads, schema
from pallas_evo.archive.records import (
    EvaluationRecord,
    MeasuredRecord,
    ProgramRecord,
    RunDigest,
    SampleRecord,
    ScoreIdentity,
    StepRecord,
)

T = TypeVar("T")

_CHUNK = 500  # keys in one statement; SQLite takes 999 in its oldest builds


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def run_digests(connection: Connection) -> tuple[RunDigest, ...]:
    """Every run with what it came to, oldest first. Several rows where a run has scores of several identities."""
    column = schema.evaluations.c
    member = schema.run_programs
    counts = connection.execute(select(member.c.run_id, func.count()).group_by(member.c.run_id))
    members = {row[0]: row[1] for row in counts}
    key = (column.run_id, column.task_id, column.task_version, column.device, column.timer, column.timed_sizes)
    scores = connection.execute(
        select(
            *key,
            func.count(),
            func.count(distinct(case((column.correct, column.candidate_sha256)))),
            func.max(case((column.correct, column.combined_score))),
        )
        .where(column.run_id.is_not(None))
        .group_by(*key)
    ).all()
    by_run: dict[str, list[Any]] = {}
    for score in scores:
        by_run.setdefault(str(score[0]), []).append(score)
    seeds = _first_scores(connection)
    found = []
    for run in reads.runs(connection, run_id=None, task=None, kind=None):
        mine = by_run.get(run.id, [])
        evaluations = sum(row[6] for row in mine)
        for row in [row for row in mine if row[7]] or mine[:1] or [None]:
            found.append(
                RunDigest(
                    run=run,
                    programs=members.get(run.id, 0) or evaluations,
                    evaluations=evaluations,
                    identity=_identity(row[1:6]) if row is not None else None,
                    correct=row[7] if row is not None else 0,
                    best_score=row[8] if row is not None else None,
                    first_score=seeds.get((run.id, *row[2:6])) if row is not None else None,
                )
            )
    return tuple(found)


def _first_scores(connection: Connection) -> dict[tuple[Any, ...], float]:
    """(run, version, device, timer, timed sizes) -> the best score of the run's earliest generation."""
    column, member = schema.evaluations.c, schema.run_programs.c
    least = select(member.run_id, func.min(member.generation).label("generation")).group_by(member.run_id).subquery()
    first = connection.execute(
        select(member.run_id, member.task_id, member.sha256).join(
            least, and_(least.c.run_id == member.run_id, least.c.generation == member.generation)
        )
    ).all()
    members = {(row.run_id, row.sha256) for row in first}
    tasks = sorted({row.task_id for row in first})
    best: dict[tuple[Any, ...], float] = {}
    key = (column.run_id, column.task_version, column.device, column.timer, column.timed_sizes)
    for chunk in _chunks(sorted({row.sha256 for row in first})):  # by key: no index leads from a run to the correct
        rows = connection.execute(
            select(*key, column.candidate_sha256, column.combined_score).where(
                column.task_id.in_(tasks), column.candidate_sha256.in_(chunk), column.correct
            )
        )
        for row in rows:
            if (row.run_id, row.candidate_sha256) in members:
                best[tuple(row[:5])] = max(row.combined_score, best.get(tuple(row[:5]), 0.0))
    return best


def _identity(row: Sequence[Any]) -> ScoreIdentity:
    sizes = tuple(row[4].split(",")) if row[4] else ()
    return ScoreIdentity(task=row[0], task_version=row[1], device=row[2], timer=row[3], sizes=sizes)


def steps(connection: Connection, task: str, identity: ScoreIdentity | None) -> tuple[StepRecord, ...]:
    """A task's runs, by generation and island: programs judged, how many correct, the best score there.

    The score is of `identity` only; scores of another are not comparable with it.
    """
    column, member = schema.evaluations.c, schema.run_programs
    same: Any = column.correct
    if identity is not None:
        same = and_(
            column.correct,
            column.device == identity.device,
            column.timer == identity.timer,
            column.task_version == identity.task_version,
            column.timed_sizes == ",".join(sorted(identity.sizes)),
        )
    key = (member.c.run_id, member.c.generation, member.c.island)
    statement = (
        select(
            *key,
            func.count(),
            func.sum(case((column.correct, 1), else_=0)),
            func.max(case((same, column.combined_score))),
        )
        .join(
            schema.evaluations,
            and_(
                column.task_id == member.c.task_id,
                column.candidate_sha256 == member.c.sha256,
                column.run_id == member.c.run_id,
            ),
        )
        .where(member.c.task_id == task)
        .group_by(*key)
        .order_by(*key)
    )
    return tuple(
        StepRecord(
            run_id=row[0], generation=row[1], island=row[2], evaluations=row[3], correct=row[4], best_score=row[5]
        )
        for row in connection.execute(statement)
    )


def find_programs(connection: Connection, prefix: str, task: str | None, *, limit: int) -> tuple[ProgramRecord, ...]:
    """Programs whose sha256 begins so, without their text."""
    if not prefix or not set(prefix) <= reads.HEX:
        return ()
    column = schema.programs.c
    tasks = [task] if task is not None else _tasks(connection)
    statement = reads.program_rows(run_id=None, with_text=False).where(
        column.task_id.in_(tasks), column.sha256 >= prefix, column.sha256 <= prefix + "g"
    )
    rows = connection.execute(statement.order_by(column.task_id, column.sha256).limit(limit))
    return tuple(reads.program_record(row) for row in rows)


def _tasks(connection: Connection) -> list[str]:
    """Named in each statement, so that indexes that begin with the task serve it."""
    return [row[0] for row in connection.execute(select(schema.tasks.c.id))]


def roots(connection: Connection) -> tuple[ProgramRecord, ...]:
    """Seeds and TPU originals of all tasks, oldest first."""
    column = schema.programs.c
    statement = reads.program_rows(run_id=None, with_text=False).where(
        column.task_id.in_(_tasks(connection)), column.origin.in_(("seed", "tpu_original"))
    )
    rows = connection.execute(statement.order_by(column.created_at, column.task_id, column.sha256))
    return tuple(reads.program_record(row) for row in rows)


def ancestry(connection: Connection, task: str) -> dict[str, tuple[str | None, str]]:
    """Every program of a task, oldest first: sha256 -> (its parent's, its origin)."""
    column = schema.programs.c
    rows = connection.execute(
        select(column.sha256, column.parent_sha256, column.origin)
        .where(column.task_id == task)
        .order_by(column.created_at, column.sha256)
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def programs_by_key(
    connection: Connection, task: str, sha256s: Sequence[str], *, with_text: bool
) -> dict[str, ProgramRecord]:
    """Many programs of a task, by sha256, each with the place (and metadata) of its first appearance in a run."""
    programs, member = schema.programs.c, schema.run_programs.c
    found: dict[str, ProgramRecord] = {}
    for chunk in _chunks(sha256s):
        rows = connection.execute(
            reads.program_rows(run_id=None, with_text=with_text).where(
                programs.task_id == task, programs.sha256.in_(chunk)
            )
        )
        found.update({row.sha256: reads.program_record(row) for row in rows})
        places = connection.execute(
            select(member.sha256, member.run_id, member.generation, member.island, member.metadata)
            .where(member.task_id == task, member.sha256.in_(chunk))
            .order_by(member.created_at.desc())
        )
        for row in places:  # the first appearance comes last and stays
            place = {"run_id": row.run_id, "generation": row.generation, "island": row.island}
            place["metadata"] = row.metadata or found[row.sha256].metadata
            found[row.sha256] = replace(found[row.sha256], **place)
    return found


def evaluations_by_key(
    connection: Connection, task: str, sha256s: Sequence[str]
) -> dict[str, tuple[EvaluationRecord, ...]]:
    """All evaluations of many programs of a task, by sha256, oldest first."""
    table = schema.evaluations
    found: dict[str, list[EvaluationRecord]] = {}
    for chunk in _chunks(sha256s):
        rows = connection.execute(
            select(table)
            .where(table.c.task_id == task, table.c.candidate_sha256.in_(chunk))
            .order_by(table.c.created_at, table.c.id)
        )
        for row in rows:
            found.setdefault(row.candidate_sha256, []).append(reads.evaluation_record(row))
    return {sha256: tuple(records) for sha256, records in found.items()}


def measured(connection: Connection, evaluation_ids: Sequence[str], *, with_samples: bool) -> dict[str, MeasuredRecord]:
    """What many evaluations measured, as plain values, by evaluation id. `Archive.evaluation` gives one, typed."""
    table, detail, environment = schema.evaluations.c, schema.evaluation_details.c, schema.environments.c
    sample = schema.timing_samples
    found: dict[str, MeasuredRecord] = {}
    environments: dict[str, Any] = {}
    for chunk in _chunks(evaluation_ids):
        taken: dict[str, list[SampleRecord]] = {}
        if with_samples:
            for row in connection.execute(
                select(sample).where(sample.c.evaluation_id.in_(chunk)).order_by(sample.c.size, sample.c.slot)
            ):
                taken.setdefault(row.evaluation_id, []).append(
                    SampleRecord(size=row.size, slot=row.slot, samples_us=encoding.unpack_samples(row.samples_us))
                )
        rows = connection.execute(
            select(table.id, table.environment_sha256, detail.gates, detail.filters, detail.sizes, detail.compiled)
            .join(schema.evaluation_details, detail.evaluation_id == table.id)
            .where(table.id.in_(chunk))
        ).all()
        unknown = {row.environment_sha256 for row in rows} - environments.keys()
        for some in _chunks(sorted(unknown)):
            contents = connection.execute(
                select(environment.sha256, environment.content).where(environment.sha256.in_(some))
            )
            environments.update({row[0]: row[1] for row in contents})
        for row in rows:
            found[row.id] = MeasuredRecord(
                gates=row.gates,
                filters=row.filters,
                sizes=row.sizes,
                compiled=row.compiled,
                environment=environments[row.environment_sha256],
                samples=tuple(taken.get(row.id, ())),
            )
        if len(environments) > 4 * _CHUNK:  # each evaluation on a GPU has one of its own: clocks, temperature
            environments.clear()
    return found
