"""Timers as named strategies: each runs candidate and baseline in turn from a cold L2 and returns raw samples.

cupti  device time: the sum over the kernels of one call, by CUPTI, told apart by their order of launch
wall   host time around one call and its completion: a cross-check, and what is left where CUPTI is not there

Only for a runner's process. The order is flush, candidate, flush, baseline, flush, candidate, ...; nothing is told
apart by a kernel's name, which a candidate could copy. A timer first prepares (what may run beside others on the GPU)
and then measures (which may not), so that the GPU is held alone for the measurement only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

FLUSH_BYTES = 256 << 20  # over any L2: 60 MB on an H200, 40 MB on an A100
NOT_THERE = "CUPTI is not there"


@dataclass(frozen=True)
class Calls:
    """What is to be timed: compiled programs, an input set and a poisoned output for each call of the candidate.

    The baseline's input sets are used in turn, but the last, which `prepare` warms it with: inputs that were used
    before are found faster (a tenth, for a gather of scattered rows), and each slot must meet the same.
    """

    candidate: Callable[..., Any]
    baseline: Callable[..., Any]
    inputs: Sequence[Sequence[Any]]
    baseline_inputs: Sequence[Sequence[Any]]
    poison: Sequence[Any]


@dataclass(frozen=True)
class Taken:
    """Raw samples in us, in order; the candidate's outputs; how many kernels one call launches."""

    candidate_us: list[float]
    baseline_us: list[float]
    outputs: list[Any]
    kernels: dict[str, int]


@dataclass(frozen=True)
class Timer:
    """A strategy: `prepare` counts and warms, `measure` takes the samples with what `prepare` returned."""

    prepare: Callable[[Calls], Mapping[str, int]]
    measure: Callable[[Calls, Mapping[str, int]], Taken]


def warm() -> None:
    """Do what does not depend on a candidate, in a process that waits for one: its first time takes long."""
    flush, buffer = _flush()
    jax.block_until_ready(flush(buffer))
    if jax.default_backend() == "gpu":
        with suppress(RuntimeError):  # without CUPTI `prepare` will say so
            _kernels_of_a_flush()


@cache
def _kernels_of_a_flush() -> int:
    flush, buffer = _flush()
    return len(launches(lambda: flush(buffer)))


def _prepare_cupti(calls: Calls) -> Mapping[str, int]:
    """How many kernels a flush and a baseline call launch.

    Raises:
        RuntimeError: CUPTI is not there.
    """
    jax.block_until_ready(calls.baseline(*calls.baseline_inputs[-1]))
    return {
        "flush": _kernels_of_a_flush(),
        "baseline": len(launches(lambda: calls.baseline(*calls.baseline_inputs[-1]))),
    }


def _measure_cupti(calls: Calls, counts: Mapping[str, int]) -> Taken:
    """Device time by CUPTI.

    Raises:
        RuntimeError: the launches do not add up.
    """
    flush, buffer = _flush()
    outputs: list[Any] = []
    per_flush, per_baseline = counts["flush"], counts["baseline"]
    rest: list[Any] = []

    def rounds() -> Any:
        nonlocal buffer
        for index, inputs in enumerate(calls.inputs):
            buffer = flush(buffer)
            outputs.append(calls.candidate(calls.poison[index], *inputs))
            buffer = flush(buffer)
            rest.append(calls.baseline(*_in_turn(calls, index)))
        return outputs, rest, buffer

    jax.block_until_ready((buffer, calls.inputs, calls.baseline_inputs, calls.poison))
    found = launches(rounds, last=True)
    each, left = divmod(len(found), len(calls.inputs))
    per_candidate = each - 2 * per_flush - per_baseline
    if left or per_flush < 1 or per_baseline < 1 or per_candidate < 1:
        raise RuntimeError(
            f"CUPTI recorded {len(found)} kernels for {len(calls.inputs)} rounds of flush ({per_flush}), candidate, "
            f"flush and baseline ({per_baseline})"
        )
    candidate_us, baseline_us = [], []
    for start in range(0, len(found), each):
        times = [ms * 1e3 for _, ms in found[start : start + each]]
        candidate_us.append(sum(times[per_flush : per_flush + per_candidate]))
        baseline_us.append(sum(times[each - per_baseline :]))
    return Taken(candidate_us, baseline_us, outputs, {"candidate": per_candidate, **counts})


def launches(run: Callable[[], Any], *, last: bool = False) -> list[tuple[str, float]]:
    """(name, ms) of every kernel that `run` launches, in order; after the `last` call CUPTI lets go of the process."""
    ext = _extension()
    ext._cupti_init()
    try:
        jax.block_until_ready(run())
    finally:
        found = ext._cupti_get_timings(last)
    return list(found or ())


def _prepare_wall(calls: Calls) -> Mapping[str, int]:
    jax.block_until_ready(calls.baseline(*calls.baseline_inputs[-1]))
    return {}


def _measure_wall(calls: Calls, counts: Mapping[str, int]) -> Taken:
    """Host time around each call, from a cold L2."""
    flush, buffer = _flush()
    outputs: list[Any] = []
    candidate_us, baseline_us = [], []
    jax.block_until_ready((calls.inputs, calls.baseline_inputs, calls.poison))
    for index, inputs in enumerate(calls.inputs):
        buffer = jax.block_until_ready(flush(buffer))
        start = time.perf_counter()
        outputs.append(jax.block_until_ready(calls.candidate(calls.poison[index], *inputs)))
        candidate_us.append((time.perf_counter() - start) * 1e6)
        buffer = jax.block_until_ready(flush(buffer))
        start = time.perf_counter()
        jax.block_until_ready(calls.baseline(*_in_turn(calls, index)))
        baseline_us.append((time.perf_counter() - start) * 1e6)
    return Taken(candidate_us, baseline_us, outputs, {})


TIMERS: dict[str, Timer] = {
    "cupti": Timer(_prepare_cupti, _measure_cupti),
    "wall": Timer(_prepare_wall, _measure_wall),
}


def _in_turn(calls: Calls, index: int) -> Sequence[Any]:
    """The baseline's input set for a round."""
    return calls.baseline_inputs[index % max(1, len(calls.baseline_inputs) - 1)]


@cache
def _flusher() -> Any:
    shape = jax.ShapeDtypeStruct((FLUSH_BYTES // 4,), jnp.float32)
    fill = jax.jit(lambda: jnp.zeros(shape.shape, shape.dtype)).lower().compile()
    return fill, jax.jit(lambda buffer: buffer * 1.0001 + 1.0, donate_argnums=0).lower(shape).compile()


def _flush() -> tuple[Any, Any]:
    """A program that overwrites the L2, and a buffer for it."""
    fill, program = _flusher()
    return program, fill()


def _extension() -> Any:
    """The module of jaxlib's that talks to CUPTI, as `jax.experimental.mosaic.gpu.profiler` uses it."""
    from jax.experimental.mosaic.gpu import profiler

    library = profiler.mosaic_gpu_lib
    if library is None:
        raise RuntimeError(f"{NOT_THERE}: this JAX has no Mosaic GPU library")
    return library._mosaic_gpu_ext
