"""A database server that restarts, and transactions in each other's way: the whole transaction is done again, for a
while.

Doing one again is safe only where it may have been committed the first time: a connection that breaks during COMMIT
does not say. So every write is idempotent by its keys: content hashes, or ids that were drawn before the first try.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from pallas_evo.errors import PallasEvoError

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a transaction is tried again: a restart takes seconds, recovery after a crash some more."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_IN_EACH_OTHERS_WAY = {"40001", "40P01"}  # serialization_failure, deadlock_detected
_AWAY = {"57P01", "57P02", "57P03", "57P05", "53300"}  # shutdown, crash, starting, idle too long, too many connections
# A refused connection has no SQLSTATE, so the words of the server decide (in English; any other language is refused).
_SOON = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting",
    "too many clients",
    "too many connections",
    "connection slots are reserved",
)
_NOT_EVEN_BEGUN = ("failed to resolve host", "connection timeout expired")  # the driver's own words
_NEVER = ("authentication", "does not exist", "password", "pg_hba", "permission denied", "not permitted")


def sqlstate(error: BaseException | None) -> str:
    """The five characters by which a server says what is wrong, or nothing."""
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def connecting(error: DBAPIError) -> bool:
    """Whether the error came while a connection was made."""
    said = str(error.orig).lower()
    return getattr(error.orig, "pgconn", None) is not None or any(words in said for words in _NOT_EVEN_BEGUN)


def lost(error: DBAPIError) -> bool:
    """Whether a connection that stood is gone."""
    state = sqlstate(error.orig)
    return not connecting(error) and (error.connection_invalidated or state in _AWAY or state.startswith("08"))


def passes(error: DBAPIError, *, opened: bool) -> bool:
    """Whether the same transaction may well succeed in a moment. `opened`: this database was reached before."""
    if connecting(error):
        said = str(error.orig).lower()
        if sqlstate(error.orig) in _AWAY or any(words in said for words in _SOON):
            return True
        return opened and not any(words in said for words in _NEVER)
    return lost(error) or sqlstate(error.orig) in _IN_EACH_OTHERS_WAY


def patient(name: str, work: Callable[[], T], *, opened: bool = True) -> T:
    """Call `work`, a whole transaction, until it succeeds or has failed for `PATIENCE_S`.

    Raises:
        PallasEvoError: it failed all that time; `name` is the archive as the user gave it.
        DBAPIError: another failure, which time will not mend.
    """
    deadline, pause_s = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    while True:
        try:
            return work()
        except DBAPIError as error:
            if not passes(error, opened=opened):
                raise
            if time.monotonic() + pause_s > deadline:
                said = str(error.orig).strip().partition("\n")[0]
                raise PallasEvoError(
                    f"{name}: the database server did not do its part for {PATIENCE_S:.0f} s ({said}). Every write "
                    "that returned is there; look after the server and run again."
                ) from error
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # those who were thrown out together do not come back together
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
