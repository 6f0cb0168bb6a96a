"""Times one program against XLA on the GPU, and judges the samples and the outputs of the timed calls."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.devices import binds, find_device, floor_us
from pallas_evo.errors import DeviceUnavailable, TimerUnavailable
from pallas_evo.judging.numerics import Comparison, compare
from pallas_evo.judging.timing import drift, implausible, median_us
from pallas_evo.running import DeviceRunner, Timed, telemetry
from pallas_evo.running.turns import Turn, draw_turns, turned
from pallas_evo.types import Artefact, Rejection, Task

Expect = Callable[[Sequence[np.ndarray]], tuple[np.ndarray, np.ndarray]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SizeTime:
    """One size's measurement, judged."""

    timer: str
    samples_us: tuple[float, ...]
    median_us: float
    xla_us: float
    floor_us: float | None
    evidence: Mapping[str, Any]  # what was measured beside the samples: baseline, wall clock, launches, clocks

    @property
    def speedup(self) -> float:
        return self.xla_us / self.median_us


@dataclass(frozen=True)
class Stopwatch:
    """Measures programs of one task.

    Args:
        draw: a named generator whose seed is recorded.
        expect: (reference, yardstick) for an input set.
        pool: where references and comparisons run, beside the measurement.
    """

    task: Task
    config: Config
    draw: Callable[[str], np.random.Generator]
    expect: Expect
    pool: Executor

    def time(self, device: DeviceRunner, artefact: Artefact) -> SizeTime | Rejection:
        """Time a program that has run; a suspicious speed-up is taken again in a fresh process: the slower counts.

        Raises:
            DeviceUnavailable, WorkerFailed: ours.
        """
        result = self._once(device, artefact, "timed")
        if isinstance(result, Rejection) or result.speedup <= self.config.timer.suspicious_speedup:
            return result
        with DeviceRunner(self.config.run) as fresh:
            again = self._once(fresh, artefact, "again")
        return again if isinstance(again, Rejection) else min(result, again, key=lambda one: one.speedup)

    def _once(self, device: DeviceRunner, artefact: Artefact, what: str) -> SizeTime | Rejection:
        size, settings = artefact.workload.label, self.config.timer
        dims = artefact.workload.dims
        if what == "again":  # a fresh process: the program runs there before it is timed
            first = device.run(artefact, tasks.draw_inputs(self.task, dims, self.draw(f"{size}-{what}-first")))
            if isinstance(first, Rejection):
                return first
        slow = device.seconds.get(size, 0.0) > settings.slow_run_s
        repeats = settings.slow_repeats if slow else settings.repeats
        for attempt in range(settings.attempts):
            rng = self.draw(f"{size}-{what}-{attempt}")
            base = tasks.draw_inputs(self.task, dims, rng)
            turns = draw_turns(
                [spec.law for spec in self.task.inputs],
                [array.shape[0] for array in base],
                rng,
                repeats + self._baseline_sets(base, repeats) + 1,  # one more warms the baseline
            )
            kept = self._kept(artefact, repeats)
            expected = {index: self.pool.submit(self._expected, base, turns[index]) for index in kept}
            taken = self._take(device, artefact, base, turns[:repeats], turns[repeats:], kept)
            if isinstance(taken, Rejection):
                return taken
            timed, outputs, evidence = taken
            judging = [
                self.pool.submit(self._compare, output, *expected[index].result())
                for index, output in zip(kept, outputs, strict=True)
            ]
            drifted = drift(timed.baseline_us)
            if drifted <= settings.baseline_drift:
                break
        else:
            raise DeviceUnavailable(
                f"The XLA baseline drifted by {drifted:.1%} within a measurement, {settings.attempts} times in a row "
                f"(allowed: {settings.baseline_drift:.0%}). Is something else using this GPU?"
            )
        known = find_device(device.device)
        least = tasks.floor(self.task, turned(base, turns[0]))
        floor = floor_us(least, known) if known else None
        for found in (future.result() for future in judging):
            if found.reason is not None:
                return Rejection(reason="timed_output", message=f"At {size}, in a timed call: {found.message}")
        return implausible(size, timed.candidate_us, floor, settings.implausible_floor) or SizeTime(
            timer=timed.timer,
            samples_us=timed.candidate_us,
            median_us=median_us(timed.candidate_us),
            xla_us=median_us(timed.baseline_us),
            floor_us=floor,
            evidence={
                **evidence,
                "baseline_us": timed.baseline_us,
                "wall_candidate_us": timed.wall_candidate_us,
                "wall_baseline_us": timed.wall_baseline_us,
                "kernels": timed.kernels,
                "binds": binds(least, known) if known else None,
            },
        )

    def _take(
        self,
        device: DeviceRunner,
        artefact: Artefact,
        base: Sequence[np.ndarray],
        turns: Sequence[Sequence[Turn]],
        baseline_turns: Sequence[Sequence[Turn]],
        kept: Sequence[int],
    ) -> tuple[Timed, list[np.ndarray], dict[str, Any]] | Rejection:
        """One measurement, the outputs that are judged, and what was seen around it.

        `held_s` is how long nobody else had the GPU.
        """
        timer = self.config.timer.name
        try:
            refused = device.prepare(artefact, base, turns, baseline_turns, timer)
        except TimerUnavailable as error:
            if timer == "wall":
                raise
            _log.warning("%s The wall clock takes over: such times have an identity of their own.", error)
            timer = "wall"
            with DeviceRunner(self.config.run) as fresh:  # the process that met the error serves no more
                refused = fresh.prepare(artefact, base, turns, baseline_turns, timer)
                return refused or _measure(fresh, artefact, timer, kept)
        return refused or _measure(device, artefact, timer, kept)

    def _baseline_sets(self, base: Sequence[np.ndarray], repeats: int) -> int:
        """As many as the candidate has, so that neither slot meets memory that is warmer than the other's."""
        settings, size = self.config.timer, sum(array.nbytes for array in base)
        count = min(settings.baseline_inputs, repeats)
        return count if size * (repeats + count) <= settings.inputs_bytes else min(2, count)

    def _kept(self, artefact: Artefact, repeats: int) -> list[int]:
        """Which timed calls are judged: all, or a secret subset where inputs or outputs are large."""
        settings = self.config.timer
        inputs = sum(int(np.prod(spec.shape)) for spec in artefact.workload.inputs)
        affordable = settings.judged_elements // max(inputs, int(np.prod(artefact.workload.output.shape)))
        count = min(repeats, max(affordable, settings.judged_outputs))
        return sorted(secrets.SystemRandom().sample(range(repeats), count))

    def _expected(self, base: Sequence[np.ndarray], turns: Sequence[Turn]) -> tuple[np.ndarray, np.ndarray]:
        return self.expect(turned(base, turns))

    def _compare(self, output: np.ndarray, reference: np.ndarray, yardstick: np.ndarray) -> Comparison:
        return compare(output, reference, yardstick, self.task.precision, self.config.judging.numerics)


def _measure(
    device: DeviceRunner, artefact: Artefact, timer: str, kept: Sequence[int]
) -> tuple[Timed, list[np.ndarray], dict[str, Any]] | Rejection:
    with device.alone() as waited_s:
        start = time.perf_counter()
        before = telemetry.read()
        timed = device.measure(artefact, timer)
        after = telemetry.read()
        held_s = time.perf_counter() - start
    if isinstance(timed, Rejection):
        return timed
    outputs = device.timed_outputs(artefact, kept)
    if isinstance(outputs, Rejection):
        return outputs
    return timed, outputs, {"waited_s": waited_s, "held_s": held_s, "before": before, "after": after}
