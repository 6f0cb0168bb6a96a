"""Database errors in our words: what is the caller's to mend is an ArchiveError, what is the machine's is not."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from pallas_evo.archive.patience import connecting, lost, sqlstate
from pallas_evo.errors import ArchiveError, PallasEvoError

CORRUPT = (
    "{name}: expected a pallas_evo archive, came {came}. It was left as it was; move it away, or give another place "
    "by --archive."
)


def corrupt(name: str, came: str) -> ArchiveError:
    """The refusal of a file that is no archive, or no longer one."""
    return ArchiveError(CORRUPT.format(name=name, came=came))


@contextmanager
def translated_files(name: str) -> Iterator[None]:
    """Raise file and database errors of the block as ours."""
    try:
        with translated(name):
            yield
    except OSError as error:
        raise _translate(error, name, integrity=False) from error


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise database errors of the block as ours; `name` is the archive as the user gave it."""
    try:
        yield
    except DBAPIError as error:
        original = error.orig if isinstance(error.orig, Exception) else error
        if lost(error):
            raise PallasEvoError(
                f"{name}: the connection to the database was lost ({_said(original)}). What was at work is not stored, "
                "every write that returned is; run again."
            ) from error
        if connecting(error):
            raise ArchiveError(
                f"{name}: the database cannot be reached or does not let this user in ({_said(original)}). Check the "
                "server, and the URL given by --archive."
            ) from error
        raise _translate(original, name, integrity=isinstance(error, IntegrityError)) from error
    except SQLAlchemyError as error:
        raise PallasEvoError(f"{name}: {error}") from error
    except sqlite3.Error as error:
        raise _translate(error, name, integrity=isinstance(error, sqlite3.IntegrityError)) from error


def _said(error: Exception) -> str:
    """The first line of what the driver says, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__


def _translate(error: Exception, name: str, *, integrity: bool) -> PallasEvoError:
    said, state = _said(error), sqlstate(error)
    low = said.lower()
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return PallasEvoError(f"{name}: the disk is full. Free some space and run again; what was stored is whole.")
        return ArchiveError(f"{name}: {error.strerror or said}. Give another place by --archive.")
    if integrity:
        return PallasEvoError(
            f"{name}: a row names a task, program or run that the archive does not hold ({said}). Add that one first."
        )
    if state == "42501":  # insufficient_privilege; since PostgreSQL 15 nobody but the owner makes tables in public
        return ArchiveError(
            f"{name}: the database lets this user connect and not do that ({said}). Its owner grants it: "
            "GRANT USAGE, CREATE ON SCHEMA public TO the user, or ALTER DATABASE the database OWNER TO the user."
        )
    if state == "53100" or "disk is full" in low or "no space left" in low or "disk full" in low:
        return PallasEvoError(f"{name}: the disk is full. Free some space and run again; what was stored is whole.")
    if "malformed" in low or "not a database" in low or "disk image" in low:
        return corrupt(name, f"a damaged file ({said})")
    if "locked" in low or "busy" in low:
        return PallasEvoError(
            f"{name}: another process kept it locked past the deadline ({said}). Run again when that one has ended."
        )
    if "readonly" in low or "read-only" in low:
        return ArchiveError(f"{name}: it can only be read ({said}). Give a place that can be written by --archive.")
    if "unable to open" in low:
        return ArchiveError(f"{name}: it cannot be opened ({said}). Check the path and its permissions.")
    if any(word in low for word in ("connect", "password", "authentication", "does not exist", "could not translate")):
        return ArchiveError(f"{name}: the database cannot be used ({said}). Check the URL given by --archive.")
    return PallasEvoError(f"{name}: the database failed ({said}).")
