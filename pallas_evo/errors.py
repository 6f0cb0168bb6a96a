"""Our own failures, one small tree.

A candidate's failure is never one of these: it is a `Rejection` value in an `Evaluation`. What is raised from here
says that *we* could not do our part, so that no search ever learns a score from it.
"""


class PallasEvoError(Exception):
    """The root: one or two sentences that say what was expected, what came, where, and what to do next."""

    exit_code = 3


class UsageError(PallasEvoError):
    """The caller asked for something that does not exist or cannot be read: an option, a task, a file, a database."""

    exit_code = 2


class UnknownTask(UsageError):
    """No task has that id."""


class ConfigError(UsageError):
    """A configuration file or an override does not fit the schema."""


class ArchiveError(UsageError):
    """An archive cannot be opened as it is: corrupt, of another schema version, or not a database."""


class JailUnavailable(PallasEvoError):
    """This machine offers no way to confine a candidate."""


class DeviceUnavailable(PallasEvoError):
    """The GPU that was asked for is missing, busy past the deadline, or gone."""


class TimerUnavailable(DeviceUnavailable):
    """The timer that was asked for is not there."""


class WorkerFailed(PallasEvoError):
    """A process of ours (validator, executor, runner) ended without an answer, and the candidate is not the cause."""


class UnknownOperation(PallasEvoError):
    """The executor met an operation that the validator lets through and that it cannot run: a gap in our code."""
