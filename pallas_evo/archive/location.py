"""Where an archive is: a path or a SQLAlchemy URL, and everything about SQLite files that is no SQL.

A file is looked at before anything is allowed to write to it or beside it: what is not a sound archive of our schema
is refused by name and stays byte for byte as it was. A new one is built under another name and put in place whole, so
that no moment exists at which a kill leaves half an archive, and of two processes that create it at once one wins and
the other opens the winner's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from pallas_evo.archive.failures import corrupt, translated_files
from pallas_evo.errors import ArchiveError

DEFAULT_ARCHIVE = "runs/archive.sqlite"
"""Under the working directory; its folder is made on demand, any other must be there."""

BUSY_TIMEOUT_S = 60.0

_TOLD = {"application_name", "connect_timeout", "host", "port", "service", "sslmode", "target_session_attrs"}

_MAGIC = b"SQLite format 3\0"
_QUICK_CHECK_BYTES = 16 << 20  # a whole check of a larger file would take longer than reading what is asked for
_STALE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Location:
    """An archive's place. `path` is set for SQLite files, `name` is how messages call it (without a password)."""

    url: URL
    path: Path | None
    name: str

    @property
    def in_memory(self) -> bool:
        """An SQLite database that lives in this process only."""
        return self.url.get_backend_name() == "sqlite" and self.path is None


def locate(url_or_path: str | os.PathLike[str]) -> Location:
    """Read a path, or a URL like `sqlite:///runs/archive.sqlite` or `postgresql://user@host/name`.

    Raises:
        ArchiveError: it is empty, or no URL that SQLAlchemy can read.
    """
    text = os.fspath(url_or_path)
    if not text:
        raise ArchiveError("--archive: expected a path or a SQLAlchemy URL, came nothing.")
    if text == ":memory:":
        text = "sqlite://"
    if "://" not in text:
        return Location(url=URL.create("sqlite", database=text), path=Path(text), name=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the latter for a port that is no number, and says what it took for one
        url = None
    if url is None or (url.get_backend_name() != "sqlite" and "@" in f"{url.host}{url.database}"):
        # Without the rest of it, and without a cause: either may hold a part of the password.
        scheme = text.partition("://")[0]
        scheme = scheme if scheme.replace("+", "").isalnum() else ""
        raise ArchiveError(
            f"{scheme}://...: expected a SQLAlchemy URL, for example sqlite:///runs/archive.sqlite "
            "or postgresql://user:password@host/database. In a password write @ as %40, : as %3A, / as %2F, % as %25."
        )
    name = _name(url)
    if url.get_backend_name() == "sqlite":
        if url.drivername not in ("sqlite", "sqlite+pysqlite") or url.query or (url.database or "").startswith("file:"):
            raise ArchiveError(f"{name}: expected sqlite:///PATH without driver or options. Give the plain path.")
        if url.database in (None, "", ":memory:"):
            return Location(url=URL.create("sqlite"), path=None, name=name)
        return Location(url=url, path=Path(str(url.database)), name=name)
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    return Location(url=url, path=None, name=name)


def _name(url: URL) -> str:
    """The URL without its secrets, which may stand among the options too, a password under a mistyped name for one."""
    secret = [key for key in url.query if key not in _TOLD]
    return url.update_query_dict(dict.fromkeys(secret, "HIDDEN")).render_as_string(hide_password=True)


def connect(target: str, *, uri: bool) -> sqlite3.Connection:
    """One SQLite connection; transactions are begun and ended by us alone."""
    return sqlite3.connect(target, uri=uri, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def readable(path: Path) -> Iterator[str]:
    """A URI that opens the file for reading and writes neither to it nor anything beside it that was not there.

    - No write-ahead log: all is in the file. `immutable`, because `mode=ro` alone would create log and index.
    - A log with its index (`-shm`), as a live writer or a kill leaves them: `mode=ro` reads both; SQLite may refresh
      the index, which holds no data.
    - A log or journal alone, as a copy of the files leaves them: SQLite could read it only by writing beside it, so it
      reads a copy. To open the file alone as `immutable` would silently miss what the log holds.
    """
    log, index, journal = _beside(path, "-wal"), _beside(path, "-shm"), _beside(path, "-journal")
    uri = path.absolute().as_uri()
    if not _size(journal) and (not log.exists() or (not _size(log) and not index.exists())):
        yield f"{uri}?mode=ro&immutable=1"
    elif not _size(journal) and index.exists():
        yield f"{uri}?mode=ro"
    else:
        with tempfile.TemporaryDirectory(prefix="pallas-evo-") as folder:
            copy = Path(folder) / path.name
            for suffix in ("", "-wal", "-journal"):
                if _beside(path, suffix).exists():
                    shutil.copyfile(_beside(path, suffix), _beside(copy, suffix))
            yield f"{copy.as_uri()}?mode=rw"


def stamp(path: Path) -> tuple[int, int, bool]:
    """What changes when somebody writes: time and size of the file, and whether a log is there."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, _beside(path, "-wal").exists()


def check_place(location: Location, *, writing: bool) -> bool:
    """Whether the file is there.

    Raises:
        ArchiveError: it is a folder, or it or its folder cannot be read or written as wanted.
    """
    path = location.path
    assert path is not None
    folder = path.parent
    if writing and path == Path(DEFAULT_ARCHIVE):
        with translated_files(location.name):
            folder.mkdir(exist_ok=True)
    if not folder.is_dir():
        raise ArchiveError(
            f"{location.name}: expected its folder to be there, and it is not. Run: mkdir -p {folder} - or "
            "give another place by --archive."
        )
    if path.is_dir():
        raise ArchiveError(f"{location.name}: expected a file, came a folder. Give the file in it, or a new name.")
    exists = path.exists()
    if exists and not os.access(path, os.R_OK):
        raise ArchiveError(f"{location.name}: it cannot be read. Change its permissions, or give another by --archive.")
    if exists and not path.is_file():
        raise ArchiveError(f"{location.name}: expected a file, came something else. Give another place by --archive.")
    # SQLite keeps its log beside the file, so the folder must be writable too.
    blocked = next((p for p in ((path, folder) if exists else (folder,)) if not os.access(p, os.W_OK)), None)
    if writing and blocked is not None:
        raise ArchiveError(f"{location.name}: {blocked} cannot be written. Give another place by --archive.")
    return exists


def read_version(location: Location) -> tuple[set[str], str | None]:
    """The tables of an SQLite file and the schema revision that it says, found without writing anything.

    Raises:
        ArchiveError: the file is damaged or no SQLite database.
    """
    path = location.path
    assert path is not None
    for attempt in range(5):
        before = stamp(path)
        try:
            return _read_version(path, location.name)
        except ArchiveError:
            # A writer may have come in between: an `immutable` reader takes no lock. Only a file at rest is refused.
            if stamp(path) == before or attempt == 4:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable")


def _read_version(path: Path, name: str) -> tuple[set[str], str | None]:
    with translated_files(name):
        with path.open("rb") as file:
            header = file.read(100)
        size = path.stat().st_size
    if size == 0:
        raise corrupt(name, "an empty file")
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise corrupt(name, "a file that is not an SQLite database")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    # With a log the file may be short: a kill during a checkpoint leaves the rest in the log.
    if not _size(_beside(path, "-wal")) and header[24:28] == header[92:96] and size < pages * page_bytes:
        raise corrupt(name, f"a truncated file ({size} bytes of {pages * page_bytes})")
    with translated_files(name), readable(path) as uri, closing(connect(uri, uri=True)) as connection:
        if size <= _QUICK_CHECK_BYTES:
            said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if said != "ok":
                raise corrupt(name, f"a damaged file ({str(said).splitlines()[0]})")
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" not in tables:
            return tables, None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return tables, row[0] if row else None


def put_in_place(location: Location, build: Callable[[Path], None]) -> None:
    """Build a new file under a name of its own, then give it the archive's name, unless another process was faster."""
    path = location.path
    assert path is not None
    with translated_files(location.name):
        _sweep(path)
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.new-", dir=path.parent)
        os.close(descriptor)
        new = Path(made)
        try:
            build(new)
            umask = os.umask(0)
            os.umask(umask)
            new.chmod(0o666 & ~umask)
            _sync(new)
            _link(new, path)
            _sync(path.parent)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                _beside(new, suffix).unlink(missing_ok=True)


def _link(new: Path, path: Path) -> None:
    try:
        os.link(new, path)  # atomic, and never over a file that is there
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if not path.exists():
                new.rename(path)
        finally:
            os.close(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Remove what a creator left that was killed long ago."""
    for left in path.parent.glob(f".{path.name}.new-*"):
        try:
            if time.time() - left.stat().st_mtime > _STALE_S:
                left.unlink()
        except OSError:
            continue  # another process removes it too
