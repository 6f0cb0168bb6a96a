"""Judged candidates a minute and latency, several at once, and what candidates that do harm cost the others."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pallas_evo.bench.judges import Judges
from pallas_evo.bench.rows import held_s, percentile
from pallas_evo.bench.sources import HARM_TASK, HARMS, harmful
from pallas_evo.errors import PallasEvoError


@dataclass(frozen=True, kw_only=True)
class Job:
    """One candidate of a round; `harm` says what it does where it does harm."""

    task: str
    source: str
    harm: str | None = None


def run_round(
    judges: Judges, jobs: Sequence[Job], at_once: int, advance: Callable[[str], None] = lambda task: None
) -> dict[str, Any]:
    """Have all jobs judged, `at_once` callers each waiting for its verdict before it asks for the next.

    Returns:
        `seconds` from the first request to the last verdict; `results`, in the jobs' order, with each one's latency.
    """
    results: list[dict[str, Any]] = [{} for _ in jobs]
    left = iter(range(len(jobs)))
    lock, stop = threading.Lock(), threading.Event()
    start = time.perf_counter()

    def client() -> None:
        while True:
            with lock:
                index = next(left, None)
            if index is None or stop.is_set():
                return
            results[index] = _one(judges, jobs[index], start)
            advance(jobs[index].task)

    with ThreadPoolExecutor(at_once, thread_name_prefix="client") as clients:
        try:
            for done in [clients.submit(client) for _ in range(at_once)]:
                done.result()
        finally:
            stop.set()  # an interrupt: each caller ends after its present candidate
    return {"seconds": time.perf_counter() - start, "results": results}


def _one(judges: Judges, job: Job, start: float) -> dict[str, Any]:
    asked = time.perf_counter()
    result: dict[str, Any] = {"task": job.task, "harm": job.harm}
    try:
        verdict = judges.submit(job.source, job.task).result()
    except PallasEvoError as error:
        result["failed"] = f"{type(error).__name__}: {error}"
    else:
        result |= {
            "correct": verdict["correct"],
            "reason": verdict["reason"],
            "held_s": held_s(verdict),
            "sha256": verdict["candidate_sha256"],
        }
    return result | {
        "latency_s": round(time.perf_counter() - asked, 4),
        "ended_s": round(time.perf_counter() - start, 4),
    }


def summary(round_: Mapping[str, Any]) -> dict[str, Any]:
    """A round in figures: only what was judged counts, and latency is that of honest candidates."""
    results = round_["results"]
    judged = [one for one in results if "failed" not in one]
    latencies = [one["latency_s"] for one in judged if not one["harm"]]
    held = [one["held_s"] for one in judged if one["held_s"] is not None]
    return {
        "candidates": len(results),
        "distinct": len({one["sha256"] for one in judged}),
        "judged": len(judged),
        "accepted": sum(bool(one["correct"]) for one in judged),
        "our_failures": len(results) - len(judged),
        "seconds": round(round_["seconds"], 3),
        "per_minute": round(60 * len(judged) / round_["seconds"], 1),
        "latency_p50_s": percentile(latencies, 0.5),
        "latency_p95_s": percentile(latencies, 0.95),
        "held_s_median": statistics.median(held) if held else None,
        "held_s_max": max(held, default=None),
    }


def with_harm(jobs: Sequence[Job], name: str) -> list[Job]:
    """The same round with one candidate of each kind that does harm spread among the honest ones."""
    mixed = list(jobs)
    step = len(jobs) // (len(HARMS) + 1)
    for number, what in enumerate(HARMS, 1):
        mixed.insert(number * step + number - 1, Job(task=HARM_TASK, source=harmful(what, name), harm=what))
    return mixed


def cost_of_harm(without: Mapping[str, Any], among: Mapping[str, Any]) -> dict[str, Any]:
    """What those candidates cost: seconds of the round beyond one without them, and verdicts that are others now."""
    honest = [one for one in among["results"] if not one["harm"]]
    changed = [
        {
            "task": now["task"],
            "was": before.get("reason") or before.get("failed"),
            "is": now.get("reason") or now.get("failed"),
        }
        for before, now in zip(without["results"], honest, strict=True)
        if (before.get("correct"), before.get("reason")) != (now.get("correct"), now.get("reason"))
    ]
    harms = [one for one in among["results"] if one["harm"]]
    extra_s = among["seconds"] - without["seconds"]
    return {
        "seconds_without": round(without["seconds"], 3),
        "seconds_with": round(among["seconds"], 3),
        "extra_s": round(extra_s, 3),
        "extra_s_each": round(extra_s / len(harms), 3) if harms else None,
        "honest": len(honest),
        "changed_verdicts": changed,
        "harmful": [
            {key: one.get(key) for key in ("harm", "correct", "reason", "failed", "latency_s")} for one in harms
        ],
        "longest_gap_s": {"without": _longest_gap(without["results"]), "with": _longest_gap(honest)},
    }


def _longest_gap(results: Sequence[Mapping[str, Any]]) -> float:
    """The longest time in which no honest candidate's verdict came."""
    ends = sorted([0.0, *(one["ended_s"] for one in results)])
    return round(max((late - early for early, late in itertools.pairwise(ends)), default=0.0), 3)
