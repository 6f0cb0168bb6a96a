"""Child processes that can do no harm: confinement, supervision, frames.

Worker          a child that runs one of our modules, talks in frames, and can always be killed whole
WorkerLimits    what it may use
Ended           why there is no answer
level, probe    which confinement works on this machine
LEVELS          the levels, best first
JailUnavailable raised where a jail was asked for and there is none
"""

from pallas_evo.errors import JailUnavailable
from pallas_evo.jail.levels import LEVELS, Probe, level, probe
from pallas_evo.jail.worker import Ended, Level, Worker, WorkerLimits, printable

__all__ = [
    "LEVELS", "Ended", "JailUnavailable", "Level", "Probe", "Worker", "WorkerLimits", "level", "printable", "probe",
]  # fmt: skip
