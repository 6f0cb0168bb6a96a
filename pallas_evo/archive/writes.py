"""What is written, each a function of an open write transaction. Every insert leaves a row alone that is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from pallas_evo.archive import encoding, schema
from pallas_evo.archive.records import ORIGINS, identity_of
from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.types import Evaluation, Task


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert the rows whose key is not there yet; returns how many were."""
    if not rows:
        return 0
    dialect = connection.dialect.name
    if dialect in ("sqlite", "postgresql"):
        if dialect == "postgresql":
            # Two transactions that add the same rows in another order would each wait for the other. (SQLite lets one
            # write at a time, and wants a parent before its child; PostgreSQL checks at the end of the statement.)
            names = [column.name for column in table.primary_key.columns]
            rows = sorted(rows, key=lambda row: [row[name] for name in names])
        make = sqlite.insert if dialect == "sqlite" else postgresql.insert
        statement = make(table).on_conflict_do_nothing(index_elements=list(table.primary_key.columns))
        if dialect == "sqlite":  # RETURNING needs SQLite 3.35, and the count is right without
            return connection.execute(statement, list(rows)).rowcount
        first = next(iter(table.primary_key.columns))
        return len(connection.execute(statement.returning(first), list(rows)).all())
    added = 0
    for row in rows:  # any other database: let the key refuse it
        try:
            with connection.begin_nested():
                connection.execute(insert(table).values(row))
                added += 1
        except IntegrityError:
            key = [column == row[column.name] for column in table.primary_key.columns]
            if connection.execute(select(*table.primary_key.columns).where(and_(*key))).first() is None:
                raise
    return added


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def add_environment(connection: Connection, content: Mapping[str, Any]) -> str:
    """Store an environment once; returns its hash."""
    sha256 = encoding.sha256_of_json(content)
    insert_new(connection, schema.environments, [{"sha256": sha256, "content": content}])
    return sha256


def add_config(connection: Connection, yaml: str | None) -> str | None:
    """Store a resolved configuration once; returns its hash."""
    if yaml is None:
        return None
    sha256 = encoding.sha256_of_text(yaml)
    insert_new(connection, schema.configs, [{"sha256": sha256, "yaml": yaml}])
    return sha256


def add_tasks(connection: Connection, tasks: Iterable[Task]) -> int:
    """Store tasks and the version that they are at; returns how many versions were new."""
    tasks = tuple(tasks)
    heads = [{"id": t.id, "number": t.number, "level": t.level, "category": t.category} for t in tasks]
    insert_new(connection, schema.tasks, heads)
    versions = [{"task_id": t.id, "version": t.version, "definition": encoding.plain(t, t.id)} for t in tasks]
    return insert_new(connection, schema.task_versions, versions)


def add_program(
    connection: Connection,
    task_id: str,
    source: str,
    *,
    origin: str,
    parent_sha256: str | None,
    name: str | None,
    metadata: Mapping[str, Any] | None,
) -> str:
    """Store a program once; returns its sha256. See `Archive.add_program`."""
    if origin not in ORIGINS:
        raise UsageError(f"origin: expected one of {', '.join(ORIGINS)}, came {origin!r}.")
    sha256 = encoding.sha256_of_text(source)
    require(connection, schema.tasks, {"id": task_id}, f"task {task_id}", "Add it by add_tasks first.")
    if parent_sha256 == sha256:
        parent_sha256 = None  # a mutation that changed nothing
    diff = None
    if parent_sha256 is not None:
        texts = schema.program_texts.c
        parent = connection.execute(
            select(texts.source).where(texts.task_id == task_id, texts.sha256 == parent_sha256)
        ).scalar_one_or_none()
        if parent is None:
            raise UsageError(f"{task_id}: expected the parent {parent_sha256} to be in the archive. Add it first.")
        diff = encoding.unified_diff(parent, source)
    key = {"task_id": task_id, "sha256": sha256}
    row = {"origin": origin, "name": name, "parent_sha256": parent_sha256}
    if insert_new(connection, schema.programs, [{**key, **row, "metadata": metadata or {}, "created_at": now()}]):
        insert_new(connection, schema.program_texts, [{**key, "source": source, "diff": diff}])
    elif origin != "candidate":
        _make_known(connection, key, {**row, "metadata": metadata or {}}, diff)
    return sha256


def _make_known(connection: Connection, key: Mapping[str, str], row: dict[str, Any], diff: str | None) -> None:
    """Somebody had the file judged before it was added as what it is: origin, name and parent are known only now."""
    programs, texts = schema.programs.c, schema.program_texts.c
    mine = (programs.task_id == key["task_id"], programs.sha256 == key["sha256"], programs.origin == "candidate")
    if key["sha256"] in ancestors(connection, key["task_id"], row["parent_sha256"]):
        row = {**row, "parent_sha256": None}  # a program is not its own ancestor
        diff = None
    if connection.execute(update(schema.programs).where(*mine).values(**row)).rowcount:
        connection.execute(
            update(schema.program_texts)
            .where(texts.task_id == key["task_id"], texts.sha256 == key["sha256"])
            .values(diff=diff)
        )


def ancestors(connection: Connection, task_id: str, sha256: str | None) -> tuple[str, ...]:
    """The program itself, its parent, and so on to the first."""
    programs = schema.programs.c
    chain: list[str] = []
    while sha256 is not None and sha256 not in chain:
        chain.append(sha256)
        sha256 = connection.execute(
            select(programs.parent_sha256).where(programs.task_id == task_id, programs.sha256 == sha256)
        ).scalar_one_or_none()
    return tuple(chain)


def add_to_run(connection: Connection, run_id: str, task_id: str, sha256: str, **columns: Any) -> None:
    """Note that a program appeared in a run; the first appearance holds."""
    require(connection, schema.runs, {"id": run_id}, f"run {run_id}", "Begin it by add_run first.")
    row = {"run_id": run_id, "task_id": task_id, "sha256": sha256, "created_at": now(), **columns}
    insert_new(connection, schema.run_programs, [row])


def add_evaluation(
    connection: Connection,
    evaluation: Evaluation,
    *,
    evaluation_id: str,
    run_id: str | None,
    config_yaml: str | None,
    other_samples_us: Mapping[str, Mapping[str, Sequence[float]]],
) -> bool:
    """Store all of an evaluation under an id drawn for it; False where that is there, as it is when a commit arrived
    and its answer did not. See `Archive.add_evaluation`."""
    _check_verdict(evaluation)
    task, sha256 = evaluation.task, evaluation.candidate_sha256
    program = {"task_id": task, "sha256": sha256}
    require(connection, schema.programs, program, f"program {sha256} of {task}", "Add it by add_program first.")
    version = {"task_id": task, "version": evaluation.task_version}
    require(
        connection,
        schema.task_versions,
        version,
        f"version {evaluation.task_version} of {task}",
        "Add it by add_tasks first.",
    )
    if run_id is not None:
        require(connection, schema.runs, {"id": run_id}, f"run {run_id}", "Begin it by add_run first.")
    identity = identity_of(evaluation)
    row = {
        name: getattr(evaluation, name)
        for name in ("candidate_sha256", "task_version", "ran_on", "timer", "status", "stage", "reason", "message")
    } | {
        "id": evaluation_id,
        "task_id": task,
        "run_id": run_id,
        "created_at": now(),
        "device": identity.device,
        "timed_sizes": ",".join(identity.sizes),
        "correct": bool(evaluation.correct),
        "combined_score": float(evaluation.combined_score),
        "target": evaluation.target,
        "jail": evaluation.jail,
        "duration_s": float(evaluation.duration_s),
        "environment_sha256": add_environment(connection, evaluation.environment),
        "config_sha256": add_config(connection, config_yaml),
    }
    if not insert_new(connection, schema.evaluations, [row]):
        return False
    sizes, samples = {}, []
    for size, result in evaluation.sizes.items():
        sizes[size] = encoding.plain(result, f"sizes.{size}")
        if (taken := sizes[size].pop("samples_us")) is not None:
            samples.append((size, "candidate", encoding.restore(taken)))
    samples += [(size, slot, taken) for size, slots in other_samples_us.items() for slot, taken in slots.items()]
    detail = {
        name: encoding.plain(getattr(evaluation, name), name)
        for name in ("gates", "filters", "compiled", "compiled_for", "seeds", "text_feedback", "output_text")
    }
    connection.execute(
        insert(schema.evaluation_details).values({**detail, "sizes": sizes, "evaluation_id": evaluation_id})
    )
    for size, slot, taken in samples:
        packed = {"count": len(taken), "samples_us": encoding.pack_samples(taken)}
        connection.execute(
            insert(schema.timing_samples).values(evaluation_id=evaluation_id, size=size, slot=slot, **packed)
        )
    return True


def _check_verdict(evaluation: Evaluation) -> None:
    """A verdict that contradicts itself is our fault and must not be learnt from."""
    score = float(evaluation.combined_score)
    if not 0.0 <= score < float("inf"):  # NaN is neither
        raise PallasEvoError(f"{evaluation.task}: expected a finite combined_score of 0 or more, came {score}.")
    if not 0.0 <= float(evaluation.duration_s) < float("inf"):
        raise PallasEvoError(f"{evaluation.task}: expected a finite duration_s, came {evaluation.duration_s}.")
    if evaluation.correct != (evaluation.status == "accepted") or (score and not evaluation.correct):
        raise PallasEvoError(
            f"{evaluation.task}: expected status, correct and combined_score to agree, came {evaluation.status}, "
            f"{evaluation.correct}, {score}. Only a correct candidate is accepted, and only an accepted one scores."
        )


def add_run(
    connection: Connection,
    kind: str,
    *,
    run_id: str,
    task_id: str | None,
    name: str | None,
    config_yaml: str | None,
    environment: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
) -> str:
    """Begin a run; returns its id. See `Archive.add_run`."""
    if task_id is not None:
        require(connection, schema.tasks, {"id": task_id}, f"task {task_id}", "Add it by add_tasks first.")
    # Environment before configuration, as for an evaluation: the same order everywhere, or two wait for each other.
    environment_sha256 = add_environment(connection, environment or {})
    config_sha256 = add_config(connection, config_yaml)
    row = {
        "id": run_id,
        "kind": kind,
        "task_id": task_id,
        "name": name,
        "status": "running",
        "message": "",
        "config_sha256": config_sha256,
        "environment_sha256": environment_sha256,
        "metadata": metadata or {},
        "started_at": now(),
        "finished_at": None,
    }
    insert_new(connection, schema.runs, [row])
    return run_id


def finish_run(connection: Connection, run_id: str, *, status: str, message: str) -> None:
    """End a run."""
    if status not in ("finished", "failed"):
        raise UsageError(f"status: expected finished or failed, came {status!r}.")
    statement = update(schema.runs).where(schema.runs.c.id == run_id)
    if not connection.execute(statement.values(status=status, message=message, finished_at=now())).rowcount:
        raise UsageError(f"run {run_id}: expected a run of this archive, came none. Begin it by add_run first.")


def require(connection: Connection, table: Table, key: Mapping[str, Any], what: str, next_step: str) -> None:
    """Refuse a row that would point at nothing, in words rather than by a foreign key."""
    found = connection.execute(
        select(*table.primary_key.columns).where(*(table.c[column] == value for column, value in key.items())).limit(1)
    ).first()
    if found is None:
        raise UsageError(f"{what}: expected it to be in the archive, and it is not. {next_step}")
