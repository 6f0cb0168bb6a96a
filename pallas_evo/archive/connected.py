"""How an archive holds its database: transactions, batches, reading without a trace, patience with a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine

from pallas_evo.archive import migrate
from pallas_evo.archive.engine import WRITE, file_engine, memory_engine, server_engine
from pallas_evo.archive.failures import translated, translated_files
from pallas_evo.archive.location import Location, readable, stamp
from pallas_evo.archive.patience import patient
from pallas_evo.errors import ArchiveError

T = TypeVar("T")


class Connected:
    """A database, open: a context manager that closes itself. `Archive` is one."""

    def __init__(self, location: Location, *, read_only: bool) -> None:
        self.name = location.name
        self.read_only = read_only
        self._location = location
        self._resources = ExitStack()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._unlocked = False  # reads an SQLite file without locks (`immutable`)
        self._engine = self._connect()

    def _connect(self) -> Engine:
        path = self._location.path
        if path is None:
            in_memory = self._location.in_memory
            engine = memory_engine() if in_memory else server_engine(self._location, read_only=self.read_only)
        elif self.read_only:
            with translated_files(self.name):
                uri = self._resources.enter_context(readable(path))
            self._unlocked = "immutable" in uri
            engine = file_engine(uri, uri=True)
        else:
            engine = file_engine(str(path.absolute()))
        self._resources.callback(engine.dispose)
        return engine

    def _prepare(self, *, create: bool) -> None:
        def prepare() -> None:
            with self._engine.execution_options(**{WRITE: create}).begin() as connection:
                if self._location.in_memory:
                    migrate.create_tables(connection)
                else:
                    migrate.prepare_server(connection, self.name, create=create)

        with translated(self.name):
            patient(self.name, prepare, opened=False)

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        """A transaction for a block, which cannot be done again: patient with a server until it has begun."""
        with translated(self.name), ExitStack() as stack:
            yield patient(self.name, lambda: stack.enter_context(engine.begin()))

    @contextmanager
    def _reading(self, *, snapshot: bool = False) -> Iterator[Connection]:
        open_batch = getattr(self._local, "connection", None)
        if open_batch is not None:
            yield open_batch
            return
        path = self._location.path
        before = None
        if self._unlocked and path is not None:
            with self._lock, translated_files(self.name):
                if stamp(path)[2]:  # a writer has come since: read with its log and under locks from now on
                    self._engine.dispose()
                    self._engine = self._connect()
                before = stamp(path) if self._unlocked else None
        engine = self._engine
        if snapshot and engine.dialect.name != "sqlite":  # SQLite's transactions are snapshots anyway
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        try:
            with self._transaction(engine) as connection:
                yield connection
        finally:
            if before is not None and path is not None and stamp(path)[:2] != before[:2]:
                raise ArchiveError(f"{self.name}: it was written to while it was read. Run again.")

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self.read_only:
            raise ArchiveError(f"{self.name}: it is open for reading only. Open it without read_only to write.")
        open_batch = getattr(self._local, "connection", None)
        if open_batch is not None:
            yield open_batch
            return
        with self._transaction(self._engine.execution_options(**{WRITE: True})) as connection:
            yield connection

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Call `work` in a transaction, again where a server restarted: `work` changes nothing the second time."""
        open_batch = getattr(self._local, "connection", None)
        if open_batch is not None:
            return work(open_batch)
        if self.read_only:
            raise ArchiveError(f"{self.name}: it is open for reading only. Open it without read_only to write.")
        engine = self._engine.execution_options(**{WRITE: True})

        def once() -> T:
            with engine.begin() as connection:
                return work(connection)

        with translated(self.name):
            return patient(self.name, once)

    def together(self, work: Callable[[], T]) -> T:
        """Call `work` with all its writes (in this thread) joined into one transaction, and return what it returns.

        Where a database server restarts in the middle, `work` is called again, even if the transaction had arrived:
        give `add_evaluation` an id that was drawn outside.
        """

        def joined(connection: Connection) -> T:
            outer = getattr(self._local, "connection", None)
            self._local.connection = connection
            try:
                return work()
            finally:
                self._local.connection = outer

        return self._write(joined)

    @contextmanager
    def batch(self) -> Iterator[Self]:
        """Join all writes of the block (in this thread) into one transaction: all or none, and much faster.

        A block cannot be done again: where the connection to a server is lost in it, that is an error, and nothing of
        it is stored. `together` does it again.
        """
        with self._writing() as connection:
            outer = getattr(self._local, "connection", None)
            self._local.connection = connection
            try:
                yield self
            finally:
                self._local.connection = outer

    def close(self) -> None:
        """Close all connections."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
