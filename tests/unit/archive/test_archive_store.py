"""What goes in comes out: evaluations whole, programs once, scores ranked only with their like."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from archive_samples import CHILD, OTHER_TASK, PARENT, TASK, evaluation, rejected, untimed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pallas_evo.archive import Archive, identity_of, open_archive, sha256_of_text
from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.types import Evaluation, FilterResult, SizeResult


@pytest.fixture
def archive(tmp_path):
    with open_archive(tmp_path / "a.sqlite") as opened:
        opened.add_tasks([TASK, OTHER_TASK])
        opened.add_program(TASK.id, PARENT, origin="seed", name="relu")
        yield opened


def key(source: str = PARENT, task: str = TASK.id) -> tuple[str, str]:
    return task, sha256_of_text(source)


def test_tasks_come_back_equal(archive: Archive):
    assert archive.tasks() == (TASK, OTHER_TASK)
    newer = dataclasses.replace(TASK, version=2, formula="relu(x)")
    assert archive.add_tasks([newer, OTHER_TASK]) == 1
    assert archive.tasks() == (newer, OTHER_TASK)


@pytest.mark.parametrize("make", [evaluation, rejected, untimed])
def test_an_evaluation_comes_back_equal(archive: Archive, make):
    given_one = make()
    stored = archive.evaluation(archive.add_evaluation(key(), given_one))
    assert stored == given_one
    for field in dataclasses.fields(Evaluation):
        assert type(getattr(stored, field.name)) is type(getattr(given_one, field.name)), field.name


def test_the_sample_evaluation_fills_every_field():
    """Otherwise the round trip above would prove nothing for a field that is added later."""
    verdict = {"stage", "reason", "message"}  # filled by `rejected`
    for field in dataclasses.fields(Evaluation):
        filled = getattr(rejected() if field.name in verdict else evaluation(), field.name)
        assert filled not in ((), {}, None, "", "untimed"), field.name


number = st.floats(allow_nan=True, allow_infinity=True)
maybe = st.none() | number


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    score=st.floats(min_value=0, allow_infinity=False),
    value=maybe,
    error=maybe,
    samples=st.none() | st.lists(number, max_size=5).map(tuple),
    text=st.text(st.characters(), max_size=20),
    seed=st.integers(),
)
def test_every_float_and_text_survives(archive: Archive, score, value, error, samples, text, seed):
    size = SizeResult(shape=((1,),), correct=True, normwise_error=error, median_us=value, samples_us=samples)
    given_one = evaluation(
        combined_score=score,
        filters={"f": FilterResult(passed=True, value=value, threshold=error, message=text)},
        sizes={"medium": size},
        output_text=text,
        seeds={"s": seed},
        environment={"value": value, "text": text},
    )
    stored = archive.evaluation(archive.add_evaluation(key(), given_one))
    assert repr(stored) == repr(given_one)  # repr: NaN is not equal to itself, and 0.1 + 0.2 keeps every digit


@pytest.mark.parametrize(
    "changes",
    [
        {"combined_score": math.nan},
        {"combined_score": math.inf},
        {"combined_score": -1.0},
        {"duration_s": math.nan},
        {"correct": False},
        {"status": "rejected"},
        {"environment": {"jax": object()}},
        {"environment": {1: "jax"}},
    ],
    ids=lambda change: str(change).partition(" at 0x")[0],
)
def test_a_verdict_that_cannot_be_is_our_failure_and_leaves_nothing(archive: Archive, changes):
    with pytest.raises(PallasEvoError) as refusal:
        archive.add_evaluation(key(), evaluation(**changes))
    assert refusal.value.exit_code == 3
    assert archive.evaluations() == ()


def test_an_evaluation_is_stored_whole_or_not_at_all(archive: Archive):
    with pytest.raises(TypeError):  # the samples are the last to be written
        archive.add_evaluation(key(), evaluation(), other_samples_us={"medium": {"xla": ["fast"]}})
    assert archive.evaluations() == ()
    assert archive.summary().timing_samples == 0


def test_what_an_evaluation_points_at_must_be_there(archive: Archive):
    with pytest.raises(UsageError, match="Add it by add_program first"):
        archive.add_evaluation(key(CHILD), evaluation(CHILD))
    with pytest.raises(UsageError, match="version 7 of L1/relu"):
        archive.add_evaluation(key(), evaluation(task_version=7))
    with pytest.raises(UsageError, match="run nowhere"):
        archive.add_evaluation(key(), evaluation(), run_id="nowhere")
    with pytest.raises(UsageError, match="expected its own"):
        archive.add_evaluation(key(), evaluation(CHILD))


def test_adding_twice_changes_nothing(archive: Archive):
    run = archive.add_run("evolve", run_id="0" * 32, task=TASK.id, config_yaml="a: 1\n")

    def add() -> None:
        archive.add_tasks([TASK, OTHER_TASK])
        parent = archive.add_program(TASK.id, PARENT, origin="seed", name="relu")
        archive.add_program(
            TASK.id, CHILD, origin="mutation", parent_sha256=parent.sha256, run_id=run.id, generation=1, island=0
        )
        archive.add_run("evolve", run_id=run.id)
        archive.add_verification(parent, "numerics", passed=True, environment={"jax": "1"}, details={"seconds": 1})
        archive.add_finding(parent, "out_of_bounds", "reads past x", fix="mask", environment={"jax": "1"})

    def everything():
        return archive.summary(), archive.programs(), archive.runs(), archive.verifications(), archive.findings()

    add()
    first = everything()
    add()
    assert everything() == first
    assert first[0].programs == 2


def test_identity_is_task_and_source_together(archive: Archive):
    one = archive.add_program(TASK.id, PARENT, origin="seed")
    other = archive.add_program(OTHER_TASK.id, PARENT, origin="seed")
    assert one.sha256 == other.sha256
    assert archive.summary().programs == 2
    stranger = archive.add_program(TASK.id, "N = 1\n", origin="mutation")
    with pytest.raises(UsageError, match="expected the parent"):  # a parent is of the same task
        archive.add_program(OTHER_TASK.id, CHILD, origin="mutation", parent_sha256=stranger.sha256)


def test_a_child_keeps_its_diff_and_its_line(archive: Archive):
    parent = archive.program(TASK.id, sha256_of_text(PARENT)[:8])
    child = archive.add_program(TASK.id, CHILD, origin="mutation", parent_sha256=parent.sha256)
    assert child.diff == "--- parent\n+++ child\n@@ -1 +1 @@\n-BLOCK_M = 32\n+BLOCK_M = 64\n"
    assert archive.lineage(child) == (child, parent)
    assert child.created_at.tzinfo is UTC
    assert abs((datetime.now(UTC) - child.created_at).total_seconds()) < 60


def test_a_judged_file_becomes_what_it_turns_out_to_be(archive: Archive):
    archive.add_program(TASK.id, CHILD, origin="candidate")
    original = archive.add_program(TASK.id, "TPU = 1\n", origin="tpu_original")
    seed = archive.add_program(TASK.id, CHILD, origin="seed", name="relu", parent_sha256=original.sha256)
    assert (seed.origin, seed.name, seed.parent_sha256) == ("seed", "relu", original.sha256)
    assert seed.diff is not None
    again = archive.add_program(TASK.id, CHILD, origin="mutation")
    assert again == seed


def test_nobody_becomes_their_own_ancestor(archive: Archive):
    one = archive.add_program(TASK.id, CHILD, origin="candidate")
    other = archive.add_program(TASK.id, "OTHER = 1\n", origin="mutation", parent_sha256=one.sha256)
    turned = archive.add_program(TASK.id, CHILD, origin="mutation", parent_sha256=other.sha256)
    assert turned.parent_sha256 is None
    assert archive.lineage(other)[-1] == turned


def test_programs_are_found_by_the_start_of_their_hash(archive: Archive):
    for index in range(20):
        archive.add_program(TASK.id, f"N = {index}\n", origin="mutation")
    with pytest.raises(UsageError, match="more digits"):
        archive.program(TASK.id, next(d for d in "0123456789abcdef" if _starts(archive, d) > 1))
    for wrong in ("", "%", "xyz", "0" * 64):
        with pytest.raises(UsageError):
            archive.program(TASK.id, wrong)


def _starts(archive: Archive, digit: str) -> int:
    return sum(program.sha256.startswith(digit) for program in archive.programs(TASK.id))


def test_a_program_in_two_runs_has_a_place_in_each(archive: Archive):
    for generation in (0, 3):
        run = archive.add_run("evolve", run_id=f"{generation:032}", task=TASK.id)
        place = {"run_id": run.id, "generation": generation, "metadata": {"of": generation}}
        archive.add_program(TASK.id, PARENT, origin="seed", **place)
    listed = {g: archive.programs(run_id=f"{g:032}") for g in (0, 3)}
    assert {g: (p[0].generation, p[0].metadata) for g, p in listed.items()} == {0: (0, {"of": 0}), 3: (3, {"of": 3})}
    assert len(archive.programs()) == 1


def test_scores_are_ranked_with_their_like_only(archive: Archive):
    sources = [f"N = {index}\n" for index in range(4)]
    for source in sources:
        archive.add_program(TASK.id, source, origin="mutation")
    slow, fast, other_device, never_timed = (key(source) for source in sources)
    archive.add_evaluation(slow, evaluation(sources[0], combined_score=0.5))
    archive.add_evaluation(fast, evaluation(sources[1], combined_score=0.9))
    archive.add_evaluation(other_device, evaluation(sources[2], combined_score=5.0, ran_on="NVIDIA A100"))
    archive.add_evaluation(never_timed, untimed(sources[3]))
    archive.add_evaluation(slow, untimed(sources[0]))

    identity = identity_of(evaluation())
    assert identity.sizes == ("medium",)
    best = archive.best(TASK.id, identity)
    assert [(b.candidate_sha256, b.combined_score) for b in best] == [(fast[1], 0.9), (slow[1], 0.5)]
    # 1.0 without a clock is below 0.5 with one, and a program appears once
    with_untimed = archive.best(TASK.id, identity, include_untimed=True)
    assert [b.candidate_sha256 for b in with_untimed] == [fast[1], slow[1], never_timed[1]]
    for change in ({"task_version": 2}, {"device": ""}, {"timer": "wall"}, {"sizes": ("large", "medium")}):
        assert archive.best(TASK.id, dataclasses.replace(identity, **change)) == ()
    with pytest.raises(UsageError, match="identity of this task"):
        archive.best(OTHER_TASK.id, identity)
    found = {summary.identity.device: summary.best_score for summary in archive.identities(TASK.id)}
    assert found == {"NVIDIA H200": 0.9, "NVIDIA A100": 5.0, "executor": 1.0}


def test_the_newest_word_on_a_program_holds(archive: Archive):
    identity = identity_of(evaluation())
    archive.add_evaluation(key(), evaluation(combined_score=9.0))
    archive.add_evaluation(key(), evaluation(combined_score=0.8))
    assert [b.combined_score for b in archive.best(TASK.id, identity)] == [0.8]
    archive.add_evaluation(key(), rejected(ran_on="NVIDIA H200", stage="numerics", reason="numerics"))
    assert archive.best(TASK.id, identity) == ()


def test_another_verdict_replaces_a_verification_and_another_environment_does_not(archive: Archive):
    for passed, environment, seconds in ((True, {"sm": 80}, 1), (True, {"sm": 80}, 2), (False, {"sm": 90}, 3)):
        details = {"seconds": seconds, "error": math.inf}
        archive.add_verification(key(), "ptx", passed=passed, environment=environment, details=details)
    first, second = archive.verifications(program=key())
    assert (first.passed, first.details["seconds"], second.passed) == (True, 1, False)
    archive.add_verification(key(), "ptx", passed=True, environment={"sm": 80}, details={"seconds": 4}, replace=True)
    archive.add_verification(key(), "ptx", passed=True, environment={"sm": 90}, details={"seconds": 5})
    assert {v.environment["sm"]: (v.passed, v.details["seconds"]) for v in archive.verifications()} == {
        80: (True, 4),
        90: (True, 5),
    }
    assert len(archive.verifications(environment={"sm": 80}, rung="ptx")) == 1


def test_runs_begin_and_end(archive: Archive):
    run = archive.add_run("evolve", task=TASK.id, name="first", config_yaml="a: 1\n", environment={"jax": "1"})
    evaluation_id = archive.add_evaluation(key(), evaluation(), run_id=run.id, config_yaml="b: 2\n")
    archive.finish_run(run.id, status="failed", message="the disk is full")
    (ended,) = archive.runs(kind="evolve")
    assert (ended.status, ended.message, ended.config_yaml) == ("failed", "the disk is full", "a: 1\n")
    assert ended.finished_at is not None
    assert archive.evaluation_config(evaluation_id) == "b: 2\n"
    assert [e.id for e in archive.evaluations(run_id=run.id)] == [evaluation_id]
    with pytest.raises(UsageError):
        archive.finish_run("nowhere")


def test_raw_samples_of_the_baseline_are_kept_too(archive: Archive):
    stored = archive.add_evaluation(key(), evaluation(), other_samples_us={"medium": {"xla": [1.5, 2.5]}})
    found = {(sample.size, sample.slot): sample.samples_us for sample in archive.samples(stored)}
    assert found == {("medium", "candidate"): (33.3, 0.1 + 0.2, 1e-9), ("medium", "xla"): (1.5, 2.5)}


def test_a_batch_is_all_or_nothing(archive: Archive):
    def fail() -> None:
        with archive.batch():
            archive.add_program(TASK.id, CHILD, origin="mutation")
            assert len(archive.programs()) == 2
            raise FileNotFoundError("of the caller: it must come out as it is")

    with pytest.raises(FileNotFoundError, match="of the caller"):
        fail()
    assert len(archive.programs()) == 1


def test_a_task_of_the_archive_is_asked_for(archive: Archive):
    with pytest.raises(UsageError, match="add_tasks"):
        archive.add_program("L9/none", PARENT, origin="seed")
    with pytest.raises(UsageError, match="expected one of seed"):
        archive.add_program(TASK.id, PARENT, origin="unheard of")


def test_importing_the_archive_is_light():
    code = "import sys, pallas_evo.archive; print({'alembic', 'jax', 'numpy'} & set(sys.modules) or 'light')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "light\n"
