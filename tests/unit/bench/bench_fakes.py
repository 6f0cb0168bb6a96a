"""Instruments that measure nothing: a bench is tested without a GPU, a jail or a judge."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from pallas_evo.bench import Instruments, Plan
from pallas_evo.bench.sources import HARMS

TASKS = ("L1/relu", "L1/softmax", "L2/pwm_scan")


def made_verdict(source: str, task: str, **changed) -> dict:
    """An accepted, timed candidate as `evaluate --json` prints it."""
    harm = next((what for what in HARMS if HARMS[what] in source), None)
    verdict = {
        "task": task,
        "correct": harm is None,
        "combined_score": 1.25 if harm is None else 0.0,
        "reason": None if harm is None else "device_fault",
        "message": "",
        "timer": "cupti",
        "gates": [{"name": "contract", "passed": True, "reason": None, "message": "", "seconds": 0.001}],
        "sizes": {
            "small": {"median_us": None, "xla_us": None},
            "medium": {
                "median_us": 8.0,
                "xla_us": 10.0,
                "floor_us": 6.0,
                "roofline_percent": 75.0,
                "samples_us": [8.0, 8.0],
            },
        },
        "compiled": {"sm_80": {"registers": 40, "spill_bytes": 0, "shared_bytes": 1024, "occupancy": 0.5}},
        "ran_on": "NVIDIA H200",
        "candidate_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "duration_s": 0.5,
        "environment": {
            "timing": {
                "medium": {
                    "binds": "memory",
                    "kernels": {"candidate": 1},
                    "wall_candidate_us": [80.0],
                    "wall_baseline_us": [60.0],
                    "held_s": 0.2,
                }
            }
        },
    }
    return {**verdict, **changed}


@dataclass(frozen=True)
class MadeRatio:
    first_us: tuple[float, ...] = (2.0, 2.0, 2.0)
    second_us: tuple[float, ...] = (2.0, 2.0, 2.0)
    first_swapped_us: tuple[float, ...] = (2.02, 2.02, 2.02)
    second_swapped_us: tuple[float, ...] = (2.0, 2.0, 2.0)
    ratio: float = 1.005
    timer: str = "fake"


@dataclass(frozen=True)
class MadeBandwidth:
    gb_s: float = 4320.0
    samples_us: tuple[float, ...] = (1.0,)
    bytes: int = 1 << 30
    device: str = "NVIDIA H200"
    timer: str = "fake"


class Fakes:
    """Instruments that note every call; `judge` gives the verdict, or raises."""

    def __init__(self, judge: Callable[[str, str], dict] = made_verdict) -> None:
        self.judge = judge
        self.judged: list[tuple[str, str]] = []
        self.pools: list[int] = []
        self.selfs: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    @contextmanager
    def judges(self, config, target, count):
        self.pools.append(count)
        yield self

    def submit(self, source: str, task_id: str) -> Future[dict]:
        future: Future[dict] = Future()
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.judged.append((task_id, source))
        try:
            future.set_result(self.judge(source, task_id))
        except Exception as error:
            future.set_exception(error)
        with self._lock:
            self._at_once -= 1
        return future

    def wait_ready(self) -> None:
        pass

    @contextmanager
    def self_timer(self, config):
        yield self

    def self_ratio(self, source, task) -> MadeRatio:
        with self._lock:
            self.selfs.append(task.id)
        return MadeRatio()

    def bandwidth(self, config) -> MadeBandwidth:
        return MadeBandwidth()

    @property
    def instruments(self) -> Instruments:
        return Instruments(judges=self.judges, self_timer=self.self_timer, bandwidth=self.bandwidth)


def plan(**changed) -> Plan:
    return Plan(**{"tasks": TASKS, "at_once": (1, 2), "candidates": 6, "judges": 2, **changed})
