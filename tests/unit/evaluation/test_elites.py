"""Elites: which they are, which score counts, and what compute-sanitizer's word does to a verdict."""

from __future__ import annotations

import dataclasses

import pytest

from pallas_evo import paths, tasks
from pallas_evo.config import Config
from pallas_evo.errors import WorkerFailed
from pallas_evo.evaluation import elites
from pallas_evo.evaluation.elites import is_elite, refusal_of, refused, rejudge
from pallas_evo.reasons import REASONS
from pallas_evo.running import sanitizer
from pallas_evo.running.sanitizer import Report
from pallas_evo.types import Artefact, Evaluation, GateResult, SizeResult

TASK = tasks.get_task("L1/relu")
SOURCE = paths.seed_file(TASK.id).read_text()


def verdict(score: float = 1.5, *, correct: bool = True, timer: str = "cupti") -> Evaluation:
    return Evaluation(
        task=TASK.id,
        task_version=1,
        target="cuda",
        correct=correct,
        combined_score=score if correct else 0.0,
        status="accepted" if correct else "rejected",
        stage=None,
        reason=None,
        message="",
        gates=(GateResult(name="run", passed=True, reason=None, message="", seconds=0.5),),
        filters={},
        sizes={"medium": SizeResult(shape=((1,),), correct=True, median_us=2.0, xla_us=2.0 * score)},
        compiled={},
        ran_on="NVIDIA H200",
        compiled_for=(),
        jail=None,
        seeds={"small-0": 1},
        candidate_sha256="0" * 64,
        duration_s=1.0,
        timer=timer,
    )


def report(errors: int | None, *findings: str, tool: str = "memcheck") -> Report:
    return Report(tool=tool, errors=errors, findings=findings, seconds=2.0)


@pytest.mark.parametrize(
    ("found", "best", "expected"),
    [
        (verdict(1.5), None, True),
        (verdict(1.5), 1.4, True),
        (verdict(1.5), 1.5, False),
        (verdict(11.0), 20.0, True),
        (verdict(1.5, correct=False), None, False),
        (verdict(1.0, timer="untimed"), None, False),
    ],
)
def test_a_new_best_and_a_suspicious_speed_up_are_elites(found, best, expected):
    assert is_elite(found, best, Config()) is expected


def test_a_finding_refuses_at_the_run_gate():
    refusal = refusal_of(
        (report(0), report(None, tool="racecheck"), report(2, "Invalid read at relu", tool="initcheck"))
    )
    assert refusal is not None
    assert REASONS[refusal.reason][0] == "run"
    assert "Invalid read at relu" in refusal.message
    found = refused(verdict(), refusal, 2.0)
    assert (found.correct, found.combined_score, found.stage, found.reason) == (False, 0.0, "run", "sanitizer")
    assert not found.gates[0].passed
    assert "Rejected (sanitizer)" in found.text_feedback


@pytest.mark.parametrize("reports", [(), (report(0),), (report(None),)])
def test_no_finding_refuses_nothing(reports):
    assert refusal_of(reports) is None


@pytest.fixture
def judged(monkeypatch):
    """A judge that has the verdict that a test gives it."""
    workload = tasks.workload(TASK, tasks.dims_of(TASK, "small"), "small")
    artefact = Artefact(workload=workload, module="", sha256="", kernels=(), moved_bytes=0)
    monkeypatch.setattr("pallas_evo.evaluation.gpu_present", lambda: True)

    def give(found: Evaluation, reports=None) -> None:
        def sanitize(artefact, inputs, **_):
            assert inputs[0].shape == artefact.workload.inputs[0].shape
            if isinstance(reports, Exception):
                raise reports
            return reports

        monkeypatch.setattr(elites, "_judge", lambda *_: (found, artefact))
        monkeypatch.setattr(sanitizer, "sanitize", sanitize)

    return give


@pytest.mark.parametrize(("first", "second", "counts"), [(1.5, 1.2, 1.2), (1.2, 1.5, 1.2)])
def test_the_lower_score_counts(first, second, counts, judged):
    judged(verdict(second), (report(0),))
    found = rejudge(SOURCE, TASK, target="cuda", first=verdict(first))
    assert found.combined_score == counts
    assert found.environment["elite"]["scores"] == [first, second]
    assert found.environment["elite"]["sanitizer"][0]["errors"] == 0
    assert "sanitizer" in found.seeds


def test_what_fails_the_second_time_has_failed(judged):
    judged(verdict(correct=False))
    assert not rejudge(SOURCE, TASK, target="cuda", first=verdict(3.0)).correct


def test_a_finding_undoes_both_verdicts(judged):
    judged(verdict(2.0), (report(1, "Invalid write"),))
    found = rejudge(SOURCE, TASK, target="cuda", first=verdict(1.5))
    assert found.combined_score == 0.0
    assert found.reason == "sanitizer"


def test_without_the_sanitizer_the_verdict_says_so(judged):
    judged(verdict(2.0), None)
    assert rejudge(SOURCE, TASK, target="cuda").environment["elite"]["sanitizer"] is None
    judged(verdict(2.0), WorkerFailed("not permitted"))
    found = rejudge(SOURCE, TASK, target="cuda")
    assert found.correct
    assert found.environment["elite"]["sanitizer_failed"] == "not permitted"


def test_on_the_cpu_it_is_a_second_judgement_with_new_seeds():
    config = Config()
    config.compile.enabled = False
    config.judging.small_seeds = 2
    first = rejudge(SOURCE, TASK, config, target="cpu")
    again = rejudge(SOURCE, TASK, config, target="cpu", first=first)
    assert again.correct
    assert again.environment["elite"] == {"scores": [1.0, 1.0], "sanitizer": None, "sanitizer_failed": None}
    assert dataclasses.asdict(first)["seeds"] != again.seeds
