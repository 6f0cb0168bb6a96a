"""Schemas that are brought up on a server, and archives that move to one and back."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import test_archive_copy
from archive_samples import CHILD, PARENT, TASK, evaluation
from pg_server import PASSWORD, Server
from sqlalchemy import Connection, MetaData, create_engine, insert, select
from test_archive_copy import (
    everything,
    fill,
    source,
    test_a_copy_goes_on_where_it_was_killed,
    test_a_copy_is_complete_and_done_once,
    test_adding_works_on_every_database,
    test_news_of_what_was_copied_follow,
    test_rows_are_left_alone_on_a_database_without_on_conflict,
    test_two_archives_become_one,
)

from pallas_evo.archive import SCHEMA_REVISION, Archive, copying, open_archive, upgrade
from pallas_evo.archive.migrate import MIGRATIONS
from pallas_evo.cli.app import main
from pallas_evo.errors import ArchiveError, PallasEvoError, UsageError

__all__ = [  # the suite of copies, which runs here with a server for its target
    "source",
    "test_a_copy_goes_on_where_it_was_killed",
    "test_a_copy_is_complete_and_done_once",
    "test_adding_works_on_every_database",
    "test_news_of_what_was_copied_follow",
    "test_rows_are_left_alone_on_a_database_without_on_conflict",
    "test_two_archives_become_one",
]
ASSETS = Path(test_archive_copy.__file__).parent / "assets"
AWKWARD = "a \0 b \udc80 c \ue000json: d \u2028 é \U0001f600\r\n"


@pytest.fixture
def target(url: str) -> Iterator[Archive]:
    with open_archive(url) as archive:
        yield archive


# ---- schemas -------------------------------------------------------------------------------------------------------


def old_archive(url: str, asset: Path) -> None:
    """What an older version had made: its own migrations, then the rows of its file."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    file, engine = create_engine(f"sqlite:///{asset}"), create_engine(url)
    with file.connect() as old, engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, asset.stem.removeprefix("schema_"))
        here, there = MetaData(), MetaData()
        here.reflect(connection)
        there.reflect(old)
        assert set(here.tables) == set(there.tables)
        for table in here.sorted_tables:
            if table.name != "alembic_version":
                for row in ordered(old, there.tables[table.name]):
                    zoned = {k: v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for k, v in row.items()}
                    connection.execute(insert(table).values(zoned))
    engine.dispose()


def ordered(old: Connection, table) -> list[dict[str, object]]:
    rows = [dict(row._mapping) for row in old.execute(select(table))]
    return sorted(rows, key=lambda row: table.name == "programs" and row["parent_sha256"] is not None)


@pytest.mark.parametrize("asset", sorted(ASSETS.glob("schema_*.sqlite")), ids=lambda path: path.stem)
def test_every_released_schema_is_upgraded_on_a_server_and_loses_nothing(url: str, asset: Path, capsys):
    old_archive(url, asset)
    with pytest.raises(ArchiveError, match="Run: pallas_evo archive upgrade"):
        open_archive(url)
    assert main(["archive", "upgrade", url]) == 0
    assert PASSWORD not in "".join(capsys.readouterr())
    assert upgrade(url) == (SCHEMA_REVISION, SCHEMA_REVISION)
    with open_archive(url) as archive:
        parent, child = archive.programs(TASK.id)
        assert archive.tasks() == (TASK,)
        assert (parent.source, child.source, child.parent_sha256) == (PARENT, CHILD, parent.sha256)
        accepted = archive.evaluations(program=parent)[0]
        assert archive.evaluation(accepted.id) == evaluation(texts={}, texts_size=None)
        assert archive.evaluation_config(accepted.id) == "judging: {}\n"
        assert [p.generation for p in archive.programs(run_id="0" * 32)] == [1]
        archive.add_verification(parent, "numerics", passed=True, environment={})
        assert archive.evaluation(archive.add_evaluation(parent, evaluation())) == evaluation()


def test_migrations_and_tables_agree_on_a_server(server: Server):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from pallas_evo.archive.schema import metadata

    made, upgraded = server.url(server.database()), server.url(server.database())
    open_archive(made).close()
    old_archive(upgraded, ASSETS / "schema_0001.sqlite")
    upgrade(upgraded)
    for url in (made, upgraded):
        with open_archive(url) as archive, archive._reading() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []


def at_once(works: list) -> list[object]:
    """Call all at the same moment, each in a thread; what they returned or raised."""
    together, found = threading.Barrier(len(works)), [None] * len(works)

    def call(number: int) -> None:
        together.wait(timeout=30)
        try:
            found[number] = works[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=90)
    return found


def test_many_that_upgrade_at_once_do_it_once(url: str):
    old_archive(url, ASSETS / "schema_0001.sqlite")
    found = at_once([lambda: upgrade(url)] * 4)
    assert ("0001", SCHEMA_REVISION) in found
    assert {answer[1] for answer in found} == {SCHEMA_REVISION}
    with open_archive(url) as archive:
        assert len(archive.programs()) == 2


def test_many_that_make_an_archive_at_once_make_one(url: str):
    def make() -> int:
        with open_archive(url) as archive:
            return archive.add_tasks([TASK])

    assert sorted(at_once([make] * 6)) == [0, 0, 0, 0, 0, 1]


def test_an_upgrade_that_fails_leaves_the_old_schema(url: str, server: Server, monkeypatch):
    from alembic import command

    old_archive(url, ASSETS / "schema_0001.sqlite")
    real = command.upgrade

    def fail(*arguments) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "upgrade", fail)
    with pytest.raises(KeyboardInterrupt):
        upgrade(url)
    monkeypatch.undo()
    tables = "SELECT count(*) FROM pg_tables WHERE tablename IN ('texts', 'findings')"
    assert server.sql(tables, database=url.rpartition("/")[2]) == [(0,)]
    assert upgrade(url) == ("0001", SCHEMA_REVISION)


# ---- copies --------------------------------------------------------------------------------------------------------


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of a file, as SQLite holds it."""
    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(connection.execute(f'SELECT * FROM "{name}"'), key=repr) for name in sorted(tables)}
    connection.close()
    return found


def awkward(path: Path) -> Path:
    """An archive that holds whatever a candidate may print, and a run named as `evolve` names them."""
    with open_archive(path) as archive:
        fill(archive)
        run = archive.add_run("evolve", run_id="evolve-" + "a" * 32, task=TASK.id, name=AWKWARD, config_yaml=AWKWARD)
        text = f"TEXT = {AWKWARD!a}\n# {AWKWARD}"
        parent = archive.programs(origin="tpu_original")[0]
        place = {"run_id": run.id, "generation": 1, "metadata": {AWKWARD: [AWKWARD, float("nan")]}}
        program = archive.add_program(TASK.id, text, origin="mutation", parent_sha256=parent.sha256, **place)
        words = {"message": AWKWARD, "text_feedback": AWKWARD, "output_text": AWKWARD, "environment": {"a": AWKWARD}}
        news = evaluation(text, **words, texts={"jaxpr": AWKWARD})
        archive.add_evaluation(program, news, run_id=run.id, config_yaml=AWKWARD)
        archive.finish_run(run.id, status="failed", message=AWKWARD)
    return path


def test_there_and_back_every_row_is_the_same(tmp_path: Path, url: str, capsys):
    first, last = awkward(tmp_path / "first.sqlite"), tmp_path / "last.sqlite"
    assert main(["archive", "copy", str(first), url]) == 0
    assert main(["archive", "copy", url, str(last)]) == 0
    assert rows(last) == rows(first)
    capsys.readouterr()
    for one, other in ((str(first), url), (url, str(last)), (str(last), url)):
        assert main(["archive", "copy", one, other, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"added": {}, "total": 0}
    with open_archive(first) as before, open_archive(url, read_only=True) as after:
        assert everything(after) == everything(before)


KILLED = """
import os, signal, sys
from pallas_evo.archive import copying
from pallas_evo.cli.app import main
copying.BATCH_ROWS, real, left = 5, copying._copy_missing, [int(sys.argv[3])]
def copy(*arguments):
    done = real(*arguments)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
copying._copy_missing = copy
sys.exit(main(["archive", "copy", sys.argv[1], sys.argv[2]]))
"""


@pytest.mark.parametrize("back", [False, True], ids=["to a server", "from a server"])
def test_a_copy_that_was_killed_goes_on(tmp_path: Path, url: str, back: bool):
    first, last = awkward(tmp_path / "first.sqlite"), tmp_path / "last.sqlite"
    one, other = str(first), url
    if back:
        assert main(["archive", "copy", str(first), url]) == 0
        one, other = url, str(last)
    deaths = 0
    for left in (3, 9, 15, 1000):
        done = subprocess.run([sys.executable, "-c", KILLED, one, other, str(left)], capture_output=True, check=False)
        deaths += done.returncode == -9
        if done.returncode != -9:
            assert done.returncode == 0, done.stderr
    assert deaths == 3
    assert main(["archive", "copy", url, str(last)]) == 0
    assert rows(last) == rows(first)


def restarting(server: Server, monkeypatch, after: int) -> None:
    """The server crashes and comes back after so many batches of a copy."""
    monkeypatch.setattr(copying, "BATCH_ROWS", 5)
    real, left = copying._copy_missing, [after]

    def copy(*arguments):
        left[0] -= 1
        if left[0] == 0:
            server.restart("immediate")
        return real(*arguments)

    monkeypatch.setattr(copying, "_copy_missing", copy)


def test_a_copy_outlives_a_restart_of_its_target(tmp_path: Path, server: Server, url: str, monkeypatch):
    first = awkward(tmp_path / "first.sqlite")
    restarting(server, monkeypatch, 15)
    assert main(["archive", "copy", str(first), url]) == 0
    assert main(["archive", "copy", url, str(tmp_path / "last.sqlite")]) == 0
    assert rows(tmp_path / "last.sqlite") == rows(first)


def test_a_copy_whose_source_restarts_says_so_and_goes_on(
    tmp_path: Path, server: Server, url: str, monkeypatch, capsys
):
    first, last = awkward(tmp_path / "first.sqlite"), tmp_path / "last.sqlite"
    assert main(["archive", "copy", str(first), url]) == 0
    restarting(server, monkeypatch, 15)
    capsys.readouterr()
    assert main(["archive", "copy", url, str(last)]) == 3
    said = capsys.readouterr().err
    assert "connection to the database was lost" in said
    assert PASSWORD not in said
    assert main(["archive", "copy", url, str(last)]) == 0
    assert rows(last) == rows(first)


def test_two_copies_into_one_server_at_once_become_one(tmp_path: Path, url: str, monkeypatch):
    monkeypatch.setattr(copying, "BATCH_ROWS", 5)
    paths = [awkward(tmp_path / f"{number}.sqlite") for number in range(2)]

    def copy(path: Path) -> int:
        with open_archive(path, read_only=True) as one, open_archive(url) as other:
            return one.copy_into(other).total

    found = at_once([lambda path=path: copy(path) for path in paths])
    assert all(isinstance(total, int) and total > 0 for total in found), found
    with open_archive(paths[0]) as one, open_archive(paths[1]) as two, open_archive(url) as both:
        assert both.summary().programs == one.summary().programs
        assert both.summary().evaluations == one.summary().evaluations + two.summary().evaluations


def test_a_server_is_not_copied_into_itself(url: str):
    with open_archive(url) as one, open_archive(url) as other, pytest.raises(UsageError, match="the same one"):
        one.copy_into(other)


# ---- commands on a URL ---------------------------------------------------------------------------------------------


def test_inspect_and_export_read_a_server_as_they_read_a_file(tmp_path: Path, url: str, capsys, monkeypatch):
    file = awkward(tmp_path / "a.sqlite")
    assert main(["archive", "copy", str(file), url]) == 0
    capsys.readouterr()
    for arguments in (["--json"], ["--task", TASK.id], ["--task", TASK.id, "--json"], []):
        said = []
        for place in (str(file), url):
            assert main(["inspect", place, *arguments]) == 0, capsys.readouterr().err
            out = capsys.readouterr()
            assert PASSWORD not in out.out + out.err
            said.append(out.out.replace(place, "PLACE").replace(url.replace(PASSWORD, "***"), "PLACE"))
        if "--json" in arguments:
            assert json.loads(said[0]) == json.loads(said[1])
    written = []
    for name, place in (("file", str(file)), ("server", url)):
        out = tmp_path / name
        assert main(["export", place, "--out", str(out), "--format", "kernelbook"]) == 0, capsys.readouterr().err
        written.append({p.name: p.read_bytes() for p in sorted(out.rglob("*")) if p.suffix in (".jsonl", ".parquet")})
        assert not any(PASSWORD.encode() in p.read_bytes() for p in out.rglob("*") if p.is_file())
    assert written[0] == written[1]
    with (
        open_archive(url, read_only=True) as archive,
        pytest.raises(PallasEvoError, match=r"only be read|reading only"),
    ):
        archive.add_tasks([TASK])
