"""Runs the parts of a bench and keeps what they find."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pallas_evo import __version__
from pallas_evo.bench import throughput
from pallas_evo.bench.judges import Judges, open_judges
from pallas_evo.bench.record import Record
from pallas_evo.bench.rows import row_of
from pallas_evo.bench.sources import round_of, seed_source
from pallas_evo.bench.throughput import Job
from pallas_evo.config import Config, to_dict
from pallas_evo.devices import find_device
from pallas_evo.errors import PallasEvoError, TimerUnavailable, UsageError
from pallas_evo.tasks import get_task
from pallas_evo.types import Target, Task

if TYPE_CHECKING:
    from pallas_evo.evaluation import Bandwidth, SelfRatio

PARTS = ("suite", "self", "throughput", "wall")
ON_ANY_MACHINE = ("suite", "throughput")
HARM_AT_ONCE = 4
HARM_CANDIDATES = 24

Advance = Callable[[str], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""(what, how many) -> a block that gets a function to call with the name of each thing that is done."""


class SelfTimer(Protocol):
    """What measures self-ratios; `Evaluator` is one."""

    def self_ratio(self, source: str, task: Task) -> SelfRatio: ...


@contextmanager
def _self_timer(config: Config) -> Iterator[SelfTimer]:
    from pallas_evo.evaluation import Evaluator

    with Evaluator(config, target="cuda") as evaluator:
        yield evaluator


def _bandwidth(config: Config) -> Bandwidth:
    from pallas_evo.evaluation import copy_bandwidth

    return copy_bandwidth(config)


@contextmanager
def _silent(what: str, count: int) -> Iterator[Advance]:
    yield lambda name: None


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """What a bench measures with; tests put in their own."""

    judges: Callable[[Config, Target, int], AbstractContextManager[Judges]] = open_judges
    self_timer: Callable[[Config], AbstractContextManager[SelfTimer]] = _self_timer
    bandwidth: Callable[[Config], Bandwidth] = _bandwidth


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run.

    Args:
        tasks: task ids.
        parts: names of PARTS, in any order.
        at_once: how many candidates are judged at once, one round of throughput each.
        candidates: of one round.
        judges: in the pool; a round of throughput has at least as many as it judges at once.
    """

    tasks: Sequence[str]
    parts: Sequence[str] = PARTS
    target: Target = "cuda"
    at_once: Sequence[int] = (1, 2, 4, 8)
    candidates: int = 45
    judges: int = 8
    config: Config = field(default_factory=Config)


def run_bench(
    plan: Plan, record: Record, instruments: Instruments | None = None, progress: Progress = _silent
) -> dict[str, Any]:
    """Run what the record does not hold yet, and return the record's content.

    Raises:
        UsageError: a part that needs a GPU, without one; a record of other tasks or another target.
    """
    parts = [part for part in PARTS if part in plan.parts]
    if plan.target == "cpu" and (others := [part for part in parts if part not in ON_ANY_MACHINE]):
        raise UsageError(
            f"{' and '.join(others)}: this part of a bench times kernels on a GPU, and --target is cpu. "
            f"Without a GPU there is --only {','.join(ON_ANY_MACHINE)}."
        )
    _begin(plan, record)
    bench = _Bench(plan, record, instruments or Instruments(), progress)
    if plan.target == "cuda":
        bench.bandwidth()
    if "suite" in parts or "wall" in parts:
        bench.suite()
    if "self" in parts:
        bench.self_ratios()
    if "throughput" in parts:
        bench.throughput()
    record.note(ended=_now(), telemetry_after=_telemetry(plan.target))
    return record.content()


def _begin(plan: Plan, record: Record) -> None:
    from pallas_evo.evaluation import environment
    from pallas_evo.running import driver_version

    here = {
        **environment(),
        "pallas_evo": __version__,  # also where it is not installed
        "driver": driver_version() if plan.target == "cuda" else None,
        "cores": len(os.sched_getaffinity(0)),
    }
    fixed = {"target": plan.target, "tasks": list(plan.tasks), "config": to_dict(plan.config)}
    if record.resumed:
        was = {"environment": record.data.get("environment"), **{name: record.data.get(name) for name in fixed}}
        differing = [name for name, value in {"environment": here, **fixed}.items() if was[name] != value]
        if differing:
            raise UsageError(
                f"{record.path}: this record was made with another {' and another '.join(differing)}; figures of both "
                "do not belong in one. Name another --out."
            )
        return
    record.note(started=_now(), **fixed, environment=here, telemetry_before=_telemetry(plan.target))


class _Bench:
    def __init__(self, plan: Plan, record: Record, instruments: Instruments, progress: Progress) -> None:
        self.plan, self.record, self.instruments, self.progress = plan, record, instruments, progress

    def bandwidth(self) -> None:
        """Copy bandwidth of the GPU's memory, measured, beside the datasheet's."""
        if self.record.data.get("bandwidth"):
            return
        try:
            found = self.instruments.bandwidth(self.plan.config)
        except TimerUnavailable as error:  # everything else can be measured without CUPTI
            self.record.note(bandwidth_failed=str(error))
            return
        known = find_device(found.device)
        self.record.note(
            device=found.device,
            bandwidth={
                **dataclasses.asdict(found),
                "datasheet_gb_s": known.bandwidth_gb_s if known else None,
            },
        )

    def suite(self) -> None:
        """Every seed through all gates, several at once, from a pool that has nothing running yet."""
        done = self.record.rows("suite")
        left = [task for task in self.plan.tasks if task not in done]
        if not left:
            return
        judges = min(self.plan.judges, len(left))
        start = time.perf_counter()
        size = self.plan.config.judging.timed_sizes[0]
        with (
            self.progress("seeds through all gates", len(left)) as advance,
            self.instruments.judges(self.plan.config, self.plan.target, judges) as pool,
        ):
            # The heaviest, of the last level, first: the pool then ends evenly.
            ordered = sorted(left, key=lambda task: -get_task(task).level)
            futures = {pool.submit(seed_source(task), task): task for task in ordered}
            for future in as_completed(futures):
                task = futures[future]
                try:
                    row = row_of(future.result(), size)
                except PallasEvoError as error:
                    row = {"failed": f"{type(error).__name__}: {error}"}
                self.record.put_row("suite", task, row)
                advance(task)
            seconds = time.perf_counter() - start
        whole = len(left) == len(self.plan.tasks)
        self.record.put("suite", {"judges": judges, "seconds": round(seconds, 2) if whole else None})

    def self_ratios(self) -> None:
        """Each seed against itself, two separate compilations, once in each slot."""
        done = self.record.rows("self")
        left = [task for task in self.plan.tasks if task not in done]
        if not left:
            return
        with self.progress("seeds against themselves", len(left)) as advance:

            def measure(task: str) -> None:
                try:
                    with self.instruments.self_timer(self.plan.config) as timer:
                        found = timer.self_ratio(seed_source(task), get_task(task))
                    orders = [  # the candidate's slot over the baseline's
                        statistics.median(found.first_us) / statistics.median(found.second_us),
                        statistics.median(found.second_swapped_us) / statistics.median(found.first_swapped_us),
                    ]
                    row = {
                        "ratio": found.ratio,
                        "orders": orders,
                        "median_us": statistics.median([*found.first_us, *found.second_swapped_us]),
                        "timer": found.timer,
                        "first_us": list(found.first_us),
                        "second_us": list(found.second_us),
                        "first_swapped_us": list(found.first_swapped_us),
                        "second_swapped_us": list(found.second_swapped_us),
                    }
                except PallasEvoError as error:
                    row = {"failed": f"{type(error).__name__}: {error}"}
                self.record.put_row("self", task, row)
                advance(task)

            with ThreadPoolExecutor(min(self.plan.judges, len(left)), thread_name_prefix="self") as pool:
                futures = [pool.submit(measure, task) for task in left]
                try:
                    for future in as_completed(futures):
                        future.result()
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)  # an interrupt: what has not begun does not begin

    def throughput(self) -> None:
        """A round for each number at once, then one without and one with candidates that do harm."""
        plan = self.plan
        for number, at_once in enumerate(plan.at_once):
            if f"{at_once}" in self.record.rows("throughput"):
                continue
            found = self._round(f"{at_once} at once", number, at_once, plan.candidates)
            row = {"judges": self._judges(at_once), **throughput.summary(found), "results": found["results"]}
            self.record.put_row("throughput", f"{at_once}", row)
        if plan.target != "cuda" or self.record.part("throughput").get("harm"):
            return
        at_once = max([one for one in plan.at_once if one <= HARM_AT_ONCE], default=min(plan.at_once))
        count, number = min(HARM_CANDIDATES, plan.candidates), len(plan.at_once)
        without = self._round("harm, without", number, at_once, count)
        among = self._round("harm, with", number, at_once, count, harm=True)
        found = {"at_once": at_once, **throughput.cost_of_harm(without, among), "results": among["results"]}
        self.record.put("throughput", {"harm": found})

    def _judges(self, at_once: int) -> int:
        """The same pool for all rounds, as a service would keep it: more judges than callers have spares up in time."""
        return max(at_once, self.plan.judges)

    def _round(self, name: str, number: int, at_once: int, count: int, *, harm: bool = False) -> dict[str, Any]:
        jobs = [Job(task=task, source=source) for task, source in round_of(self.plan.tasks, count, number, name)]
        warm = round_of(self.plan.tasks, self._judges(at_once), number, f"{name}, to warm up")
        if harm:
            jobs = throughput.with_harm(jobs, name)
        with (
            self.progress(name, len(jobs)) as advance,
            self.instruments.judges(self.plan.config, self.plan.target, self._judges(at_once)) as pool,
        ):
            pool.wait_ready()
            throughput.run_round(pool, [Job(task=task, source=source) for task, source in warm], len(warm))
            return throughput.run_round(pool, jobs, at_once, advance)


def _telemetry(target: Target) -> dict[str, Any] | None:
    from pallas_evo.running import telemetry

    return telemetry.read() if target == "cuda" else None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
