"""An evaluation in ShinkaEvolve's form: the score, what language models see, what they don't, and the feedback."""

from __future__ import annotations

import math
from typing import Any

from pallas_evo.types import Evaluation, SizeResult, Task

FEEDBACK_CHARACTERS = 1500


def shinka_metrics(task: Task, evaluation: Evaluation) -> dict[str, Any]:
    """The content of `metrics.json`; every float in it is finite.

    ShinkaEvolve prints floats with two decimals, so public ones are in us and percent, and the speed-up, where 1.003
    and 1.004 differ, is text.
    """
    score = float(evaluation.combined_score)
    if not math.isfinite(score) or not evaluation.correct:
        score = 0.0
    return {
        "combined_score": score,
        "public": _public(evaluation, score),
        "private": _private(evaluation),
        "text_feedback": evaluation.text_feedback[:FEEDBACK_CHARACTERS],
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
