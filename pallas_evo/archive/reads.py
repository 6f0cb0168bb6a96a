"""What is read, each a function of an open transaction, and the records made of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, case, exists, false, func, or_, select

from pallas_evo.archive import encoding, schema, texts
from pallas_evo.archive.records import (
    UNTIMED,
    EvaluationRecord,
    IdentitySummary,
    ProgramRecord,
    RunRecord,
    SampleRecord,
    ScoreIdentity,
    Summary,
    TaskSummary,
    standing,
)
from pallas_evo.errors import UsageError
from pallas_evo.types import Evaluation, Task

HEX = set("0123456789abcdef")


def tasks(connection: Connection) -> tuple[Task, ...]:
    """Every task at its newest stored version, in number order."""
    versions = schema.task_versions
    newest = select(versions.c.task_id, func.max(versions.c.version).label("version")).group_by(versions.c.task_id)
    newest_of = newest.subquery()
    rows = connection.execute(
        select(versions.c.definition)
        .join(newest_of, and_(versions.c.task_id == newest_of.c.task_id, versions.c.version == newest_of.c.version))
        .join(schema.tasks, schema.tasks.c.id == versions.c.task_id)
        .order_by(schema.tasks.c.number, schema.tasks.c.id)
    )
    return tuple(encoding.build(Task, row.definition) for row in rows)


def program_rows(*, run_id: str | None, with_text: bool) -> Select[Any]:
    table, text, member = schema.programs, schema.program_texts, schema.run_programs
    columns: list[Any] = [table.c.task_id, table.c.sha256, table.c.origin, table.c.name, table.c.created_at]
    if run_id is None:
        statement = select(*columns, table.c.parent_sha256, table.c.metadata)
    else:
        columns += [member.c.parent_sha256, member.c.metadata, member.c.run_id, member.c.generation, member.c.island]
        on_member = and_(member.c.task_id == table.c.task_id, member.c.sha256 == table.c.sha256)
        statement = select(*columns).join(member, on_member).where(member.c.run_id == run_id)
    if with_text:
        on_text = and_(text.c.task_id == table.c.task_id, text.c.sha256 == table.c.sha256)
        statement = statement.add_columns(text.c.source, text.c.diff).join(text, on_text)
    return statement


def program_record(row: Row[Any]) -> ProgramRecord:
    values = dict(row._mapping)
    return ProgramRecord(task=values.pop("task_id"), **values)


def program(connection: Connection, task: str, prefix: str, *, run_id: str | None = None) -> ProgramRecord:
    """The one program of a task whose sha256 begins so."""
    if not prefix or not set(prefix) <= HEX:
        raise UsageError(f"{task}: expected the first digits of a program's sha256, came {prefix!r}.")
    column = schema.programs.c
    # A range rather than LIKE: every database serves it from the key.
    statement = program_rows(run_id=run_id, with_text=True).where(
        column.task_id == task, column.sha256 >= prefix, column.sha256 <= prefix + "g"
    )
    found = connection.execute(statement.limit(2)).all()
    if len(found) == 1:
        return program_record(found[0])
    if found:
        raise UsageError(f"{task}: {prefix} begins more than one program's sha256. Give more digits.")
    raise UsageError(
        f"{task}: expected a program of the archive, {prefix} begins none. List them by pallas_evo inspect."
    )


def programs(
    connection: Connection,
    *,
    task: str | None,
    origin: str | None,
    run_id: str | None,
    limit: int | None,
    with_text: bool,
) -> tuple[ProgramRecord, ...]:
    """Programs, oldest first; by generation where a run is named."""
    column = schema.programs.c
    statement = program_rows(run_id=run_id, with_text=with_text)
    if task is not None:
        statement = statement.where(column.task_id == task)
    if origin is not None:
        statement = statement.where(column.origin == origin)
    order = [column.created_at, column.task_id, column.sha256]
    if run_id is not None:
        order = [schema.run_programs.c.generation, schema.run_programs.c.created_at, *order]
    return tuple(program_record(row) for row in connection.execute(statement.order_by(*order).limit(limit)))


def _sizes(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def evaluation_record(row: Row[Any]) -> EvaluationRecord:
    names = ("id", "candidate_sha256", "run_id", "created_at", "target", "correct", "combined_score", "status", "stage")
    return EvaluationRecord(
        **{name: getattr(row, name) for name in (*names, "reason", "message", "jail", "duration_s")},
        identity=ScoreIdentity(
            task=row.task_id,
            task_version=row.task_version,
            device=row.device,
            timer=row.timer,
            sizes=_sizes(row.timed_sizes),
        ),
    )


def evaluations(
    connection: Connection,
    *,
    task: str | None,
    sha256: str | None,
    run_id: str | None,
    limit: int | None,
) -> tuple[EvaluationRecord, ...]:
    """Evaluations, oldest first."""
    table = schema.evaluations
    statement = select(table)
    for column, value in ((table.c.task_id, task), (table.c.candidate_sha256, sha256), (table.c.run_id, run_id)):
        if value is not None:
            statement = statement.where(column == value)
    statement = statement.order_by(table.c.created_at, table.c.id).limit(limit)
    return tuple(evaluation_record(row) for row in connection.execute(statement))


def evaluation(connection: Connection, evaluation_id: str) -> Evaluation:
    """The whole evaluation, as it was added."""
    table, detail, environment = schema.evaluations, schema.evaluation_details, schema.environments
    row = connection.execute(
        select(table, detail, environment.c.content)
        .join(detail, detail.c.evaluation_id == table.c.id)
        .join(environment, environment.c.sha256 == table.c.environment_sha256)
        .where(table.c.id == evaluation_id)
    ).one_or_none()
    if row is None:
        raise UsageError(f"evaluation {evaluation_id}: expected one of this archive, came none.")
    values: dict[str, Any] = dict(row._mapping)
    values["task"] = values["task_id"]
    values["environment"] = values["content"]
    taken = {s.size: s.samples_us for s in samples(connection, evaluation_id) if s.slot == "candidate"}
    values["sizes"] = {name: {**size, "samples_us": taken.get(name)} for name, size in values["sizes"].items()}
    kept = texts.texts(connection, [evaluation_id]).get(evaluation_id, ())
    values["texts"] = {one.kind: one.text for one in kept}
    values["texts_size"] = kept[0].size if kept else None
    return encoding.build(Evaluation, values)


def samples(connection: Connection, evaluation_id: str) -> tuple[SampleRecord, ...]:
    """All raw timing samples of an evaluation."""
    table = schema.timing_samples
    rows = connection.execute(
        select(table).where(table.c.evaluation_id == evaluation_id).order_by(table.c.size, table.c.slot)
    )
    return tuple(
        SampleRecord(size=row.size, slot=row.slot, samples_us=encoding.unpack_samples(row.samples_us)) for row in rows
    )


def config(connection: Connection, evaluation_id: str) -> str | None:
    """The configuration that an evaluation was made with."""
    table = schema.evaluations
    return connection.execute(
        select(schema.configs.c.yaml)
        .join(table, table.c.config_sha256 == schema.configs.c.sha256)
        .where(table.c.id == evaluation_id)
    ).scalar_one_or_none()


def _of_identity(identity: ScoreIdentity) -> Any:
    column = schema.evaluations.c
    return and_(
        column.task_id == identity.task,
        column.task_version == identity.task_version,
        column.device == identity.device,
        column.timer == identity.timer,
        column.timed_sizes == ",".join(sorted(identity.sizes)),
    )


def best(
    connection: Connection, identity: ScoreIdentity, *, limit: int | None, include_untimed: bool
) -> tuple[EvaluationRecord, ...]:
    """The best programs of one identity. See `Archive.best`."""
    if limit is not None and limit * _PAGE <= _MOST_KEYS:
        found = _short_best(connection, identity, limit)
        if found is not None:
            return found
    return _ranking(connection, identity, limit=limit, include_untimed=include_untimed)


_PAGE = 8
"""Scores looked at for each place of a short ranking. Few programs are judged twice, so the first page mostly does."""
_MOST_KEYS = 800  # SQLite takes 999 values in a statement in its oldest builds


def _short_best(connection: Connection, identity: ScoreIdentity, limit: int) -> tuple[EvaluationRecord, ...] | None:
    """The ranking from the top of the index alone, or None where that cannot be told from it.

    A program that is not on the page has no score above the page's last. So each that stands above that is in its
    place, whatever comes below; where too few do (ties, as all untimed scores are, or many judged twice), none is sure.
    """
    identity = replace(identity, sizes=tuple(sorted(identity.sizes)))
    column = schema.evaluations.c
    page = connection.execute(
        select(column.candidate_sha256, column.combined_score)
        .where(_of_identity(identity), column.correct)
        .order_by(column.combined_score.desc())
        .limit(max(64, _PAGE * limit))
    ).all()
    if len(page) < 2 or page[0][1] == page[-1][1]:
        return None
    table = schema.evaluations
    verdicts: dict[str, list[EvaluationRecord]] = {}
    # By program alone: with the identity in the condition too, SQLite would read all of the ranking's index.
    rows = connection.execute(
        select(table)
        .where(column.task_id == identity.task, column.candidate_sha256.in_({row[0] for row in page}))
        .order_by(column.created_at, column.id)
    )
    for row in rows:
        verdicts.setdefault(row.candidate_sha256, []).append(evaluation_record(row))
    stand = [record for records in verdicts.values() if (record := standing(records, identity)) is not None]
    sure = [record for record in stand if record.combined_score > page[-1][1]]
    sure.sort(key=lambda record: (-record.combined_score, record.created_at, record.id))
    return tuple(sure[:limit]) if len(sure) >= limit else None


def _ranking(
    connection: Connection, identity: ScoreIdentity, *, limit: int | None, include_untimed: bool
) -> tuple[EvaluationRecord, ...]:
    """The ranking of all programs."""
    table = schema.evaluations
    wanted = _of_identity(identity)
    if include_untimed and identity.timed:
        same_task = and_(table.c.task_id == identity.task, table.c.task_version == identity.task_version)
        wanted = or_(wanted, and_(same_task, table.c.timer == UNTIMED))
    untimed = case((table.c.timer == UNTIMED, 1), else_=0)
    # One row a program: its timed evaluation before an untimed one, the newest of several.
    place = func.row_number().over(
        partition_by=table.c.candidate_sha256, order_by=[untimed, table.c.created_at.desc(), table.c.id.desc()]
    )
    first = select(table, untimed.label("untimed"), place.label("place")).where(wanted, table.c.correct).subquery()
    later = table.alias("later")
    found_wrong_since = exists().where(
        later.c.task_id == first.c.task_id,
        later.c.candidate_sha256 == first.c.candidate_sha256,
        later.c.task_version == first.c.task_version,
        later.c.device == first.c.device,
        later.c.correct == false(),
        later.c.created_at > first.c.created_at,
    )
    rows = connection.execute(
        select(first)
        .where(first.c.place == 1, ~found_wrong_since)
        .order_by(first.c.untimed, first.c.combined_score.desc(), first.c.created_at, first.c.id)
        .limit(limit)
    )
    return tuple(evaluation_record(row) for row in rows)


def identities(connection: Connection, task: str | None) -> tuple[IdentitySummary, ...]:
    """Every identity that correct evaluations have, with counts."""
    column = schema.evaluations.c
    key = (column.task_id, column.task_version, column.device, column.timer, column.timed_sizes)
    correct = func.sum(case((column.correct, 1), else_=0))
    best_score = func.max(case((column.correct, column.combined_score)))
    statement = select(*key, func.count(), correct, best_score).group_by(*key).order_by(*key)
    if task is not None:
        statement = statement.where(column.task_id == task)
    return tuple(
        IdentitySummary(
            identity=ScoreIdentity(task=row[0], task_version=row[1], device=row[2], timer=row[3], sizes=_sizes(row[4])),
            evaluations=row[5],
            correct=row[6],
            best_score=row[7],
        )
        for row in connection.execute(statement)
    )


def runs(connection: Connection, *, run_id: str | None, task: str | None, kind: str | None) -> tuple[RunRecord, ...]:
    """Runs, oldest first."""
    table = schema.runs
    statement = (
        select(table, schema.configs.c.yaml, schema.environments.c.content)
        .outerjoin(schema.configs, schema.configs.c.sha256 == table.c.config_sha256)
        .outerjoin(schema.environments, schema.environments.c.sha256 == table.c.environment_sha256)
        .order_by(table.c.started_at, table.c.id)
    )
    for column, value in ((table.c.id, run_id), (table.c.task_id, task), (table.c.kind, kind)):
        if value is not None:
            statement = statement.where(column == value)
    return tuple(_run(row._mapping) for row in connection.execute(statement))


def _run(row: Mapping[Any, Any]) -> RunRecord:
    names = ("id", "kind", "name", "status", "message", "metadata", "started_at", "finished_at")
    return RunRecord(
        **{name: row[name] for name in names},
        task=row["task_id"],
        config_yaml=row["yaml"],
        environment=row["content"] or {},
    )


def counts(connection: Connection) -> tuple[TaskSummary, ...]:
    """Counts for each task, in task number order. Reads indexes only."""
    programs_of = _counts(connection, schema.programs.c.task_id)
    column = schema.evaluations.c
    verdicts: dict[str, list[Any]] = {}
    for row in connection.execute(
        select(column.task_id, column.status, column.reason, func.count()).group_by(
            column.task_id, column.status, column.reason
        )
    ):
        verdicts.setdefault(row[0], []).append(row)
    by_task = []
    for (task,) in connection.execute(select(schema.tasks.c.id).order_by(schema.tasks.c.number, schema.tasks.c.id)):
        mine = verdicts.get(task, [])
        by_task.append(
            TaskSummary(
                task=task,
                programs=programs_of.get(task, 0),
                evaluations=sum(row[3] for row in mine),
                accepted=sum(row[3] for row in mine if row[1] == "accepted"),
                rejected={str(row[2]): row[3] for row in mine if row[1] != "accepted"},
            )
        )
    return tuple(by_task)


def summary(connection: Connection) -> Summary:
    """Counts of everything, by task. Reads indexes and small rows only."""
    by_task = counts(connection)
    count = connection.execute(select(func.coalesce(func.sum(schema.timing_samples.c.count), 0))).scalar_one()
    return Summary(
        tasks=by_task,
        programs=sum(task.programs for task in by_task),
        evaluations=sum(task.evaluations for task in by_task),
        accepted=sum(task.accepted for task in by_task),
        timing_samples=int(count),
        runs=_count(connection, schema.runs),
        verifications=_count(connection, schema.verifications),
        findings=_count(connection, schema.findings),
    )


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _counts(connection: Connection, column: Any) -> dict[str, int]:
    return {row[0]: row[1] for row in connection.execute(select(column, func.count()).group_by(column))}
