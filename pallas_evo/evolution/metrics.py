"""An evaluation in ShinkaEvolve's form: the score, what language models see, what they don't, and the feedback."""

from __future__ import annotations

import math
from typing import Any

from pallas_evo.devices import binds, find_device
from pallas_evo.types import Compiled, Evaluation, SizeResult, Task

FEEDBACK_CHARACTERS = 1500


def shinka_metrics(task: Task, evaluation: Evaluation) -> dict[str, Any]:
    """The content of `metrics.json`; every float in it is finite.

    ShinkaEvolve prints floats with two decimals, so public ones are in us and percent, and the speed-up, where 1.003
    and 1.004 differ, is text.
    """
    score = float(evaluation.combined_score)
    if not math.isfinite(score) or not evaluation.correct:
        score = 0.0
    text = " ".join(part for part in (evaluation.text_feedback, advice(task, evaluation)) if part)
    return {
        "combined_score": score,
        "public": _public(evaluation, score),
        "private": _private(evaluation),
        "text_feedback": text[:FEEDBACK_CHARACTERS],
    }


def _public(evaluation: Evaluation, score: float) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": evaluation.status if evaluation.correct else f"rejected: {evaluation.reason}"}
    if evaluation.timer == "untimed":
        shown["timed"] = "no, correctness only"
    elif evaluation.correct:
        shown["speedup_over_xla"] = f"{score:.4f}x"
    for name, size in timed_sizes(evaluation).items():
        shown[f"{name}_us"] = size.median_us
        shown[f"{name}_xla_us"] = size.xla_us
        if size.roofline_percent is not None:
            shown[f"{name}_roofline_percent"] = size.roofline_percent
    for sm, made in evaluation.compiled.items():
        shown[f"{sm}_registers"] = made.registers
        shown[f"{sm}_spill_bytes"] = made.spill_bytes
        shown[f"{sm}_shared_kb"] = made.shared_bytes / 1024
        shown[f"{sm}_occupancy_percent"] = 100 * made.occupancy
    return {name: value for name, value in shown.items() if not isinstance(value, float) or math.isfinite(value)}


def _private(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "task": evaluation.task,
        "task_version": evaluation.task_version,
        "device": evaluation.ran_on,
        "timer": evaluation.timer,
        "sizes": sorted(timed_sizes(evaluation)),
        "stage": evaluation.stage,
        "reason": evaluation.reason,
        "seeds": dict(evaluation.seeds),
        "candidate_sha256": evaluation.candidate_sha256,
        "judged_s": evaluation.duration_s,
    }


def timed_sizes(evaluation: Evaluation) -> dict[str, SizeResult]:
    """The sizes at which the candidate was timed."""
    return {name: size for name, size in evaluation.sizes.items() if size.median_us and size.xla_us}


def advice(task: Task, evaluation: Evaluation) -> str:
    """What binds a correct candidate and what to try next; nothing for a rejected one, whose message says it."""
    if not evaluation.correct:
        return ""
    binding = _binding(task, evaluation)
    parts = [f"At the roofline it is bound by {binding}."] if binding else []
    return " ".join([*parts, f"Next: {_next(task, evaluation, binding)}"])


def _binding(task: Task, evaluation: Evaluation) -> str | None:
    device = find_device(evaluation.ran_on or "") or find_device("NVIDIA A100 80GB PCIe")
    if device is None:
        return None
    import numpy as np

    from pallas_evo.tasks import dims_of, draw_inputs, floor

    inputs = draw_inputs(task, dims_of(task, "small"), np.random.default_rng(0))
    return binds(floor(task, inputs), device)


def _next(task: Task, evaluation: Evaluation, binding: str | None) -> str:
    made: Compiled | None = next(iter(evaluation.compiled.values()), None)
    if made is not None and made.spill_bytes:
        return "stop the spills with smaller blocks or twice the warps."
    if made is not None and made.shared_bytes > 100 << 10:
        return "one stage or half the BLOCK_K less shared memory, so that more blocks fit on a multiprocessor."
    if made is not None and made.occupancy < 0.25:
        return "raise the occupancy: smaller blocks, or the same block with more warps."
    near = max((size.roofline_percent or 0.0 for size in timed_sizes(evaluation).values()), default=0.0)
    if near > 80:
        return "it is near the roofline; try num_warps, one more stage and the order of the grid."
    if task.precision == "dot":
        return "larger tiles with 8 warps and 3 to 4 stages; walk the grid in groups so that tiles share the L2."
    if binding == "memory":
        return "widen the contiguous axis of the block so that each warp loads whole lines; read each value once."
    return "keep more in registers between steps, and unroll the inner loop."
