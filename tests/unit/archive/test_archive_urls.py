"""URLs that are refused before any server is asked: in one sentence that holds no part of a password."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pallas_evo.archive.location import locate
from pallas_evo.errors import ArchiveError

SECRETS = ("hunter2", "hunt", "er2")
UNREADABLE = [
    "postgresql+psycopg://me:hunter2@host:port/db",
    "postgresql+psycopg://me:hunter2@host:55x/db",
    "postgresql://me:hunt@er2@host/db",
    "postgresql+psycopg:///me:hunter2@host:x/db:y@:z",
    "no such database://me:hunter2@host/db",
    "postgresql:me:hunter2@host://db",
]


@pytest.mark.parametrize("url", UNREADABLE)
def test_what_is_no_url_is_refused_without_its_password(url: str):
    with pytest.raises(ArchiveError, match=r"expected a SQLAlchemy URL.*%40") as refusal:
        locate(url)
    assert refusal.value.exit_code == 2
    assert len(str(refusal.value).splitlines()) == 1
    shown = f"{refusal.value} {refusal.value.__cause__} {refusal.value.__context__}"
    assert not any(secret in shown for secret in SECRETS), shown


@pytest.mark.parametrize("option", ["password", "sslpassword", "passwrod", "options"])
def test_options_of_a_url_are_not_told(option: str):
    name = locate(f"postgresql+psycopg://me@host/db?{option}=hunter2&sslmode=require").name
    assert "hunter2" not in name
    assert "sslmode=require" in name


def test_the_driver_may_be_left_out():
    assert locate("postgresql://me@host/db").url.drivername == "postgresql+psycopg"
    assert locate("postgres://me@host/db").url.drivername == "postgresql+psycopg"


WITHOUT = """
import sys
sys.modules["psycopg"] = None
from pallas_evo.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", [["inspect"], ["archive", "upgrade"], ["archive", "copy", "URL"]])
def test_without_the_driver_the_extra_is_named(command: list[str], tmp_path):
    url = "postgresql+psycopg://me:hunter2@127.0.0.1:1/db"
    arguments = [url if word == "URL" else word for word in command]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments, url], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "expected the driver psycopg" in done.stderr
    assert "pip install 'pallas-evo[postgres]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "hunter2" not in done.stderr
