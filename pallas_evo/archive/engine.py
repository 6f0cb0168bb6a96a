"""Engines: how a connection to an archive is set up, and how transactions begin."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool

from pallas_evo.archive.location import BUSY_TIMEOUT_S, Location, connect
from pallas_evo.errors import ArchiveError

WRITE = "pallas_evo_write"
"""Execution option of the engine that writes."""


def file_engine(target: str, *, uri: bool = False, foreign_keys: bool = True) -> Engine:
    """An engine on one SQLite file. `target` is a path, or a read-only URI of `location.readable`."""
    engine = create_engine("sqlite://", creator=lambda: connect(target, uri=uri), poolclass=QueuePool, pool_size=5)
    _set_up_sqlite(engine, writing=not uri, foreign_keys=foreign_keys)
    return engine


def memory_engine() -> Engine:
    """An engine on a new SQLite database in this process's memory."""
    engine = create_engine("sqlite://", creator=lambda: connect(":memory:", uri=False), poolclass=StaticPool)
    _set_up_sqlite(engine, writing=False, foreign_keys=True)
    return engine


def server_engine(location: Location) -> Engine:
    """An engine on a database server.

    Raises:
        ArchiveError: SQLAlchemy knows no such database, or its driver is not installed.
    """
    try:
        return create_engine(location.url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise ArchiveError(
            f"{location.name}: expected the driver {error.name} to be installed, and it is not. "
            f"Run: pip install {error.name}"
        ) from error
    except (NoSuchModuleError, ArgumentError) as error:
        raise ArchiveError(
            f"{location.name}: expected a database that SQLAlchemy knows, for example sqlite:///FILE or "
            f"postgresql://user:password@host/database ({error})."
        ) from error


def _set_up_sqlite(engine: Engine, *, writing: bool, foreign_keys: bool) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        if writing:
            # WAL is a property of the file; asking first spares a lock. FULL syncs the log at each commit, so that an
            # evaluation whose verdict was handed on survives a power cut, not only a kill. NORMAL would lose the last
            # commits there, and spare a few milliseconds against an evaluation's third of a second.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails at once, whatever the timeout, where another has
        # written in between. IMMEDIATE takes the write lock at the start, and waits for it.
        writes = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
