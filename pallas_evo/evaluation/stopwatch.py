"""Times one program against XLA on the GPU, and judges the samples and the outputs of the timed calls."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.devices import binds, find_device, floor_us
from pallas_evo.errors import DeviceUnavailable
from pallas_evo.judging.numerics import compare
from pallas_evo.judging.timing import drift, implausible, median_us
from pallas_evo.running import DeviceRunner, lease, telemetry
from pallas_evo.types import Artefact, Rejection, Task

Expect = Callable[[Sequence[np.ndarray]], tuple[np.ndarray, np.ndarray]]


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
    """

    task: Task
    config: Config
    draw: Callable[[str], np.random.Generator]
    expect: Expect

    def time(self, device: DeviceRunner, artefact: Artefact) -> SizeTime | Rejection:
        """Time a program that has run; a suspicious speed-up is taken again in a fresh process: the slower counts."""
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
        for attempt in range(settings.attempts):
            rng = self.draw(f"{size}-{what}-{attempt}")
            inputs = _variations(self.task, tasks.draw_inputs(self.task, dims, rng), rng, settings.repeats)
            others = [tasks.draw_inputs(self.task, dims, rng) for _ in range(settings.baseline_inputs)]
            kept = self._kept(artefact)
            with lease() as waited_s:
                before = telemetry.read()
                timed = device.time(artefact, inputs, others, settings.name, kept)
                after = telemetry.read()
            if isinstance(timed, Rejection):
                return timed
            drifted = drift(timed.baseline_us)
            if drifted <= settings.baseline_drift:
                break
        else:
            raise DeviceUnavailable(
                f"The XLA baseline drifted by {drifted:.1%} within a measurement, {settings.attempts} times in a row "
                f"(allowed: {settings.baseline_drift:.0%}). Is something else using this GPU?"
            )
        known = find_device(device.device)
        floor = floor_us(tasks.floor(self.task, inputs[0]), known) if known else None
        evidence = {
            "baseline_us": timed.baseline_us,
            "wall_candidate_us": timed.wall_candidate_us,
            "wall_baseline_us": timed.wall_baseline_us,
            "kernels": timed.kernels,
            "binds": binds(tasks.floor(self.task, inputs[0]), known) if known else None,
            "waited_s": waited_s,
            "before": before,
            "after": after,
        }
        wrong = self._judge(timed.outputs, [inputs[index] for index in kept], size)
        if wrong is not None:
            return wrong
        return implausible(size, timed.candidate_us, floor, settings.implausible_floor) or SizeTime(
            timer=timed.timer,
            samples_us=timed.candidate_us,
            median_us=median_us(timed.candidate_us),
            xla_us=median_us(timed.baseline_us),
            floor_us=floor,
            evidence=evidence,
        )

    def _kept(self, artefact: Artefact) -> list[int]:
        """Which timed calls are judged: all, or a secret subset where outputs are large."""
        settings = self.config.timer
        every = list(range(settings.repeats))
        if int(np.prod(artefact.workload.output.shape)) <= settings.judged_elements:
            return every
        return sorted(secrets.SystemRandom().sample(every, min(settings.judged_outputs, len(every))))

    def _judge(
        self, outputs: Sequence[np.ndarray], inputs: Sequence[Sequence[np.ndarray]], size: str
    ) -> Rejection | None:
        """Hold the outputs of timed calls against their references."""
        for output, given in zip(outputs, inputs, strict=True):
            reference, yardstick = self.expect(given)
            found = compare(output, reference, yardstick, self.task.precision, self.config.judging.numerics)
            if found.reason is not None:
                return Rejection(reason="timed_output", message=f"At {size}, in a timed call: {found.message}")
        return None


def _variations(
    task: Task, base: Sequence[np.ndarray], rng: np.random.Generator, count: int
) -> list[tuple[np.ndarray, ...]]:
    """Input sets for timed calls, each unlike any that the GPU has seen, at a fraction of the cost of drawing them.

    Every input is turned along its first axis by a secret number of rows; what is drawn by a scaled law (`normal`,
    `weight`) is also scaled by a secret factor, so that no element keeps its value. Each is still one that the task's
    law gives. None is the base itself.
    """

    def vary(array: np.ndarray, law: str) -> np.ndarray:
        turned = np.roll(array, int(rng.integers(1, max(2, array.shape[0]))), axis=0)
        if law in ("normal", "weight"):
            turned *= np.float32(rng.uniform(0.75, 1.25))
        return turned

    laws = [spec.law for spec in task.inputs]
    return [tuple(vary(array, law) for array, law in zip(base, laws, strict=True)) for _ in range(count)]
