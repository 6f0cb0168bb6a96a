"""Elites are judged again before they count: a new best of its task, or more than 10 times XLA.

In fresh processes, with new seeds; and on a GPU once under compute-sanitizer, where it is installed. The lower of both
scores counts: a record that luck made is none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from typing import Any, Literal

import numpy as np

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.errors import WorkerFailed
from pallas_evo.evaluation.case import Case
from pallas_evo.evaluation.processes import Processes
from pallas_evo.running import sanitizer
from pallas_evo.types import Artefact, Evaluation, GateResult, Rejection, Target, Task

SIZE = "small"  # what runs below compute-sanitizer


def is_elite(verdict: Evaluation, best_score: float | None, config: Config) -> bool:
    """Whether a verdict has to be confirmed before it counts.

    Args:
        best_score: of the task so far, of the same identity; None where there is none yet.
    """
    if not verdict.correct or verdict.timer == "untimed":
        return False
    best = best_score is None or verdict.combined_score > best_score
    return best or verdict.combined_score > config.timer.suspicious_speedup


def rejudge(
    source: str,
    task: Task,
    config: Config | None = None,
    *,
    target: Literal["auto", "cpu", "cuda"] = "auto",
    sanitize: bool = True,
    first: Evaluation | None = None,
) -> Evaluation:
    """Judge a candidate anew, in fresh processes and with new seeds, and look at one run by compute-sanitizer.

    Args:
        first: the verdict that made it an elite; where both accept it, the one with the lower score is returned.

    Returns:
        A verdict whose `environment["elite"]` says what was done: `scores` of all judgements, in order, and
        `sanitizer`, a report for each tool, or None where it is not installed or there is no GPU; `sanitizer_failed`,
        why it is installed and could not be run.

    Raises:
        JailUnavailable, DeviceUnavailable, WorkerFailed, UnknownOperation: ours; there is no score.
    """
    from pallas_evo.evaluation import _resolve

    config = config or Config()
    where = _resolve(target)
    verdict, artefact = _judge(source, task, config, where)
    reports: tuple[sanitizer.Report, ...] | None = None
    trouble: str | None = None
    seeds: dict[str, int] = {}
    if verdict.correct and where == "cuda" and sanitize and artefact is not None:
        seeds["sanitizer"] = secrets.randbits(48)
        inputs = tasks.draw_inputs(task, artefact.workload.dims, np.random.default_rng(seeds["sanitizer"]))
        try:
            reports = sanitizer.sanitize(artefact, inputs)
        except WorkerFailed as error:  # it is one look more, which many a container forbids: the verdict stands
            trouble = str(error)
        refusal = refusal_of(reports or ())
        if refusal is not None:
            verdict = refused(verdict, refusal, sum(report.seconds for report in reports or ()))
    noted: dict[str, Any] = {
        "scores": [*([first.combined_score] if first is not None else []), verdict.combined_score],
        "sanitizer": None if reports is None else [dataclasses.asdict(report) for report in reports],
        "sanitizer_failed": trouble,
    }
    counts = verdict
    if first is not None and verdict.correct and first.correct and first.combined_score < verdict.combined_score:
        counts = first
    return dataclasses.replace(
        counts, seeds={**counts.seeds, **seeds}, environment={**counts.environment, "elite": noted}
    )


def refusal_of(reports: tuple[sanitizer.Report, ...]) -> Rejection | None:
    """The rejection that the first tool with a finding gives."""
    for report in reports:
        if report.errors:
            said = report.findings[0] if report.findings else "it does not say where"
            return Rejection(
                reason="sanitizer",
                message=f"compute-sanitizer ({report.tool}) found {report.errors} errors in one run at {SIZE}: {said}.",
            )
    return None


def refused(verdict: Evaluation, refusal: Rejection, seconds: float) -> Evaluation:
    """An accepted verdict with its `run` gate refused."""
    from pallas_evo.judging import describe

    gates = tuple(
        GateResult(
            name=gate.name,
            passed=False,
            reason=refusal.reason,
            message=refusal.message,
            seconds=round(gate.seconds + seconds, 4),
        )
        if gate.name == "run"
        else gate
        for gate in verdict.gates
    )
    return dataclasses.replace(
        verdict,
        correct=False,
        combined_score=0.0,
        status="rejected",
        stage="run",
        reason=refusal.reason,
        message=refusal.message,
        gates=gates,
        text_feedback=describe(tasks.get_task(verdict.task), refusal, verdict.sizes, verdict.compiled),
    )


def _judge(source: str, task: Task, config: Config, target: Target) -> tuple[Evaluation, Artefact | None]:
    """The verdict, and the very program that it is about."""
    with Processes(config, target) as processes:
        case = Case(config, target, processes, source, task)
        verdict = case.judge()
    assert verdict.candidate_sha256 == hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    return verdict, case.artefacts.get(SIZE)
