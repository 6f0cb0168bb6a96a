"""Counts and bulk reads for reports and exports: what would take a query a program, in a query a page.

All of it reads indexes and small rows, or fetches large ones by key, so that 100,000 programs are counted in tenths of
a second and exported in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, and_, case, func, select

from pallas_evo.archive import encoding, reads, schema
from pallas_evo.archive.records import (
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
            func.sum(case((column.correct, 1), else_=0)),
            func.max(case((column.correct, column.combined_score))),
        )
        .where(column.run_id.is_not(None))
        .group_by(*key)
    ).all()
    seeds = _first_scores(connection)
    found = []
    for run in reads.runs(connection, run_id=None, task=None, kind=None):
        mine = [row for row in scores if row[0] == run.id]
        evaluations = sum(row[6] for row in mine)
        kept = [row for row in mine if row[7]] or mine[:1]
        for row in kept or [None]:
            found.append(
                RunDigest(
                    run=run,
                    programs=members.get(run.id, 0) or evaluations,
                    evaluations=evaluations,
                    identity=_identity(row[1:6]) if row is not None else None,
                    correct=row[7] if row is not None else 0,
                    best_score=row[8] if row is not None else None,
                    first_score=seeds.get((run.id, *row[3:6])) if row is not None else None,
                )
            )
    return tuple(found)


def _first_scores(connection: Connection) -> dict[tuple[Any, ...], float]:
    """(run, device, timer, timed sizes) -> the best score of the run's earliest generation."""
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
    key = (column.run_id, column.device, column.timer, column.timed_sizes)
    for chunk in _chunks(sorted({row.sha256 for row in first})):  # by key: no index leads from a run to the correct
        rows = connection.execute(
            select(*key, column.candidate_sha256, column.combined_score).where(
                column.task_id.in_(tasks), column.candidate_sha256.in_(chunk), column.correct
            )
        )
        for row in rows:
            if (row.run_id, row.candidate_sha256) in members:
                best[tuple(row[:4])] = max(row.combined_score, best.get(tuple(row[:4]), 0.0))
    return best


def _identity(row: Sequence[Any]) -> ScoreIdentity:
    sizes = tuple(row[4].split(",")) if row[4] else ()
    return ScoreIdentity(task=row[0], task_version=row[1], device=row[2], timer=row[3], sizes=sizes)


def steps(
    connection: Connection, task: str, identity: ScoreIdentity | None, by: Literal["generation", "island"]
) -> tuple[StepRecord, ...]:
    """A task's runs, each by generation or by island: programs judged, how many correct, the best score there.

    The score is of `identity` only; scores of another are not comparable with it.
    """
    column, member = schema.evaluations.c, schema.run_programs
    same = column.correct
    if identity is not None:
        same = and_(
            column.correct,
            column.device == identity.device,
            column.timer == identity.timer,
            column.task_version == identity.task_version,
            column.timed_sizes == ",".join(sorted(identity.sizes)),
        )
    step = member.c[by]
    statement = (
        select(
            member.c.run_id,
            step,
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
        .group_by(member.c.run_id, step)
        .order_by(member.c.run_id, step)
    )
    return tuple(
        StepRecord(run_id=row[0], step=row[1], evaluations=row[2], correct=row[3], best_score=row[4])
        for row in connection.execute(statement)
    )


def find_programs(connection: Connection, prefix: str, *, limit: int) -> tuple[ProgramRecord, ...]:
    """Programs of any task whose sha256 begins so, without their text."""
    column = schema.programs.c
    tasks = [row[0] for row in connection.execute(select(schema.tasks.c.id))]
    statement = reads._programs(run_id=None, with_text=False).where(
        column.task_id.in_(tasks), column.sha256 >= prefix, column.sha256 <= prefix + "g"
    )
    return tuple(reads._program(row) for row in connection.execute(statement.limit(limit)))


def sources(connection: Connection, task: str, sha256s: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Source and diff of many programs of a task, by sha256."""
    column = schema.program_texts.c
    found: dict[str, tuple[str, str | None]] = {}
    for chunk in _chunks(sha256s):
        rows = connection.execute(
            select(column.sha256, column.source, column.diff).where(column.task_id == task, column.sha256.in_(chunk))
        )
        found.update({row[0]: (row[1], row[2]) for row in rows})
    return found


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
