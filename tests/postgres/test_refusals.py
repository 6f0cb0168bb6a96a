"""Servers, databases and users that will not do: each a sentence, exit code 2, no traceback, no password."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from archive_samples import TASK
from pg_server import PASSWORD, Server

from pallas_evo.archive import open_archive, upgrade
from pallas_evo.cli.app import main
from pallas_evo.errors import ArchiveError

WRONG = "wr0ng-Wort"


@pytest.fixture(scope="module")
def roles(running: Server) -> Server:
    running.sql(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    return running


CASES = {
    "wrong password": lambda s: (s.url("postgres", password=WRONG), "password authentication failed"),
    "no password": lambda s: (s.url("postgres").replace(f":{PASSWORD}@", "@"), "no password supplied"),
    "unknown user": lambda s: (s.url("postgres", user="nobody-here"), "password authentication failed"),
    "unknown database": lambda s: (s.url("not_there"), "does not exist"),
    "closed port": lambda s: (s.url("postgres", port=1), "Connection refused|connection to server"),
    "unknown host": lambda s: (s.url("postgres").replace("127.0.0.1", "no-such-host.invalid"), "no-such-host"),
    "unknown option": lambda s: (s.url("postgres") + "?pasword=" + WRONG, "pasword"),
    "password as an option": lambda s: (
        s.url("postgres").replace(f":{PASSWORD}@", "@") + "?password=" + WRONG,
        "password authentication failed",
    ),
    "no right to make tables": lambda s: (s.url(s.database(), user="guest"), "permission denied.*GRANT"),
    "another encoding": lambda s: (
        s.url(s.database("TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")),
        "in UTF8, came one in SQL_ASCII",
    ),
    "Latin-1": lambda s: (
        s.url(s.database("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")),
        "in UTF8, came one in LATIN1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_will_not_do_is_refused_in_a_sentence(tmp_path: Path, roles: Server, capsys, case):
    with open_archive(tmp_path / "a.sqlite") as archive:
        archive.add_tasks([TASK])
    url, words = CASES[case](roles)
    for arguments in (
        ["archive", "copy", str(tmp_path / "a.sqlite"), url],
        ["archive", "upgrade", url],
        ["inspect", url],
    ):
        code = main(arguments)
        said = capsys.readouterr()
        assert code == 2, said
        assert said.out == ""
        assert "Traceback" not in said.err
        assert len(said.err.strip().splitlines()) == 1, said.err
        assert PASSWORD not in said.err
        assert WRONG not in said.err
        if arguments[:2] == ["archive", "copy"]:
            assert re.search(words, said.err), said.err


def test_a_database_without_an_archive_is_not_read(url: str, capsys):
    assert main(["inspect", url]) == 2
    assert "came a database without one" in capsys.readouterr().err
    with pytest.raises(ArchiveError, match="that is not one"):
        upgrade(url)


def test_other_peoples_tables_are_left_alone(server: Server):
    name = server.database()
    server.sql("CREATE TABLE tasks (what text)", "INSERT INTO tasks VALUES ('theirs')", database=name)
    with pytest.raises(ArchiveError, match="expected a pallas_evo archive"):
        open_archive(server.url(name))
    assert server.sql("SELECT * FROM tasks", database=name) == [("theirs",)]


def test_a_newer_schema_is_refused(server: Server):
    name = server.database()
    open_archive(server.url(name)).close()
    server.sql("UPDATE alembic_version SET version_num = '9999'", database=name)
    with pytest.raises(ArchiveError, match="made by a newer pallas_evo"):
        open_archive(server.url(name))
