"""A new best of a run is judged again before it is stored, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.errors import DeviceUnavailable
from pallas_evo.evaluation import elites as judging
from pallas_evo.evolution.elites import Elites, _replace
from pallas_evo.types import Evaluation, GateResult, SizeResult

TASK = tasks.get_task("L1/relu")


def verdict(score: float, *, correct: bool = True, timer: str = "cupti") -> Evaluation:
    return Evaluation(
        task=TASK.id,
        task_version=1,
        target="cuda",
        correct=correct,
        combined_score=score if correct else 0.0,
        status="accepted" if correct else "rejected",
        stage=None if correct else "run",
        reason=None if correct else "sanitizer",
        message="" if correct else "Invalid read.",
        gates=(GateResult(name="run", passed=correct, reason=None, message="", seconds=0.5),),
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


@pytest.fixture
def run(tmp_path):
    """A run's folder with one judged program of score 1.2, and a place for the next."""

    def place(name: str, found: Evaluation):
        results = tmp_path / name / "results"
        results.mkdir(parents=True)
        _replace(results, TASK, found)
        program = tmp_path / name / "main.py"
        program.write_text("# a kernel\n")
        return program, results

    place("gen_0", verdict(1.2))
    return tmp_path, place


def again(monkeypatch, found: Evaluation | Exception) -> list[str]:
    asked = []

    def rejudge(source, task, config, *, target, first):
        asked.append(source)
        if isinstance(found, Exception):
            raise found
        return found if not found.correct or found.combined_score < first.combined_score else first

    monkeypatch.setattr(judging, "rejudge", rejudge)
    return asked


def score_in(results) -> float:
    return json.loads((results / "metrics.json").read_text())["combined_score"]


def test_a_new_best_gets_the_lower_score_and_is_the_best_from_then_on(run, monkeypatch):
    folder, place = run
    asked = again(monkeypatch, verdict(1.4))
    run_elites = Elites(TASK, Config(), "auto", folder)
    assert run_elites.best == pytest.approx(1.2)
    program, results = place("gen_1", verdict(1.5))
    run_elites.confirm(program, results)
    assert asked == ["# a kernel\n"]
    assert score_in(results) == pytest.approx(1.4)
    assert run_elites.best == pytest.approx(1.4)
    program, results = place("gen_2", verdict(1.3))
    run_elites.confirm(program, results)
    assert len(asked) == 1
    assert score_in(results) == pytest.approx(1.3)


@pytest.mark.parametrize("found", [verdict(1.1), verdict(9.0, correct=False), verdict(1.0, timer="untimed")])
def test_what_is_no_new_best_is_not_judged_again(found, run, monkeypatch):
    folder, place = run
    asked = again(monkeypatch, verdict(1.0))
    Elites(TASK, Config(), "auto", folder).confirm(*place("gen_1", found))
    assert not asked


def test_an_elite_that_fails_the_second_time_is_refused_in_all_its_files(run, monkeypatch):
    folder, place = run
    again(monkeypatch, replace(verdict(1.5, correct=False)))
    run_elites = Elites(TASK, Config(), "auto", folder)
    program, results = place("gen_1", verdict(1.5))
    run_elites.confirm(program, results)
    said = json.loads((results / "correct.json").read_text())
    assert said == {"correct": False, "error": "sanitizer: Invalid read.", "judged": True}
    assert score_in(results) == 0.0
    assert json.loads((results / "evaluation.json").read_text())["reason"] == "sanitizer"
    assert run_elites.best == pytest.approx(1.2)


def test_a_failure_of_ours_leaves_the_first_verdict(run, monkeypatch, caplog):
    folder, place = run
    again(monkeypatch, DeviceUnavailable("busy"))
    run_elites = Elites(TASK, Config(), "auto", folder)
    program, results = place("gen_1", verdict(1.5))
    run_elites.confirm(program, results)
    assert score_in(results) == pytest.approx(1.5)
    assert "busy" in caplog.text


def test_files_that_are_not_there_or_garbage_end_no_run(run, monkeypatch):
    folder, place = run
    asked = again(monkeypatch, verdict(1.0))
    run_elites = Elites(TASK, Config(), "auto", folder)
    program, results = place("gen_1", verdict(1.5))
    for text in ("{", "[]", "{}", '{"task": 3}'):
        (results / "evaluation.json").write_text(text)
        run_elites.confirm(program, results)
    (results / "evaluation.json").unlink()
    run_elites.confirm(program, results)
    assert not asked
