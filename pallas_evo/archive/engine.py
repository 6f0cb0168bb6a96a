"""Engines: how a connection to an archive is set up, and how transactions begin."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
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


_LIBPQ: Mapping[str, str | int] = {
    "application_name": "pallas_evo",
    "client_encoding": "utf8",
    "connect_timeout": 10,  # seconds; the driver's own is 130
    # A server that vanished without a word is noticed within a minute, not after the kernel's two hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # ms
}


def server_engine(location: Location, *, read_only: bool = False) -> Engine:
    """An engine on a database server. `read_only`: the server itself refuses to write.

    Raises:
        ArchiveError: SQLAlchemy knows no such database, or its driver is not installed.
    """
    try:
        return create_engine(
            location.url,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",  # whoever waited for a lock must see what its holder wrote
            connect_args=_arguments(location.url),
            execution_options={"postgresql_readonly": True} if read_only else {},
        )
    except ImportError as error:  # not there, or there without the library that it wraps
        wanted = error.name or location.url.get_driver_name()
        run = f"pip install {wanted}"
        if wanted.startswith("psycopg") and not wanted.startswith("psycopg2"):
            wanted, run = "psycopg", "pip install 'pallas-evo[postgres]'"
        raise ArchiveError(
            f"{location.name}: expected the driver {wanted} to be installed, and it is not. Run: {run}"
        ) from error
    except (NoSuchModuleError, ArgumentError) as error:
        raise ArchiveError(
            f"{location.name}: expected a database that SQLAlchemy knows, for example sqlite:///FILE or "
            f"postgresql://user:password@host/database ({error})."
        ) from error


def _arguments(url: URL) -> dict[str, str | int]:
    """What is told to the driver beside the URL, which goes before."""
    if url.get_backend_name() != "postgresql" or url.get_driver_name() not in ("psycopg", "psycopg2"):
        return {}
    return {name: value for name, value in _LIBPQ.items() if name not in url.query}


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
