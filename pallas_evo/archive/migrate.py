"""The schema's versions: stamping a new archive, refusing one of another version, upgrading an older one.

Alembic is imported where it is needed only: opening an archive compares one row.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from pallas_evo.archive.engine import WRITE, file_engine, server_engine
from pallas_evo.archive.failures import corrupt, translated
from pallas_evo.archive.location import Location, check_place, locate, put_in_place, read_version
from pallas_evo.archive.patience import patient
from pallas_evo.archive.schema import SCHEMA_REVISION, metadata
from pallas_evo.errors import ArchiveError

MIGRATIONS = Path(__file__).parent / "migrations"

_ADVISORY_LOCK = 0x70616C6C61735F65  # "pallas_e": any fixed number that nobody else on the server uses

_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_OURS = {"tasks", "programs", "evaluations"}  # in every schema


def check_version(tables: set[str], revision: str | None, name: str) -> None:
    """Refuse what is not an archive of this schema.

    Raises:
        ArchiveError: no archive, an older one (with the command that upgrades it), or a newer one.
    """
    if not tables >= _OURS or revision is None:
        raise corrupt(name, "a database that is not one")
    if revision == SCHEMA_REVISION:
        return
    if is_older(revision):
        raise ArchiveError(
            f"{name}: expected schema {SCHEMA_REVISION}, came the older {revision}. "
            f"Run: pallas_evo archive upgrade {name}"
        )
    raise ArchiveError(
        f"{name}: expected schema {SCHEMA_REVISION}, came {revision}: it was made by a newer pallas_evo. "
        "Run: pip install --upgrade pallas_evo"
    )


def is_older(revision: str) -> bool:
    """Whether an archive of that revision can be upgraded to ours. Revisions are four digits and only rise."""
    return revision.isdigit() and int(revision) < int(SCHEMA_REVISION)


def create_tables(connection: Connection) -> None:
    """All tables of the newest schema, and its stamp, in the connection's transaction."""
    metadata.create_all(connection)
    _version.create(connection, checkfirst=True)
    connection.execute(insert(_version).values(version_num=SCHEMA_REVISION))


def create_file(location: Location) -> None:
    """Make a new SQLite archive, whole or not at all."""

    def build(new: Path) -> None:
        engine = file_engine(str(new))
        try:
            with engine.execution_options(**{WRITE: True}).begin() as connection:
                create_tables(connection)
        finally:
            engine.dispose()  # the last connection moves the log into the file and removes it

    put_in_place(location, build)


def prepare_server(connection: Connection, name: str, *, create: bool) -> None:
    """Find the archive in a server's database or make it; two that make it at once wait for each other."""
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise ArchiveError(
                f"{name}: expected a database in UTF8, came one in {encoding}, which cannot hold every program. "
                "Make another: createdb --encoding=UTF8 --template=template0 NAME"
            )
    if create and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    tables, revision = server_version(connection)
    if not tables & (set(metadata.tables) | {_version.name}):
        if not create:
            raise ArchiveError(
                f"{name}: expected an archive, came a database without one. Run: python -m pallas_evo.seed "
                f"--archive {name}"
            )
        create_tables(connection)
        return
    check_version(tables, revision, name)


def server_version(connection: Connection) -> tuple[set[str], str | None]:
    """The tables of a database and the schema revision that it says."""
    tables = set(inspect(connection).get_table_names())
    revision = connection.scalar(select(_version.c.version_num)) if _version.name in tables else None
    return tables, revision


def upgrade(url_or_path: str) -> tuple[str, str]:
    """Bring an older archive to this schema, in one transaction. Returns the revisions before and after.

    Raises:
        ArchiveError: it is missing, damaged, no archive, or made by a newer pallas_evo.
    """
    location = locate(url_or_path)
    if location.path is not None:
        if not check_place(location, writing=True):
            raise ArchiveError(f"{location.name}: expected an archive, and nothing is there. Check the path.")
        tables, revision = read_version(location)
    elif location.in_memory:
        raise ArchiveError(f"{location.name}: a database in memory has always the newest schema.")
    else:
        engine = server_engine(location, read_only=True)

        def look() -> tuple[set[str], str | None]:
            with engine.connect() as connection:
                return server_version(connection)

        try:
            with translated(location.name):
                tables, revision = patient(location.name, look, opened=False)
        finally:
            engine.dispose()
    if revision is None or not is_older(revision):
        check_version(tables, revision, location.name)
        return SCHEMA_REVISION, SCHEMA_REVISION
    if not tables >= _OURS:
        raise corrupt(location.name, "a database that is not one")
    _upgrade(location)
    return revision, SCHEMA_REVISION


def _upgrade(location: Location) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    # Making a table anew drops the old one, which foreign keys would forbid: they are checked at the end instead.
    engine = file_engine(str(location.path), foreign_keys=False) if location.path else server_engine(location)

    def bring_up() -> None:
        with engine.execution_options(**{WRITE: True}).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            if location.path and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                raise corrupt(location.name, "one with rows whose task, program or run is missing")

    try:
        with translated(location.name):
            patient(location.name, bring_up)  # a writer at work and the new tables' keys may be in each other's way
    finally:
        engine.dispose()
