"""A PostgreSQL server of the tests' own: its data in a temporary folder, on a free loopback port, with passwords.

Started as another user where the tests run as root, whom the server refuses.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from sqlalchemy import URL, create_engine

ADMIN = "postgres"
PASSWORD = "s3cret-Wort"
"""Of every user; no message may hold it."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "fsync": "off",  # a test's server crashes and its machine does not, so that nothing waits for a disk
    "max_connections": "60",
    "deadlock_timeout": "100ms",  # or a test of deadlocks waits a second for each
    "logging_collector": "off",
}


def binaries() -> Path | None:
    """The folder of the newest server's programs, or None. Debian keeps them off the path."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")]
    on_path = shutil.which("pg_ctl")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    found = [folder for folder in found if (folder / "initdb").exists()]
    return max(found, key=lambda folder: [int(part) for part in folder.parts if part.isdigit()], default=None)


def owner() -> str | None:
    """Whom the server runs as where we are root, or None where it runs as ourselves."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in (ADMIN, "nobody") if name in names)


class Server:
    """One server; `folder` is removed with it."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = owner()
        self.folder = Path(tempfile.mkdtemp(prefix="pallas-evo-pg-"))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._databases = 0
        self.port = 0
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        if self._user is not None:
            shutil.chown(secret, self._user)
        self._run(
            *("initdb", "--no-sync", "-U", ADMIN, "--pwfile", str(secret), "--encoding=UTF8", "--locale=C"),
            *("--auth-host=scram-sha-256", "--auth-local=scram-sha-256", "-D", str(self.folder / "data")),
        )

    def _run(self, program: str, *arguments: str) -> None:
        as_owner = ["runuser", "-u", self._user, "--"] if self._user is not None else []
        said = self.folder / "said.txt"  # a file, because the server would keep a pipe open
        with said.open("w") as out:
            done = subprocess.run(
                [*as_owner, str(self._programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                timeout=120,
                check=False,
            )
        log = self.folder / "log"
        assert done.returncode == 0, said.read_text() + (log.read_text()[-2000:] if log.exists() else "")

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "60", *arguments)

    def start(self) -> None:
        """Start it, on another port where somebody took the first one in between."""
        for attempt in range(3):
            if not self.port:
                with socket.socket() as one:
                    one.bind(("127.0.0.1", 0))
                    self.port = one.getsockname()[1]
            options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
            try:
                self._control(
                    "-l", str(self.folder / "log"), "-o", f"-p {self.port} -k {self.folder} {options}", "start"
                )
                return
            except AssertionError:
                if attempt == 2:
                    raise
                self.port = 0

    def stop(self, mode: str = "fast") -> None:
        """`fast` rolls back and ends; `immediate` is what a crash leaves."""
        self._control("-m", mode, "stop")

    def restart(self, mode: str) -> None:
        """Stop it so, and start it again on the same port."""
        self._control("-m", mode, "restart")

    def close(self) -> None:
        """Stop it if it runs, and remove everything."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, *, user: str = ADMIN, password: str = PASSWORD, port: int | None = None) -> str:
        """What is given to --archive."""
        parts = {"username": user, "password": password, "host": "127.0.0.1", "port": port or self.port}
        return URL.create("postgresql+psycopg", database=database, **parts).render_as_string(hide_password=False)

    def sql(self, *statements: str, database: str = ADMIN) -> list[tuple[object, ...]]:
        """Do statements outside transactions; the rows of the last."""
        engine = create_engine(self.url(database), isolation_level="AUTOCOMMIT")
        rows: list[tuple[object, ...]] = []
        with engine.connect() as connection:
            for statement in statements:
                found = connection.exec_driver_sql(statement)
                rows = [tuple(row) for row in found] if found.returns_rows else []
        engine.dispose()
        return rows

    def database(self, options: str = "") -> str:
        """The name of a new empty database, sorted as people sort and not by bytes where the server can."""
        self._databases += 1
        name = f"archive_{self._databases}"
        if not options and int(str(self.sql("SHOW server_version_num")[0][0])) >= 150000:
            options = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        self.sql(f"CREATE DATABASE {name} {options}")
        return name
