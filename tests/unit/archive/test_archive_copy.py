"""Copies are complete, add nothing the second time, and go on where they were killed.

The same suite runs against a server where PALLAS_EVO_TEST_POSTGRES holds the URL of an empty database.
"""

from __future__ import annotations

import dataclasses
import os
import time

import pytest
from archive_samples import CHILD, OTHER_TASK, PARENT, TASK, evaluation, rejected

from pallas_evo.archive import Archive, copying, identity_of, open_archive
from pallas_evo.archive import writes as archive_writes
from pallas_evo.errors import UsageError

SERVER = os.environ.get("PALLAS_EVO_TEST_POSTGRES")


server = pytest.param("server", marks=pytest.mark.skipif(not SERVER, reason="PALLAS_EVO_TEST_POSTGRES is not set"))


@pytest.fixture(params=["file", "memory", server])
def target(request, tmp_path):
    if request.param == "server":
        from sqlalchemy import create_engine, text

        engine = create_engine(SERVER)
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        engine.dispose()
    place = {"file": tmp_path / "target.sqlite", "memory": ":memory:", "server": SERVER}[request.param]
    with open_archive(place) as archive:
        yield archive


@pytest.fixture
def source(tmp_path):
    with open_archive(tmp_path / "source.sqlite") as archive:
        fill(archive)
        yield archive


def fill(archive: Archive) -> None:
    archive.add_tasks([TASK, OTHER_TASK])
    run = archive.add_run("evolve", run_id="1" * 32, task=TASK.id, config_yaml="a: 1\n", environment={"jax": "1"})
    # A child that is listed before its parent, by key and by time.
    judged = archive.add_program(TASK.id, CHILD, origin="candidate")
    parent = archive.add_program(TASK.id, PARENT, origin="tpu_original")
    archive.add_program(TASK.id, CHILD, origin="seed", parent_sha256=parent.sha256, run_id=run.id, generation=0)
    archive.add_program(OTHER_TASK.id, PARENT, origin="seed", metadata={"a": [1, None]})
    archive.add_evaluation(parent, evaluation(), config_yaml="a: 1\n", other_samples_us={"medium": {"xla": [1.0]}})
    archive.add_evaluation(judged, rejected(CHILD, output_text="\0\udcff"), run_id=run.id)
    archive.add_verification(parent, "numerics", passed=True, environment={"sm": 80}, details={"error": float("inf")})
    archive.add_finding(parent, "race", "two programs", fix="mask", environment={"sm": 80})
    with archive.batch():
        last = parent
        for index in range(30):
            source = f"N = {index}\n"
            last = archive.add_program(TASK.id, source, origin="mutation", parent_sha256=last.sha256)
            archive.add_evaluation(last, evaluation(source, combined_score=float(index)))


def everything(archive: Archive):
    return {
        "tasks": archive.tasks(),
        "programs": archive.programs(),
        "members": archive.programs(run_id="1" * 32),
        "runs": archive.runs(),
        "evaluations": archive.evaluations(),
        "whole": [archive.evaluation(e.id) for e in archive.evaluations()],
        "samples": [archive.samples(e.id) for e in archive.evaluations()],
        "configs": [archive.evaluation_config(e.id) for e in archive.evaluations()],
        "best": archive.best(TASK.id, identity_of(evaluation()), include_untimed=True),
        "identities": archive.identities(),
        "verifications": archive.verifications(),
        "findings": archive.findings(),
        "summary": archive.summary(),
    }


def test_a_copy_is_complete_and_done_once(source: Archive, target: Archive):
    before = everything(source)
    assert source.copy_into(target).total > 0
    assert everything(target) == before
    assert source.copy_into(target).total == 0
    assert everything(target) == before


def test_a_copy_goes_on_where_it_was_killed(source: Archive, target: Archive, monkeypatch):
    monkeypatch.setattr(copying, "BATCH_ROWS", 7)
    real, left = copying.insert_new, 12

    def dying(*arguments):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(copying, "insert_new", dying)
    deaths = 0
    while True:
        try:
            source.copy_into(target)
            break
        except KeyboardInterrupt:
            deaths, left = deaths + 1, 12
            for record in target.evaluations():  # what is there is whole at every moment
                assert target.evaluation(record.id) == source.evaluation(record.id)
    assert deaths >= 1
    assert everything(target) == everything(source)


def test_two_archives_become_one(source: Archive, target: Archive):
    target.add_tasks([TASK])
    own = target.add_program(TASK.id, "OWN = 1\n", origin="mutation")
    target.add_evaluation(own, evaluation("OWN = 1\n"))
    source.copy_into(target)
    assert target.summary().programs == source.summary().programs + 1
    assert target.summary().evaluations == source.summary().evaluations + 1


def test_news_of_what_was_copied_follow(source: Archive, target: Archive):
    source.copy_into(target)
    source.finish_run("1" * 32)
    program = source.programs(origin="tpu_original")[0]
    source.add_verification(program, "numerics", passed=False, environment={"sm": 80})
    assert dict(source.copy_into(target).added) == {"runs": 1, "verifications": 1}
    assert everything(target) == everything(source)


def test_an_archive_is_not_copied_into_itself(source: Archive, tmp_path):
    with open_archive(tmp_path / "source.sqlite") as again, pytest.raises(UsageError, match="the same one"):
        source.copy_into(again)


def test_adding_works_on_every_database(target: Archive):
    fill(target)
    first = everything(target)
    assert first["summary"].programs == 33
    target.add_tasks([TASK])
    target.add_program(TASK.id, PARENT, origin="seed")
    assert everything(target) == first


def test_rows_are_left_alone_on_a_database_without_on_conflict(target: Archive, monkeypatch):
    real = archive_writes.insert_new

    class Unknown:
        name = "unknown"

    class Connection:
        """The connection under another dialect's name."""

        def __init__(self, inner):
            self._inner, self.dialect = inner, Unknown

        def __getattr__(self, name):
            return getattr(self._inner, name)

    monkeypatch.setattr(archive_writes, "insert_new", lambda connection, *rest: real(Connection(connection), *rest))
    assert target.add_tasks([TASK, OTHER_TASK]) == 2
    newer = dataclasses.replace(TASK, version=2)
    assert target.add_tasks([TASK, newer]) == 1
    assert target.tasks() == (newer, OTHER_TASK)


@pytest.mark.slow
def test_a_large_archive_is_read_in_time(tmp_path):
    """20,000 programs with 200,000 samples, a fifth of what `inspect` must read in two seconds."""
    from pallas_evo.archive import schema

    with open_archive(tmp_path / "a.sqlite") as archive:
        archive.add_tasks([TASK])
        program = archive.add_program(TASK.id, PARENT, origin="seed")
        stored = archive.add_evaluation(program, evaluation())
        with archive._writing() as connection:
            multiply(connection, schema, program.sha256, stored, 20_000)
        identity = identity_of(evaluation())
        start = time.perf_counter()
        assert archive.summary().programs == 20_001
        assert len(archive.best(TASK.id, identity)) == 10
        assert len(archive.identities()) == 1
        assert len(archive.programs(with_text=False)) == 20_001
        assert time.perf_counter() - start < 2.0


def multiply(connection, schema, sha256: str, stored: str, count: int) -> None:
    """Copies of one program and its evaluation under other keys, in bulk."""
    from sqlalchemy import insert, select

    def rows(table, where, **keys):
        row = dict(connection.execute(select(table).where(where)).one()._mapping)
        connection.execute(insert(table), [{**row, **{k: f(i) for k, f in keys.items()}} for i in range(count)])

    def program(i):
        return f"{i:064x}"

    def evaluated(i):
        return f"{i:032x}"

    rows(schema.programs, schema.programs.c.sha256 == sha256, sha256=program)
    rows(schema.program_texts, schema.program_texts.c.sha256 == sha256, sha256=program)
    rows(schema.evaluations, schema.evaluations.c.id == stored, id=evaluated, candidate_sha256=program)
    for table in (schema.evaluation_details, schema.timing_samples):
        rows(table, table.c.evaluation_id == stored, evaluation_id=evaluated)
