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
    from pallas_evo.config import Config
    from pallas_evo.pool import Pool, Server
    from pallas_evo.pool.ray_pool import RayPool


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
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="Judge on a Ray cluster: auto, or its HOST:PORT.")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --ray: the GPU's type, as Ray names it (A100, H100).")
    ] = None,
    actors: Annotated[
        str, typer.Option(metavar="N", help="With --ray: at most N actors; auto is one a GPU, or a node without any.")
    ] = "auto",
    status: Annotated[bool, typer.Option("--status", help="Ask a running service how it is, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout: once ready, or the status.")] = (
        False
    ),
) -> None:
    """Keep judges warm for `evaluate` and for ShinkaEvolve's callback, in the foreground until SIGTERM or Ctrl-C.

    Exit codes: 0 ended by a signal, 2 a wrong option, a service that is there already or no Ray cluster to be reached,
    3 no judge can start.

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
    from pallas_evo.pool.server import Server

    if ray is None and (accelerator is not None or actors != "auto"):
        raise UsageError("--accelerator and --actors are for a Ray cluster: give its address by --ray, or --ray auto.")
    settings = load_config(Path(config) if config else None, overrides or ())
    count = None if judges == "auto" else _count(judges, "--judges")
    most = None if actors == "auto" else _count(actors, "--actors")
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # until the server takes signals itself
    claim = None
    try:
        claim = location.Claim(path)
        pool = (
            _on_this_machine(settings, target, count)
            if ray is None
            else _on_ray(ray, settings, target, accelerator, most, count)
        )
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


def _on_this_machine(settings: Config, target: Target, judges: int | None) -> Pool:
    from pallas_evo.pool.pool import Pool

    return Pool(settings, target.value, judges=judges, say=log)


def _on_ray(
    address: str, settings: Config, target: Target, accelerator: str | None, actors: int | None, judges: int | None
) -> RayPool:
    from pallas_evo.pool.ray_cluster import Cluster
    from pallas_evo.pool.ray_pool import RayPool

    cluster = Cluster(address)
    try:
        return RayPool(cluster, settings, target.value, accelerator=accelerator, actors=actors, judges=judges, say=log)
    except BaseException:
        cluster.close()
        raise


def _announce(pool: Pool | RayPool, server: Server, as_json: bool, failed: list[PallasEvoError]) -> None:
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
    if "actors" in status:
        judges = sum(actor["judges"] for actor in status["actors"])
        where = f"{len(status['actors'])} {status['accelerator'] or pool.target} actors of the Ray cluster"
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
    for actor in found.get("actors", ()):
        used = "-" if actor["utilisation"] is None else f"{100 * actor['utilisation']:.0f} %"
        load = "" if actor["gpu_percent"] is None else f", GPU at {actor['gpu_percent']} %"
        said.append(
            f"  actor {actor['place']}  {actor['state']}  {actor['running']} of {actor['judges']} judges busy, "
            f"{used} over its life{load}  {actor['judged']} judged  {actor['lost']} lost  "
            f"{actor['device'] or ''}  {actor['why'] or ''}".rstrip()
        )
    for judge in found["judges"]:
        said.append(
            f"  process {judge['pid'] or '-'}  {judge['state']}  {judge['judged']} judged  "
            f"{judge['rss_bytes'] >> 20} MB  {judge['gpu'] or ''}".rstrip()
        )
    return said


def log(line: str) -> None:
    """One line on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _count(text: str, option: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise UsageError(f"{option} {text}: expected auto, or a number from 1 to 1024.")
    return int(text)
