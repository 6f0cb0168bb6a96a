"""Child processes that can do no harm: confinement, supervision, frames.

Worker          a child that runs one of our modules, talks in frames, and can always be killed whole
WorkerLimits    what it may use
Nursery         forks workers that run one module, without the price of its imports
Ended           why there is no answer
level, probe    which confinement works on this machine
LEVELS          the levels, best first
JailUnavailable raised where a jail was asked for and there is none

Names are looked up when they are first used: a child imports parts of this package and should not load the parent's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pallas_evo.errors import JailUnavailable as JailUnavailable
    from pallas_evo.jail.levels import LEVELS as LEVELS
    from pallas_evo.jail.levels import Probe as Probe
    from pallas_evo.jail.levels import level as level
    from pallas_evo.jail.levels import probe as probe
    from pallas_evo.jail.nursery import Nursery as Nursery
    from pallas_evo.jail.worker import Ended as Ended
    from pallas_evo.jail.worker import Level as Level
    from pallas_evo.jail.worker import Worker as Worker
    from pallas_evo.jail.worker import WorkerLimits as WorkerLimits
    from pallas_evo.jail.worker import printable as printable

__all__ = [
    "LEVELS", "Ended", "JailUnavailable", "Level", "Nursery", "Probe", "Worker", "WorkerLimits", "level", "printable",
    "probe",
]  # fmt: skip

_HOMES = {
    "JailUnavailable": "pallas_evo.errors",
    "LEVELS": "pallas_evo.jail.levels",
    "Probe": "pallas_evo.jail.levels",
    "level": "pallas_evo.jail.levels",
    "probe": "pallas_evo.jail.levels",
    "Nursery": "pallas_evo.jail.nursery",
    "Ended": "pallas_evo.jail.worker",
    "Level": "pallas_evo.jail.worker",
    "Worker": "pallas_evo.jail.worker",
    "WorkerLimits": "pallas_evo.jail.worker",
    "printable": "pallas_evo.jail.worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
