"""One archive into another. Keys are natural, so rows move as they are; what is there already is left alone.

Rows go over in batches, each in one transaction that holds all that belongs together (an evaluation, its details and
its samples), so a copy that was killed goes on where it was, and one that ran to its end adds nothing the second time.
Keys are read as they are needed; only of programs, whose parents must go first, all are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, and_, select, tuple_, update

from pallas_evo.archive import schema
from pallas_evo.archive.failures import translated
from pallas_evo.archive.records import CopyReport
from pallas_evo.archive.writes import insert_new

BATCH_ROWS = 250  # with two key columns well below the 999 variables that SQLite takes at least

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A snapshot of the archive that is copied. What fails in it is said of it, and not tried again with the target."""

    connection: Connection
    name: str

    def rows(self, statement: Select[Any]) -> list[Row[Any]]:
        with translated(self.name):
            return list(self.connection.execute(statement))


class Write(Protocol):
    """Calls its argument in a transaction on the target and returns what it returned. May call it more than once."""

    def __call__(self, work: Callable[[Connection], T], /) -> T: ...


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


def copy(source: Source, write: Write) -> CopyReport:
    """Copy everything that the source's snapshot holds and the target lacks. `write` does a transaction there."""
    added: dict[str, int] = {}

    def count(news: Mapping[str, int]) -> None:
        for name, number in news.items():
            if number:
                added[name] = added.get(name, 0) + number

    for table in _ORDER:
        for keys in _batches(_keys(source, table)):
            count(write(partial(_copy_missing, source, table, keys)))
    count(write(lambda target: {"runs": _end_runs(source, target)}))
    count(write(lambda target: dict(_renew(source, target))))
    return CopyReport(added=added)


def _copy_missing(source: Source, table: Table, keys: list[tuple[Any, ...]], target: Connection) -> dict[str, int]:
    names = [column.name for column in table.primary_key.columns]
    columns = [table.c[name] for name in names]
    there = {tuple(row) for row in target.execute(select(*columns).where(_among(columns, keys)))}
    missing = [key for key in keys if key not in there]
    return dict(_copy_rows(source, target, table, missing)) if missing else {}


def _keys(source: Source, table: Table) -> Iterator[tuple[Any, ...]]:
    """All keys of a table; programs with parents before their children."""
    if table is not schema.programs:
        in_pieces = {"yield_per": BATCH_ROWS}
        found = source.connection.execute(select(*table.primary_key.columns), execution_options=in_pieces)
        yield from (tuple(row) for row in found)
        return
    columns = table.c
    parent_of: dict[tuple[Any, ...], str | None] = {
        (row.task_id, row.sha256): row.parent_sha256
        for row in source.rows(select(columns.task_id, columns.sha256, columns.parent_sha256))
    }
    done: set[tuple[Any, ...]] = set()
    for program in parent_of:
        chain: dict[tuple[Any, ...], None] = {}
        link: tuple[Any, ...] | None = program
        # Not in the chain already: two writers at once may have made each the other's parent.
        while link is not None and link not in done and link not in chain:
            chain[link] = None
            parent = parent_of[link]
            link = None if parent is None else (program[0], parent)
        yield from reversed(chain)
        done.update(chain)


def _copy_rows(source: Source, target: Connection, table: Table, keys: list[tuple[Any, ...]]) -> Mapping[str, int]:
    rows = {
        tuple(row[: len(table.primary_key.columns)]): row
        for row in _rows(source, table, [column.name for column in table.primary_key.columns], keys)
    }
    added = {table.name: insert_new(target, table, [dict(rows[key]._mapping) for key in keys])}
    for part, columns in _PARTS.get(table, ()):
        found = [dict(row._mapping) for row in _rows(source, part, columns, keys)]
        added[part.name] = insert_new(target, part, found)
    return added


def _rows(source: Source, table: Table, names: Iterable[str], keys: list[tuple[Any, ...]]) -> list[Row[Any]]:
    columns = [table.c[name] for name in names]
    others = [column for column in table.columns if column not in set(columns)]
    return source.rows(select(*columns, *others).where(_among(columns, keys)))


def _among(columns: Sequence[Column[Any]], keys: list[tuple[Any, ...]]) -> ColumnElement[bool]:
    """That a row's key is one of these."""
    return columns[0].in_([key[0] for key in keys]) if len(columns) == 1 else tuple_(*columns).in_(keys)


def _end_runs(source: Source, target: Connection) -> int:
    """Runs that were copied while they ran and have ended since."""
    table, ended = schema.runs, 0
    running = [row.id for row in target.execute(select(table.c.id).where(table.c.status == "running"))]
    for keys in _batches([(run_id,) for run_id in running]):
        for row in _rows(source, table, ["id"], keys):
            if row.status != "running":
                news = {"status": row.status, "message": row.message, "finished_at": row.finished_at}
                ended += target.execute(update(table).where(table.c.id == row.id).values(**news)).rowcount
    return ended


def _renew(source: Source, target: Connection) -> Iterator[tuple[str, int]]:
    """Verifications and findings that were made again since: the newer word holds."""
    for table in (schema.verifications, schema.findings):
        key, count = list(table.primary_key.columns), 0
        there = {tuple(row[:-1]): row[-1] for row in target.execute(select(*key, table.c.created_at))}
        made: dict[tuple[Any, ...], Any] = {
            tuple(row[:-1]): row[-1] for row in source.rows(select(*key, table.c.created_at))
        }
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
