"""Counts and bulk reads: the same answers as the reads one by one, in a fixed number of statements."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from archive_samples import CHILD, PARENT, TASK, evaluation, rejected, untimed
from sqlalchemy import event

from pallas_evo.archive import identity_of, open_archive, sha256_of_text
from pallas_evo.archive import reads as archive_reads

IDENTITY = identity_of(evaluation())


@pytest.fixture
def archive():
    with open_archive(":memory:") as made:
        made.add_tasks([TASK])
        yield made


def add(archive, source, *verdicts, run_id=None, **place):
    """A program with its verdicts, in that order of time."""
    program = archive.add_program(TASK.id, source, origin=place.pop("origin", "mutation"), run_id=run_id, **place)
    for verdict in verdicts:
        archive.add_evaluation(program, replace(verdict, candidate_sha256=program.sha256), run_id=run_id)
    return program.sha256


def test_a_short_ranking_is_the_start_of_the_whole_one(archive):
    """Scores that tie, programs judged again lower, found wrong since, or on another device: at every length."""
    draw = random.Random(0)
    with archive.batch():
        for number in range(150):
            verdicts = []
            for _ in range(draw.choice([1, 1, 1, 2, 3])):
                score = round(draw.uniform(0.5, 1.5), draw.choice([1, 6]))
                verdicts.append(evaluation(combined_score=score))
                if draw.random() < 0.2:
                    verdicts.append(
                        draw.choice([rejected(ran_on="NVIDIA H200"), rejected(), untimed(), evaluation(ran_on="A100")])
                    )
            add(archive, f"x = {number}\n", *verdicts)
    whole = archive.best(TASK.id, IDENTITY, limit=None)
    assert 100 < len(whole) < 150
    for limit in (1, 2, 3, 5, 10, 20, 50, 99, 100, 101, 500):
        assert archive.best(TASK.id, IDENTITY, limit=limit) == whole[:limit]


def test_a_short_ranking_reads_the_top_only(archive, monkeypatch):
    """Else a ranking of 100,000 programs sorts them all for three."""
    for number in range(100):
        add(archive, f"x = {number}\n", evaluation(combined_score=1 + number / 100))
    monkeypatch.setattr(archive_reads, "_ranking", None)
    assert [record.combined_score for record in archive.best(TASK.id, IDENTITY, limit=3)] == [1.99, 1.98, 1.97]


def test_standing_is_what_the_ranking_says(archive):
    kept = add(archive, "a = 1\n", evaluation(combined_score=2.0), rejected(ran_on="A100"), untimed())
    add(archive, "b = 1\n", evaluation(), rejected(ran_on="NVIDIA H200"))
    again = add(archive, "c = 1\n", evaluation(), rejected(ran_on="NVIDIA H200"), evaluation(combined_score=0.7))
    found = archive.standing(TASK.id, [program.sha256 for program in archive.programs()], IDENTITY)
    assert found == {record.candidate_sha256: record for record in archive.best(TASK.id, IDENTITY, limit=None)}
    assert {sha256: record.combined_score for sha256, record in found.items()} == {kept: 2.0, again: 0.7}


def test_run_digests(archive):
    run = archive.add_run("evolve", run_id="r", task=TASK.id, name="r").id
    archive.add_run("evolve", run_id="empty", task=TASK.id)
    seed = evaluation(combined_score=0.5)
    add(archive, PARENT, seed, untimed(), seed, run_id=run, generation=0, island=0)
    add(
        archive,
        CHILD,
        evaluation(combined_score=1.5),
        run_id=run,
        generation=1,
        island=1,
        parent_sha256=sha256_of_text(PARENT),
    )
    add(archive, "c = 1\n", rejected(), run_id=run, generation=1, island=0)
    digests = {(one.run.id, one.identity.timer if one.identity else None): one for one in archive.run_digests()}
    assert set(digests) == {("r", "cupti"), ("r", "untimed"), ("empty", None)}
    timed = digests["r", "cupti"]
    assert (timed.programs, timed.evaluations, timed.correct) == (3, 5, 2)
    assert (timed.best_score, timed.first_score) == (1.5, 0.5)
    assert digests["r", "untimed"].first_score == 1.0
    nothing = digests["empty", None]
    assert (nothing.programs, nothing.evaluations, nothing.correct, nothing.best_score) == (0, 0, 0, None)


def test_a_run_that_has_nothing_correct_is_listed(archive):
    run = archive.add_run("evolve", run_id="r", task=TASK.id).id
    add(archive, PARENT, rejected(), run_id=run, generation=0)
    (digest,) = archive.run_digests()
    assert (digest.programs, digest.correct, digest.best_score, digest.first_score) == (1, 0, None, None)


def test_steps_score_under_one_identity(archive):
    run = archive.add_run("evolve", run_id="r", task=TASK.id).id
    for number, verdict in enumerate(
        [evaluation(combined_score=0.9), evaluation(combined_score=1.1), rejected(), untimed()]
    ):
        add(archive, f"x = {number}\n", verdict, run_id=run, generation=number // 2, island=number % 2)
    steps = [
        (one.generation, one.island, one.evaluations, one.correct, one.best_score)
        for one in archive.steps(TASK.id, IDENTITY)
    ]
    assert steps == [(0, 0, 1, 1, 0.9), (0, 1, 1, 1, 1.1), (1, 0, 1, 0, None), (1, 1, 1, 1, None)]


def test_counts_are_the_summarys(archive):
    add(archive, PARENT, evaluation(), rejected())
    assert archive.counts() == archive.summary().tasks
    assert archive.counts()[0].rejected == {"timeout": 1}


def test_find_programs(archive):
    sha256 = add(archive, PARENT, evaluation())
    assert [one.sha256 for one in archive.find_programs(sha256[:6])] == [sha256]
    assert [one.sha256 for one in archive.find_programs(sha256, TASK.id)] == [sha256]
    for prefix in ("", "g", "%", "_", sha256[:6].upper() + "'", "initial"):
        assert archive.find_programs(prefix) == ()
    assert archive.find_programs(sha256, "L9/none") == ()


def test_bulk_reads_are_the_reads_one_by_one(archive):
    run = archive.add_run("evolve", run_id="r", task=TASK.id).id
    parent = add(archive, PARENT, evaluation(), untimed(), origin="seed")
    child = add(archive, CHILD, rejected(), run_id=run, generation=3, island=1, parent_sha256=parent)
    assert archive.ancestry(TASK.id) == {parent: (None, "seed"), child: (parent, "mutation")}
    assert [one.sha256 for one in archive.roots()] == [parent]
    programs = archive.programs_by_key(TASK.id, [parent, child])
    assert programs[parent] == archive.program(TASK.id, parent)
    assert (programs[child].run_id, programs[child].generation, programs[child].island) == ("r", 3, 1)
    assert programs[child].diff
    assert archive.programs_by_key(TASK.id, [child], with_text=False)[child].source is None
    verdicts = archive.evaluations_by_key(TASK.id, [parent, child, "0" * 64])
    assert verdicts == {key: archive.evaluations(program=(TASK.id, key)) for key in (parent, child)}
    first = verdicts[parent][0].id
    measured = archive.measured([first], with_samples=True)[first]
    whole = archive.evaluation(first)
    assert [gate["name"] for gate in measured.gates] == [gate.name for gate in whole.gates]
    assert measured.filters["output_range"]["value"] == float("inf")
    assert measured.environment == whole.environment
    assert measured.samples == archive.samples(first)
    assert archive.measured([first])[first].samples == ()
    assert archive.measured([]) == {}


def test_bulk_reads_take_a_statement_for_many_programs(archive):
    """A statement a program would take minutes for 100,000."""
    with archive.batch():
        keys = [add(archive, f"x = {number}\n", evaluation()) for number in range(60)]
    ids = [records[-1].id for records in archive.evaluations_by_key(TASK.id, keys).values()]
    statements = []
    event.listen(archive._engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    archive.programs_by_key(TASK.id, keys)
    archive.evaluations_by_key(TASK.id, keys)
    archive.measured(ids, with_samples=True)
    archive.run_digests()
    archive.steps(TASK.id)
    archive.counts()
    assert len([one for one in statements if one.startswith("SELECT")]) < 20
