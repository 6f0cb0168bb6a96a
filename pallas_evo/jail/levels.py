"""Which confinement works on this machine: found by trying it, once a process."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from pallas_evo.errors import PallasEvoError
from pallas_evo.jail import bubblewrap
from pallas_evo.jail.worker import Ended, Level, Worker, WorkerLimits

LEVELS: tuple[Level, ...] = ("bubblewrap+landlock+seccomp", "landlock+seccomp")
PROBE_S = 30.0


@dataclass(frozen=True)
class Probe:
    """One level, tried: `why` is empty where it works."""

    level: Level
    works: bool
    why: str


@functools.cache
def probe(which: Level) -> Probe:
    """Start a child at one level and let it try what a candidate must not be able to do."""
    if which.startswith("bubblewrap") and bubblewrap.executable() is None:
        return Probe(which, False, "bwrap is not installed")
    try:
        with Worker("pallas_evo.jail.selftest", limits=WorkerLimits(memory_bytes=1 << 30), _level=which) as worker:
            answer = worker.receive(PROBE_S, 64 << 10)
    except PallasEvoError as error:
        return Probe(which, False, str(error))
    if isinstance(answer, Ended):
        return Probe(which, False, f"the probe ended: {answer.reason}, {answer.output_text[-500:].strip()}")
    got_through = json.loads(answer)
    return Probe(which, not got_through, f"a confined process could {', '.join(got_through)}" if got_through else "")


@functools.lru_cache(maxsize=1)
def level() -> Level:
    """The best level that works here."""
    return next((which for which in LEVELS if probe(which).works), "none")


def why_none() -> str:
    """Why no level works, for a message."""
    return "; ".join(f"{which}: {probe(which).why}" for which in LEVELS)
