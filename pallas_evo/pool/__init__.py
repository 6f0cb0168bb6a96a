"""Judges that are kept warm: a pool of judge processes, a service that puts it behind a Unix socket, and its client.

Pool    N judge processes on this machine's GPUs or its CPU, each judging one candidate after another
Server  a pool behind a socket (`pallas_evo serve`)
ask     one candidate's record from the service that runs here, or None where one has to do without

    evaluate, callback  --socket-->  Server  ->  Pool  --pipes-->  judge processes  ->  their jailed workers

Importing this imports neither jax nor numpy: each name is looked up when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pallas_evo.pool.client import ask as ask
    from pallas_evo.pool.pool import Pool as Pool
    from pallas_evo.pool.server import Server as Server

__all__ = ["Pool", "Server", "ask"]

_HOMES = {"Pool": "pool", "Server": "server", "ask": "client"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pallas_evo.pool' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pallas_evo.pool.{_HOMES[name]}"), name)
