"""One server for all tests of this folder, a new database for each. Without a server or a driver they are skipped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pg_server import Server, binaries

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "archive"))  # its samples and its suite of copies

PROGRAMS = binaries()
MISSING = (
    "no PostgreSQL server here: apt-get install postgresql"
    if PROGRAMS is None
    else "no psycopg here: pip install 'pallas-evo[postgres]'"
    if importlib.util.find_spec("psycopg") is None
    else ""
)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is marked, kept on one worker, and skipped where something is missing."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.postgres)
            item.add_marker(pytest.mark.xdist_group("postgres"))
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="session")
def running() -> Iterator[Server]:
    """The server, whatever a test did to it."""
    assert PROGRAMS is not None
    server = Server(PROGRAMS)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """The server, up again after the test."""
    yield running
    if not (running.folder / "data" / "postmaster.pid").exists():
        running.start()


@pytest.fixture
def url(server: Server) -> str:
    """A new empty database."""
    return server.url(server.database())
