"""SQLite files: refused and left alone when not sound, read without writing, never lost to a kill or a race."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from archive_samples import CHILD, PARENT, TASK, evaluation
from sqlalchemy import inspect
from sqlalchemy.exc import OperationalError

from pallas_evo.archive import DEFAULT_ARCHIVE, SCHEMA_REVISION, open_archive, sha256_of_text, upgrade
from pallas_evo.archive.failures import translated
from pallas_evo.errors import ArchiveError, PallasEvoError

HERE = Path(__file__).parent


def contents(folder: Path) -> dict[str, str]:
    """Every file under the folder with the hash of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def filled(path: Path) -> Path:
    """A small sound archive."""
    with open_archive(path) as archive:
        archive.add_tasks([TASK])
        archive.add_program(TASK.id, PARENT, origin="seed")
        archive.add_evaluation((TASK.id, sha256_of_text(PARENT)), evaluation())
    return path


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def _text(path: Path) -> None:
    path.write_text("task,score\nL1/relu,1.0\n")


def _truncated(path: Path) -> None:
    filled(path)
    os.truncate(path, path.stat().st_size // 2)


def _header_only(path: Path) -> None:
    filled(path)
    os.truncate(path, 50)


def _overwritten(path: Path) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(3 * 4096))


def _other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE programs (id TEXT)")
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
    connection.close()


def _no_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("VACUUM")
    connection.close()


UNSOUND: list[Callable[[Path], None]] = [
    _garbage,
    _text,
    Path.touch,
    _truncated,
    _header_only,
    _overwritten,
    _other_database,
    _no_tables,
]


@pytest.mark.parametrize("read_only", [False, True], ids=["write", "read"])
@pytest.mark.parametrize("make", UNSOUND, ids=lambda make: make.__name__)
def test_an_unsound_file_is_refused_by_name_and_left_as_it_was(tmp_path: Path, make, read_only):
    path = tmp_path / "unsound.sqlite"
    make(path)
    before = contents(tmp_path)
    with pytest.raises(ArchiveError, match=r"unsound\.sqlite: expected a pallas_evo archive.*left as it was"):
        open_archive(path, read_only=read_only)
    assert contents(tmp_path) == before
    with pytest.raises(ArchiveError, match=r"unsound\.sqlite"):
        upgrade(str(path))
    assert contents(tmp_path) == before


def test_places_where_no_archive_can_be(tmp_path: Path, monkeypatch):
    (tmp_path / "folder.sqlite").mkdir()
    cases = {
        tmp_path / "folder.sqlite": "came a folder",
        tmp_path / "missing" / "a.sqlite": "mkdir -p",
        "": "came nothing",
        "nosuch://host/database": "SQLAlchemy",
        "sqlite+aiosqlite:///a.sqlite": "plain path",
        "sqlite:///a.sqlite?mode=ro": "plain path",
    }
    for place, said in cases.items():
        with pytest.raises(ArchiveError, match=said):
            open_archive(place)
    with pytest.raises(ArchiveError, match="nothing is there"):
        open_archive(tmp_path / "none.sqlite", create=False)
    with pytest.raises(ArchiveError, match="nothing is there"):
        open_archive(tmp_path / "none.sqlite", read_only=True)
    assert contents(tmp_path) == {}
    locked = {tmp_path}
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path) in locked and mode == os.W_OK))
    with pytest.raises(ArchiveError, match="cannot be written"):
        open_archive(tmp_path / "a.sqlite")


def test_a_password_is_in_no_message():
    with pytest.raises(ArchiveError) as refusal:
        open_archive("postgresql+psycopg://me:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(refusal.value)


def test_the_default_makes_its_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_archive(DEFAULT_ARCHIVE).close()
    assert list(contents(tmp_path)) == [DEFAULT_ARCHIVE]


def test_path_and_url_are_the_same_archive(tmp_path: Path):
    path = filled(tmp_path / "with ? # % and space.sqlite")
    with open_archive(path, read_only=True) as one:
        assert one.summary().programs == 1
    path = filled(tmp_path / "a.sqlite")
    with open_archive(f"sqlite:///{path}") as other:
        assert other.summary().programs == 1


def test_connections_are_set_up(tmp_path: Path):
    with open_archive(tmp_path / "a.sqlite") as archive, archive._writing() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous")
        }
        assert found == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2}
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() >= 30_000


def test_foreign_keys_are_enforced(tmp_path: Path):
    with open_archive(filled(tmp_path / "a.sqlite")) as archive:
        for table in ("programs", "tasks", "environments", "evaluations"):
            with pytest.raises(PallasEvoError, match="does not hold"), archive._writing() as connection:
                connection.exec_driver_sql(f"DELETE FROM {table}")
        assert archive.summary().evaluations == 1


@pytest.mark.parametrize("revision", ["0000", "0001"])
def test_an_older_schema_is_refused_with_the_command(tmp_path: Path, revision):
    path = filled(tmp_path / "old.sqlite")
    _stamp(path, revision)
    before = contents(tmp_path)
    for read_only in (False, True):
        with pytest.raises(ArchiveError, match=r"Run: pallas_evo archive upgrade .*old\.sqlite"):
            open_archive(path, read_only=read_only)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("revision", ["9999", "deadbeef"])
def test_a_newer_schema_is_refused(tmp_path: Path, revision):
    path = filled(tmp_path / "new.sqlite")
    _stamp(path, revision)
    before = contents(tmp_path)
    for use in (open_archive, lambda p: open_archive(p, read_only=True), lambda p: upgrade(str(p))):
        with pytest.raises(ArchiveError, match=r"made by a newer pallas_evo.*pip install --upgrade"):
            use(path)
    assert contents(tmp_path) == before


def _stamp(path: Path, revision: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.close()


@pytest.mark.parametrize("asset", sorted((HERE / "assets").glob("schema_*.sqlite")), ids=lambda path: path.stem)
def test_every_released_schema_is_upgraded_and_loses_nothing(tmp_path: Path, asset: Path):
    path = Path(shutil.copy(asset, tmp_path / "old.sqlite"))
    came = asset.stem.removeprefix("schema_")
    with pytest.raises(ArchiveError, match="archive upgrade"):
        open_archive(path)
    assert upgrade(str(path)) == (came, SCHEMA_REVISION)
    assert upgrade(str(path)) == (SCHEMA_REVISION, SCHEMA_REVISION)
    with open_archive(path) as archive:
        parent, child = archive.programs(TASK.id)
        assert archive.tasks() == (TASK,)
        assert (parent.source, child.source, child.parent_sha256) == (PARENT, CHILD, parent.sha256)
        accepted = archive.evaluations(program=parent)[0]
        assert archive.evaluation(accepted.id) == evaluation(texts={}, texts_size=None)  # kept from schema 0003 on
        assert archive.evaluation_config(accepted.id) == "judging: {}\n"
        assert [p.generation for p in archive.programs(run_id="0" * 32)] == [1]
        archive.add_verification(parent, "numerics", passed=True, environment={})


def test_migrations_and_tables_agree(tmp_path: Path):
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from pallas_evo.archive.location import locate
    from pallas_evo.archive.migrate import MIGRATIONS, _upgrade
    from pallas_evo.archive.schema import metadata

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [SCHEMA_REVISION]
    assert (HERE / "assets" / "schema_0001.sqlite").exists()
    upgraded = Path(shutil.copy(HERE / "assets" / "schema_0001.sqlite", tmp_path / "upgraded.sqlite"))
    upgrade(str(upgraded))
    # From nothing, as the first user of each schema had it, from the oldest file, and made at once.
    from_nothing = tmp_path / "from_nothing.sqlite"
    _upgrade(locate(from_nothing))
    made = (filled(tmp_path / "new.sqlite"), upgraded, from_nothing)
    for path in made:
        with open_archive(path) as archive, archive._reading() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []
    schemas = []
    for path in made:
        with open_archive(path) as archive, archive._reading() as connection:
            found = inspect(connection)
            schemas.append(
                {
                    table: (sorted(map(repr, found.get_foreign_keys(table))), repr(found.get_pk_constraint(table)))
                    for table in metadata.tables
                }
            )
    # Keys with their names, some of which the comparison above leaves out.
    assert schemas[0] == schemas[1] == schemas[2]


def test_a_failed_upgrade_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = Path(shutil.copy(HERE / "assets" / "schema_0001.sqlite", tmp_path / "old.sqlite"))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM tasks")
    connection.commit()
    connection.close()
    before = sqlite3.connect(path).execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    with pytest.raises(ArchiveError, match="missing"):
        upgrade(str(path))
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == before


# ---- reading without writing ---------------------------------------------------------------------------------------


def test_reading_writes_nothing(tmp_path: Path):
    path = filled(tmp_path / "a.sqlite")
    before = contents(tmp_path)
    with open_archive(path, read_only=True) as archive:
        assert archive.summary().evaluations == 1
        assert contents(tmp_path) == before
        with pytest.raises(ArchiveError, match="reading only"):
            archive.add_tasks([TASK])
    assert contents(tmp_path) == before


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from archive_samples import CHILD, PARENT, TASK, evaluation
from pallas_evo.archive import open_archive
archive = open_archive(sys.argv[1])
archive.add_tasks([TASK])
parent = archive.add_program(TASK.id, PARENT, origin="seed")
archive.add_evaluation(parent, evaluation())
with archive.batch():
    archive.add_program(TASK.id, CHILD, origin="mutation", parent_sha256=parent.sha256)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(HERE)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("without_index", [False, True], ids=["log and index", "log alone"])
def test_a_log_left_by_a_kill_is_read_and_left(tmp_path: Path, without_index):
    path = tmp_path / "a.sqlite"
    killed(path)
    assert (tmp_path / "a.sqlite-wal").stat().st_size > 0
    index = tmp_path / "a.sqlite-shm"
    if without_index:
        index.unlink()
    before = contents(tmp_path)
    with open_archive(path, read_only=True) as archive:
        summary = archive.summary()
        assert (summary.programs, summary.evaluations, summary.timing_samples) == (1, 1, 3)
    after = contents(tmp_path)
    if not without_index:  # the index holds no data; SQLite makes it anew after a kill
        before.pop(index.name), after.pop(index.name)
    assert after == before


def test_after_a_kill_the_next_run_completes(tmp_path: Path):
    path = tmp_path / "a.sqlite"
    killed(path)
    with open_archive(path) as archive:
        assert archive.summary().evaluations == 1  # what was handed on is there
        assert len(archive.programs()) == 1  # what was in the middle is not
        parent = archive.add_program(TASK.id, PARENT, origin="seed")
        archive.add_program(TASK.id, CHILD, origin="mutation", parent_sha256=parent.sha256)
        assert archive.summary().programs == 2
    assert list(contents(tmp_path)) == ["a.sqlite"]


def test_a_reader_sees_a_writer_that_comes_later(tmp_path: Path):
    path = filled(tmp_path / "a.sqlite")
    with open_archive(path, read_only=True) as reader:
        assert reader.summary().programs == 1
        with open_archive(path) as writer:
            writer.add_program(TASK.id, CHILD, origin="mutation")
            assert reader.summary().programs == 2


# ---- many at once --------------------------------------------------------------------------------------------------

SEEDER = """
import sys
sys.path.insert(0, sys.argv[2])
from archive_samples import TASK, evaluation
from pallas_evo.archive import open_archive
me = sys.argv[3]
sys.stdin.readline()
with open_archive(sys.argv[1]) as archive:
    archive.add_tasks([TASK])
    for index in range(15):
        archive.add_program(TASK.id, f"SHARED = {index}\\n", origin="seed")
        source = f"OWN = '{me}', {index}\\n"
        program = archive.add_program(TASK.id, source, origin="mutation")
        archive.add_evaluation(program, evaluation(source, environment={"shared": index % 3}))
"""


def test_many_that_create_and_fill_at_once_lose_nothing(tmp_path: Path):
    path, writers = tmp_path / "a.sqlite", 4
    start = [sys.executable, "-c", SEEDER, str(path), str(HERE)]
    children = [
        subprocess.Popen([*start, str(i)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(writers)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        _, said = child.communicate(timeout=120)
        assert child.returncode == 0, said
    with open_archive(path) as archive:
        summary = archive.summary()
        assert (summary.programs, summary.evaluations) == (15 + writers * 15, writers * 15)
        assert summary.timing_samples == writers * 15 * 3
    assert list(contents(tmp_path)) == ["a.sqlite"]


CREATED_AND_KILLED = """
import os, signal, sys
from pallas_evo.archive import migrate, open_archive
step = sys.argv[2]
if step == "build":
    real = migrate.create_tables
    def create_tables(connection):
        real(connection)
        os.kill(os.getpid(), signal.SIGKILL)
    migrate.create_tables = create_tables
else:
    os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
open_archive(sys.argv[1])
"""


@pytest.mark.parametrize("step", ["build", "link"])
def test_a_kill_while_it_is_created_leaves_no_half_archive(tmp_path: Path, step):
    path = tmp_path / "a.sqlite"
    done = subprocess.run([sys.executable, "-c", CREATED_AND_KILLED, str(path), step], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not path.exists()
    filled(path)
    for left in tmp_path.glob(".a.sqlite.new-*"):
        os.utime(left, (0, 0))
    path.rename(tmp_path / "b.sqlite")
    filled(path)  # sweeps what was left long ago
    assert sorted(contents(tmp_path)) == ["a.sqlite", "b.sqlite"]


def test_without_hard_links_it_is_created_all_the_same(tmp_path: Path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    filled(tmp_path / "a.sqlite")
    assert list(contents(tmp_path)) == ["a.sqlite"]


# ---- failures of the machine ---------------------------------------------------------------------------------------


def test_a_full_disk_is_our_failure_and_loses_nothing(tmp_path: Path):
    path = filled(tmp_path / "a.sqlite")

    def fill(archive) -> None:
        with archive.batch(), archive._writing() as inner:
            inner.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite raises it to what is in use
            for index in range(2000):
                archive.add_program(TASK.id, f"N = {index}\n" + "#" * 2000, origin="mutation")

    with open_archive(path) as archive:
        with pytest.raises(PallasEvoError, match="disk is full") as failure:
            fill(archive)
        assert failure.value.exit_code == 3
        assert not isinstance(failure.value, ArchiveError)
    with open_archive(path) as archive:
        assert archive.summary().programs == 1


@pytest.mark.parametrize(
    ("said", "kind", "exit_code"),
    [
        ("database disk image is malformed", ArchiveError, 2),
        ("file is not a database", ArchiveError, 2),
        ("attempt to write a readonly database", ArchiveError, 2),
        ("unable to open database file", ArchiveError, 2),
        ("database or disk is full", PallasEvoError, 3),
        ("database is locked", PallasEvoError, 3),
        ("disk I/O error", PallasEvoError, 3),
    ],
)
def test_what_sqlite_says_becomes_ours(said, kind, exit_code):
    with pytest.raises(kind, match=r"^a\.sqlite: ") as failure, translated("a.sqlite"):
        raise OperationalError("", {}, sqlite3.OperationalError(said))
    assert failure.value.exit_code == exit_code
