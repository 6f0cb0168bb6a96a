"""Finding archives and ShinkaEvolve runs below a path, and opening them so that nothing is written beside them."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pallas_evo.archive.location import connect, locate, read_version
from pallas_evo.archive.store import open_archive
from pallas_evo.errors import ArchiveError, PallasEvoError, UsageError
from pallas_evo.reporting.archived import ArchiveReader
from pallas_evo.reporting.shinka import TABLES, ShinkaReader
from pallas_evo.reporting.views import Reader

_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_GENERATION = re.compile(r"gen_\d+")
_BESIDE = ("-wal", "-journal")
_TRIES = 5


@dataclass
class Found:
    """What can be read, and a sentence for each database that cannot.

    `repeats` are the run folders whose run one of the archives holds too: to be searched, not to be counted again.
    """

    readers: list[Reader] = field(default_factory=list)
    repeats: list[Reader] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@contextmanager
def opened(path: str) -> Iterator[Found]:
    """All that lies at a path (a folder, searched at any depth, or one database) or behind a URL.

    Raises:
        UsageError: there is nothing, or nothing that can be read.
    """
    found = Found()
    with ExitStack() as stack:
        location = locate(path) if "://" in path else None
        if location is not None and location.path is None:
            found.readers.append(ArchiveReader(stack.enter_context(open_archive(path, read_only=True)), location.name))
            yield found
            return
        place = location.path if location is not None and location.path is not None else Path(path)
        if not path or not place.exists():
            raise UsageError(
                f"{path or 'PATH'}: expected a folder or a database, and nothing is there. Give runs/, or make an "
                "archive: python -m pallas_evo.seed"
            )
        wanted = not place.is_dir()
        for file in [place] if wanted else databases(place, found.problems.append):
            try:
                reader = _reader(file, stack, wanted=wanted)
            except PallasEvoError as error:
                found.problems.append(str(error))
                continue
            if reader is not None:
                found.readers.append(reader)
        if not found.readers:
            raise UsageError("\n".join(found.problems) or _nothing(place))
        _set_aside(found)
        yield found


def _nothing(folder: Path) -> str:
    """What to say of a folder in which nothing can be inspected."""
    records = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.json") if file.is_file())[:3]
    if records:
        return (
            f"{folder}: expected an archive or a ShinkaEvolve run in it, and there are only JSON records "
            f"({', '.join(records)}, ...): read those as they are. Make an archive: python -m pallas_evo.seed"
        )
    return (
        f"{folder}: expected an archive or a ShinkaEvolve run in it, and there is none. Make one: "
        "python -m pallas_evo.seed - or give another folder."
    )


def _set_aside(found: Found) -> None:
    """Keep a run apart that an archive holds whole: an evolution of ours leaves its programs in both places."""
    archives = [reader for reader in found.readers if isinstance(reader, ArchiveReader)]
    for reader in [one for one in found.readers if isinstance(one, ShinkaReader)]:
        if any(_holds(archive, reader) for archive in archives):
            found.readers.remove(reader)
            found.repeats.append(reader)


def _holds(archive: ArchiveReader, run: ShinkaReader) -> bool:
    try:
        return run.size > 0 and archive.programs_of(run.run_id) >= run.size
    except PallasEvoError:
        return False  # it will be said when the archive is shown


def databases(folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """Every database file below a folder, in order of names; hidden folders and links to folders are left out."""

    def refused(error: OSError) -> None:
        say(f"{error.filename}: the folder cannot be read ({error.strerror}). Change its permissions.")

    for top, folders, files in os.walk(folder, onerror=refused):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        found = [name for name in sorted(files) if name.endswith(_SUFFIXES) and not name.startswith(".")]
        if found and any(map(_GENERATION.fullmatch, folders)):
            # A run's generations are thousands of folders, and hold what candidates may have left there.
            folders[:] = [name for name in folders if name != "best" and not _GENERATION.fullmatch(name)]
        for name in found:
            yield Path(top) / name


def _reader(path: Path, stack: ExitStack, *, wanted: bool) -> Reader | None:
    """A reader of the file; None where it is another program's database and nobody named it."""
    name = str(path)
    if not path.is_file():
        raise ArchiveError(f"{name}: expected a database, came something that is no file. Give another.")
    copy = stack.enter_context(_unwritten(path))
    try:
        tables, revision = read_version(locate(copy))
        if tables >= TABLES:
            uri = copy.absolute().as_uri()
            # Of a copy the log is read too, which writes beside it.
            target = f"{uri}?mode=ro&immutable=1" if copy == path else uri
            return ShinkaReader(partial(connect, target, uri=True), path.absolute().parent, name)
        if not wanted and revision is None and "task_versions" not in tables:
            return None
        return ArchiveReader(stack.enter_context(open_archive(copy, create=False, read_only=copy == path)), name)
    except sqlite3.Error as error:
        raise ArchiveError(f"{name}: expected a database that can be read, came: {error}.") from error
    except PallasEvoError as error:
        raise type(error)(str(error).replace(str(copy), name)) from error


@contextmanager
def _unwritten(path: Path) -> Iterator[Path]:
    """A path that may be opened without writing beside the original.

    A file with a write-ahead log or a journal, as a writer at work or a kill leaves them, is read from a copy: whoever
    opens the original takes notes in its index, or recovers it.
    """
    beside = {suffix: path.with_name(path.name + suffix) for suffix in _BESIDE}
    if not any(one.exists() for one in beside.values()):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pallas-evo-") as folder:
        copy = Path(folder) / path.name
        for attempt in range(_TRIES):
            before = _state(path)
            try:
                shutil.copyfile(path, copy)
                for suffix, one in beside.items():
                    copy.with_name(copy.name + suffix).unlink(missing_ok=True)
                    if one.exists():
                        shutil.copyfile(one, copy.with_name(copy.name + suffix))
            except FileNotFoundError:
                continue  # the writer has just ended and taken its log along
            except OSError as error:
                raise ArchiveError(
                    f"{path}: it cannot be copied to {folder}, which reading it with its log takes ({error.strerror})."
                ) from error
            if _state(path) == before:
                break
            time.sleep(0.1 * 2**attempt)
        else:
            raise PallasEvoError(f"{path}: it is being written to all the time. Run again when the run has ended.")
        yield copy


def _state(path: Path) -> tuple[int, int, bytes]:
    """What a checkpoint changes; a log that has only grown is as good as before."""
    found = path.stat()
    try:
        with path.with_name(path.name + "-wal").open("rb") as log:
            head = log.read(32)
    except OSError:
        head = b""
    return found.st_mtime_ns, found.st_size, head
