"""Verifications and findings: what is said of a program beside its evaluations, once for each environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, select, update

from pallas_evo.archive import schema
from pallas_evo.archive.records import FindingRecord, VerificationRecord
from pallas_evo.archive.writes import add_environment, insert_new, now, require


def _put(
    connection: Connection,
    table: Table,
    *,
    task: str,
    sha256: str,
    key: Mapping[str, Any],
    environment: Mapping[str, Any],
    said: Mapping[str, Any],
    details: Mapping[str, Any],
    replace: bool,
) -> None:
    """Store a remark. One with the same key that says the same stays, whatever its details, unless `replace`."""
    program = {"task_id": task, "sha256": sha256}
    require(connection, schema.programs, program, f"program {sha256} of {task}", "Add it by add_program first.")
    whole_key = {**program, **key, "environment_sha256": add_environment(connection, environment)}
    content = {**said, "details": details, "created_at": now()}
    if insert_new(connection, table, [{**whole_key, **content}]):
        return
    mine = and_(*(table.c[name] == value for name, value in whole_key.items()))
    stored = connection.execute(select(*(table.c[name] for name in said)).where(mine)).one()
    if replace or dict(stored._mapping) != dict(said):
        connection.execute(update(table).where(mine).values(**content))


def put_verification(
    connection: Connection,
    task: str,
    sha256: str,
    rung: str,
    *,
    passed: bool,
    message: str,
    environment: Mapping[str, Any],
    details: Mapping[str, Any],
    replace: bool,
) -> None:
    """See `Archive.add_verification`."""
    said = {"passed": bool(passed), "message": message}
    about: dict[str, Any] = {"task": task, "sha256": sha256, "environment": environment, "details": details}
    _put(connection, schema.verifications, **about, key={"rung": rung}, said=said, replace=replace)


def put_finding(
    connection: Connection,
    task: str,
    sha256: str,
    reason: str,
    *,
    message: str,
    fix: str | None,
    environment: Mapping[str, Any],
    details: Mapping[str, Any],
    replace: bool,
) -> None:
    """See `Archive.add_finding`."""
    said = {"message": message, "fix": fix}
    about: dict[str, Any] = {"task": task, "sha256": sha256, "environment": environment, "details": details}
    _put(connection, schema.findings, **about, key={"reason": reason}, said=said, replace=replace)


def _rows(connection: Connection, table: Table, task: str | None, equal: Mapping[str, Any]) -> list[dict[str, Any]]:
    statement = select(table, schema.environments.c.content.label("environment")).join(
        schema.environments, schema.environments.c.sha256 == table.c.environment_sha256
    )
    for name, value in {"task_id": task, **equal}.items():
        if value is not None:
            statement = statement.where(table.c[name] == value)
    statement = statement.order_by(table.c.task_id, table.c.created_at, *table.primary_key.columns)
    rows = [dict(row._mapping) for row in connection.execute(statement)]
    return [{("task" if name == "task_id" else name): value for name, value in row.items()} for row in rows]


def verifications(
    connection: Connection, *, task: str | None, sha256: str | None, rung: str | None, environment_sha256: str | None
) -> tuple[VerificationRecord, ...]:
    """Verifications by task, oldest first."""
    equal = {"sha256": sha256, "rung": rung, "environment_sha256": environment_sha256}
    return tuple(VerificationRecord(**row) for row in _rows(connection, schema.verifications, task, equal))


def findings(
    connection: Connection, *, task: str | None, sha256: str | None, environment_sha256: str | None
) -> tuple[FindingRecord, ...]:
    """Findings by task, oldest first."""
    equal = {"sha256": sha256, "environment_sha256": environment_sha256}
    return tuple(FindingRecord(**row) for row in _rows(connection, schema.findings, task, equal))
