"""Timers as named strategies: each runs candidate and baseline in turn from a cold L2 and returns raw samples.

cupti  device time: the sum over the kernels of one call, by CUPTI, told apart by their order of launch
wall   host time around one call and its completion: a cross-check, and what is left where CUPTI is not there

Only for a runner's process. The order is flush, candidate, flush, baseline, flush, candidate, ...; nothing is told
apart by a kernel's name, which a candidate could copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

FLUSH_BYTES = 256 << 20  # over any L2: 60 MB on an H200, 40 MB on an A100


@dataclass(frozen=True)
class Calls:
    """What is to be timed: compiled programs, an input set and a poisoned output for each call of the candidate."""

    candidate: Any
    baseline: Any
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


def cupti(calls: Calls) -> Taken:
    """Device time by CUPTI.

    Raises:
        RuntimeError: CUPTI is not there, or the launches do not add up.
    """
    flush, buffer = _flush()
    jax.block_until_ready(calls.baseline(*calls.baseline_inputs[0]))
    buffer = jax.block_until_ready(flush(buffer))
    ext = _extension()

    def kernels_of(run: Callable[[], Any]) -> int:
        ext._cupti_init()
        try:
            jax.block_until_ready(run())
        finally:
            found = ext._cupti_get_timings(False)
        return len(found or ())

    spare = jnp.zeros_like(buffer)
    per_flush = kernels_of(lambda: flush(spare))
    per_baseline = kernels_of(lambda: calls.baseline(*calls.baseline_inputs[0]))
    outputs, rest = [], []
    jax.block_until_ready((calls.inputs, calls.baseline_inputs, calls.poison))
    ext._cupti_init()
    try:
        for index, inputs in enumerate(calls.inputs):
            buffer = flush(buffer)
            outputs.append(calls.candidate(calls.poison[index], *inputs))
            buffer = flush(buffer)
            rest.append(calls.baseline(*calls.baseline_inputs[index % len(calls.baseline_inputs)]))
        jax.block_until_ready((outputs, rest, buffer))
    finally:
        launches = ext._cupti_get_timings(True)
    if not launches:
        raise RuntimeError("CUPTI recorded no kernel")
    each, left = divmod(len(launches), len(outputs))
    per_candidate = each - 2 * per_flush - per_baseline
    if left or per_flush < 1 or per_baseline < 1 or per_candidate < 1:
        raise RuntimeError(
            f"CUPTI recorded {len(launches)} kernels for {len(outputs)} rounds of flush ({per_flush}), candidate, "
            f"flush and baseline ({per_baseline})"
        )
    candidate_us, baseline_us = [], []
    for start in range(0, len(launches), each):
        times = [ms * 1e3 for _, ms in launches[start : start + each]]
        candidate_us.append(sum(times[per_flush : per_flush + per_candidate]))
        baseline_us.append(sum(times[each - per_baseline :]))
    counts = {"candidate": per_candidate, "baseline": per_baseline, "flush": per_flush}
    return Taken(candidate_us, baseline_us, outputs, counts)


def wall(calls: Calls) -> Taken:
    """Host time around each call, from a cold L2."""
    flush, buffer = _flush()
    jax.block_until_ready(calls.baseline(*calls.baseline_inputs[0]))
    outputs: list[Any] = []
    candidate_us, baseline_us = [], []
    for index, inputs in enumerate(calls.inputs):
        buffer = jax.block_until_ready(flush(buffer))
        start = time.perf_counter()
        outputs.append(jax.block_until_ready(calls.candidate(calls.poison[index], *inputs)))
        candidate_us.append((time.perf_counter() - start) * 1e6)
        buffer = jax.block_until_ready(flush(buffer))
        start = time.perf_counter()
        jax.block_until_ready(calls.baseline(*calls.baseline_inputs[index % len(calls.baseline_inputs)]))
        baseline_us.append((time.perf_counter() - start) * 1e6)
    return Taken(candidate_us, baseline_us, outputs, {})


TIMERS: dict[str, Callable[[Calls], Taken]] = {"cupti": cupti, "wall": wall}


def _flush() -> tuple[Any, Any]:
    program = jax.jit(lambda buffer: buffer * 1.0001 + 1.0, donate_argnums=0)
    buffer = jnp.zeros((FLUSH_BYTES // 4,), jnp.float32)
    return program, jax.block_until_ready(program(buffer))


def _extension() -> Any:
    """The module of jaxlib's that talks to CUPTI, as `jax.experimental.mosaic.gpu.profiler` uses it."""
    from jax.experimental.mosaic.gpu import profiler

    library = profiler.mosaic_gpu_lib
    if library is None:
        raise RuntimeError("CUPTI is not there: this JAX has no Mosaic GPU library")
    return library._mosaic_gpu_ext
