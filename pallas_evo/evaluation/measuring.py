"""Measurements of the judge itself: a program against itself, and what this GPU's memory really gives."""

from __future__ import annotations

import dataclasses
import math
import secrets
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pallas_evo import tasks
from pallas_evo.artefact.jailed import validate_jailed
from pallas_evo.config import Config
from pallas_evo.errors import WorkerFailed
from pallas_evo.evaluation.processes import Processes
from pallas_evo.judging.timing import median_us
from pallas_evo.running import DeviceRunner
from pallas_evo.running.turns import draw_turns
from pallas_evo.tracing import trace
from pallas_evo.types import Artefact, Rejection, Task, Workload

T = TypeVar("T")

SELF_REPEATS = 18
COPY_BYTES = 1 << 30  # read, and as many written: far over any L2
COPY_REPEATS = 10


@dataclass(frozen=True, kw_only=True)
class SelfRatio:
    """A program timed against a second compilation of itself, once in each slot.

    Raw samples in us: in the first order the program is in the candidate's slot, in the swapped one in the baseline's.
    `ratio` is the geometric mean of both orders' ratio of medians, candidate's slot over baseline's: what a score
    would be off by.
    """

    first_us: tuple[float, ...]
    second_us: tuple[float, ...]
    first_swapped_us: tuple[float, ...]
    second_swapped_us: tuple[float, ...]
    ratio: float
    timer: str


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """A copy's measured bandwidth: bytes read plus bytes written over the median device time."""

    gb_s: float
    samples_us: tuple[float, ...]
    bytes: int
    device: str
    timer: str


def self_ratio(source: str, task: Task, config: Config) -> SelfRatio:
    """Time a program that is known to be right against itself at medium; see `SelfRatio`.

    Raises:
        WorkerFailed: the program is refused, and nothing that is refused can be measured.
        DeviceUnavailable: there is no GPU.
    """
    workload = tasks.workload(task, tasks.dims_of(task, "medium"), "medium")
    with Processes(config, "cuda") as processes:
        device = processes.device
        assert device is not None
        one = _artefact(source, task, workload, config, processes)
        other = dataclasses.replace(one, workload=dataclasses.replace(workload, label="again"))
        _sure(device.compile(one))
        _sure(device.compile(other))
        rng = np.random.default_rng(secrets.randbits(48))
        for artefact in (one, other):
            _sure(device.run(artefact, tasks.draw_inputs(task, workload.dims, rng)))
        first, second = _against(device, task, one, other, config, rng), _against(device, task, other, one, config, rng)
    (first_us, second_us), (second_swapped_us, first_swapped_us) = first, second
    ratios = [median_us(mine) / median_us(its) for mine, its in (first, second)]
    return SelfRatio(
        first_us=first_us,
        second_us=second_us,
        first_swapped_us=first_swapped_us,
        second_swapped_us=second_swapped_us,
        ratio=math.sqrt(ratios[0] * ratios[1]),
        timer=config.timer.name,
    )


def copy_bandwidth(config: Config) -> Bandwidth:
    """What one large copy reaches on this GPU.

    Raises:
        DeviceUnavailable: there is no GPU, or no CUPTI.
    """
    with DeviceRunner(config.run) as runner:
        with runner.alone():
            samples = runner.copy_us(COPY_BYTES, COPY_REPEATS)
        return Bandwidth(
            gb_s=2 * COPY_BYTES / (median_us(samples) * 1e3),
            samples_us=samples,
            bytes=2 * COPY_BYTES,
            device=runner.device,
            timer="cupti",
        )


def _artefact(source: str, task: Task, workload: Workload, config: Config, processes: Processes) -> Artefact:
    traced = trace(
        source,
        task,
        [workload],
        config.trace,
        allow_unjailed=config.allow_unjailed,
        tracers=processes.tracers,
    )
    (verdict,) = validate_jailed(
        [(_sure(traced).modules[0], workload)],
        config.artefact,
        allow_unjailed=config.allow_unjailed,
        worker=processes.validator,
    )
    return _sure(verdict)


def _against(
    device: DeviceRunner, task: Task, one: Artefact, other: Artefact, config: Config, rng: np.random.Generator
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    base = tasks.draw_inputs(task, one.workload.dims, rng)
    turns = draw_turns([spec.law for spec in task.inputs], [a.shape[0] for a in base], rng, 2 * SELF_REPEATS + 1)
    timer = config.timer.name
    _sure(device.prepare(one, base, turns[:SELF_REPEATS], turns[SELF_REPEATS:], timer, against=other))
    with device.alone():
        timed = _sure(device.measure(one, timer))
    return timed.candidate_us, timed.baseline_us


def _sure(result: T | Rejection) -> T:
    if isinstance(result, Rejection):
        raise WorkerFailed(f"Expected a program that is right; it was refused ({result.reason}): {result.message}")
    return result
