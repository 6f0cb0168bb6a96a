"""One archive into another. Keys are natural, so rows move as they are; what is there already is left alone.

Rows go over in batches, each in one transaction that holds all that belongs together (an evaluation, its details and
its samples), so a copy that was killed goes on where it was, and one that ran to its end adds nothing the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, select, tuple_, update

from pallas_evo.archive import schema
from pallas_evo.archive.records import CopyReport
from pallas_evo.archive.writes import insert_new

BATCH_ROWS = 250  # with two key columns well below the 999 variables that SQLite takes at least

Write = Callable[[], AbstractContextManager[Connection]]

_ORDER = (
    schema.tasks,
    schema.task_versions,
    schema.environments,
    schema.configs,
    schema.texts,
    schema.runs,
    schema.programs,
    schema.run_programs,
    schema.evaluations,
    schema.verifications,
    schema.findings,
)
_PARTS = {
    schema.programs: ((schema.program_texts, ("task_id", "sha256")),),
    schema.evaluations: (
        (schema.evaluation_details, ("evaluation_id",)),
        (schema.timing_samples, ("evaluation_id",)),
        (schema.evaluation_texts, ("evaluation_id",)),
    ),
}
"""Tables whose rows are part of a row of another and go over with it, with the columns that say which."""


def copy(source: Connection, write: Write) -> CopyReport:
    """Copy everything that the source's snapshot holds and the target lacks. `write` begins a transaction there."""
    added: dict[str, int] = {}
    for table in _ORDER:
        with write() as target:
            there = {tuple(row) for row in target.execute(select(*table.primary_key.columns))}
        missing = [key for key in _keys(source, table) if key not in there]
        for keys in _batches(missing):
            with write() as target:
                for name, count in _copy_rows(source, target, table, keys).items():
                    added[name] = added.get(name, 0) + count
    with write() as target:
        for name, count in (("runs", _end_runs(source, target)), *_renew(source, target)):
            if count:
                added[name] = added.get(name, 0) + count
    return CopyReport(added=added)


def _keys(source: Connection, table: Table) -> list[tuple[Any, ...]]:
    """All keys of a table; programs with parents before their children."""
    if table is not schema.programs:
        return [tuple(row) for row in source.execute(select(*table.primary_key.columns))]
    columns = table.c
    parent_of = {
        (row.task_id, row.sha256): row.parent_sha256
        for row in source.execute(select(columns.task_id, columns.sha256, columns.parent_sha256))
    }
    ordered: dict[tuple[Any, ...], None] = {}
    for program in parent_of:
        chain = [program]
        while (parent := parent_of[chain[-1]]) is not None and (program[0], parent) not in ordered:
            chain.append((program[0], parent))
        ordered.update(dict.fromkeys(reversed(chain)))
    return list(ordered)


def _copy_rows(source: Connection, target: Connection, table: Table, keys: list[tuple[Any, ...]]) -> Mapping[str, int]:
    rows = {
        tuple(row[: len(table.primary_key.columns)]): row
        for row in _rows(source, table, [column.name for column in table.primary_key.columns], keys)
    }
    added = {table.name: insert_new(target, table, [dict(rows[key]._mapping) for key in keys])}
    for part, columns in _PARTS.get(table, ()):
        found = [dict(row._mapping) for row in _rows(source, part, columns, keys)]
        added[part.name] = insert_new(target, part, found)
    return added


def _rows(source: Connection, table: Table, names: Iterable[str], keys: list[tuple[Any, ...]]) -> list[Row[Any]]:
    columns = [table.c[name] for name in names]
    one = len(columns) == 1
    wanted = columns[0].in_([key[0] for key in keys]) if one else tuple_(*columns).in_(keys)
    others = [column for column in table.columns if column not in set(columns)]
    return list(source.execute(select(*columns, *others).where(wanted)))


def _end_runs(source: Connection, target: Connection) -> int:
    """Runs that were copied while they ran and have ended since."""
    table, ended = schema.runs, 0
    running = [row.id for row in target.execute(select(table.c.id).where(table.c.status == "running"))]
    for keys in _batches([(run_id,) for run_id in running]):
        for row in _rows(source, table, ["id"], keys):
            if row.status != "running":
                news = {"status": row.status, "message": row.message, "finished_at": row.finished_at}
                ended += target.execute(update(table).where(table.c.id == row.id).values(**news)).rowcount
    return ended


def _renew(source: Connection, target: Connection) -> Iterator[tuple[str, int]]:
    """Verifications and findings that were made again since: the newer word holds."""
    for table in (schema.verifications, schema.findings):
        key, count = list(table.primary_key.columns), 0
        there = {tuple(row[:-1]): row[-1] for row in target.execute(select(*key, table.c.created_at))}
        made = {tuple(row[:-1]): row[-1] for row in source.execute(select(*key, table.c.created_at))}
        newer = [k for k, moment in made.items() if k in there and moment > there[k]]
        for keys in _batches(newer):
            for row in _rows(source, table, [column.name for column in key], keys):
                mine = and_(*(column == row._mapping[column.name] for column in key))
                count += target.execute(update(table).where(mine).values(**row._mapping)).rowcount
        yield table.name, count


def _batches(keys: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    iterator = iter(keys)
    while batch := list(islice(iterator, BATCH_ROWS)):
        yield batch
