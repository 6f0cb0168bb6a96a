"""`pallas_evo serve`: judges that are kept warm behind a socket, until a signal ends them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas_evo.cli.evaluate import Target
from pallas_evo.errors import PallasEvoError, UsageError

if TYPE_CHECKING:
    from pallas_evo.pool import Pool, Server


def serve(
    socket: Annotated[
        str | None, typer.Option("--socket", metavar="PATH", help="Where to listen; by default where commands look.")
    ] = None,
    judges: Annotated[str, typer.Option(metavar="N", help="How many judge at once, or auto.")] = "auto",
    target: Annotated[Target, typer.Option(help="Judge on the GPUs, in the executor, or on what there is.")] = (
        Target.auto
    ),
    config: Annotated[str | None, typer.Option(metavar="FILE", help="YAML: what judges are prepared for.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="One value, over the file's. May be repeated.")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Ask a running service how it is, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout: once ready, or the status.")] = (
        False
    ),
) -> None:
    """Keep judges warm for `evaluate` and for ShinkaEvolve's callback, in the foreground until SIGTERM or Ctrl-C.

    Exit codes: 0 ended by a signal, 2 a wrong option or a service that is there already, 3 no judge can start.

    Example: pallas_evo serve --judges 4
    """
    from pallas_evo.pool import client, location

    if status:
        found = client.status(str(Path(socket).absolute()) if socket else "auto")
        sys.stdout.write(json.dumps(found) + "\n" if as_json else "\n".join(lines(found)) + "\n")
        return
    path = Path(socket).absolute() if socket else location.default_socket()
    if path is None:
        raise UsageError(f"{location.VARIABLE} is empty, so no service is wanted here. Give its path by --socket.")
    from pallas_evo.config import load_config
    from pallas_evo.pool.pool import Pool
    from pallas_evo.pool.server import Server

    settings = load_config(Path(config) if config else None, overrides or ())
    count = None if judges == "auto" else _count(judges)
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # until the server takes signals itself
    claim = None
    try:
        claim = location.Claim(path)
        pool = Pool(settings, target.value, judges=count, say=log)
        try:
            server = Server(pool, claim, say=log)
            failed: list[PallasEvoError] = []
            announcing = threading.Thread(target=_announce, args=(pool, server, as_json, failed), daemon=True)
            announcing.start()
            server.serve()
            if failed:
                raise failed[0]
            log("ending")
        finally:
            pool.close()
    finally:
        if claim is not None:
            claim.release()
        signal.signal(signal.SIGTERM, before)


def _announce(pool: Pool, server: Server, as_json: bool, failed: list[PallasEvoError]) -> None:
    """Say when the first judge is ready; where none can start, end the service."""
    began = time.perf_counter()
    try:
        pool.wait_ready()
    except PallasEvoError as error:
        failed.append(error)
        server.stop()
        return
    status = pool.status()
    if not status["ready"]:
        return  # the service ended before
    judges, where = len(status["judges"]), ", ".join(pool.gpus) or "the CPU"
    log(f"{judges} judges on {where} at {server.path}, the first ready after {time.perf_counter() - began:.1f} s")
    if as_json:
        ready = {"socket": str(server.path), "pid": os.getpid(), "target": pool.target, "gpus": list(pool.gpus)}
        sys.stdout.write(json.dumps({**ready, "judges": judges}) + "\n")
        sys.stdout.flush()


def lines(found: dict[str, Any]) -> list[str]:
    """A status for people."""
    where = ", ".join(found["gpus"]) or "the CPU"
    said = [
        f"service   process {found['pid']} at {found['socket']}, version {found['version']}, on {where}",
        f"up        {found['uptime_s']:.0f} s",
        f"judges    {len(found['judges'])}, {found['ready']} ready, {found['busy']} busy",
        f"queued    {found['queued']}",
        f"judged    {found['judged']}, {found['failures']} failures, {found['retries']} retries, "
        f"{found['dropped']} dropped by their clients",
    ]
    for judge in found["judges"]:
        said.append(
            f"  process {judge['pid'] or '-'}  {judge['state']}  {judge['judged']} judged  "
            f"{judge['rss_bytes'] >> 20} MB  {judge['gpu'] or ''}".rstrip()
        )
    return said


def log(line: str) -> None:
    """One line on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise UsageError(f"--judges {text}: expected auto, or a number from 1 to 1024.")
    return int(text)
