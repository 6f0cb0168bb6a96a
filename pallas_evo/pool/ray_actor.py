"""What runs in a Ray actor: a pool of judges on one GPU, or on a share of a node's cores. It does not import Ray.

Requests and records pass as bytes: nothing that an actor says is unpickled by the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pallas_evo import __version__
from pallas_evo.config import load_config
from pallas_evo.errors import PallasEvoError, WorkerFailed
from pallas_evo.pool import protocol
from pallas_evo.pool.pool import Pool
from pallas_evo.pool.surroundings import judge_environment
from pallas_evo.running import gpus


class Host:
    """One actor's judges, until `close` or until its process ends.

    Args:
        settings: `config_text`, `target`, `judges`, and for tests `factory`, which judges without a GPU.

    Raises:
        PallasEvoError: the configuration does not fit, or there is no GPU where one is wanted.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        leave_only_ours()
        factory = settings.get("factory")
        found = gpus.mine() if settings["target"] == "cuda" else ()
        if found and not found[0].isdecimal():
            os.environ["CUDA_VISIBLE_DEVICES"] = found[0]  # Ray counts as the driver does, CUDA may count by speed
        self._pool = Pool(
            load_config(Path("configuration"), (), text=settings["config_text"]),
            "cpu" if factory else settings["target"],
            judges=settings["judges"],
            _factory=factory,
        )

    def ready(self) -> bytes:
        """Wait for the first judge; then as `about`.

        Raises:
            WorkerFailed: none can start.
        """
        self._pool.wait_ready()
        return self.about()

    def judge(self, frame: bytes, left_s: float | None) -> bytes:
        """The record of a packed request, as JSON; of kind `unable` where no judge can start here (any more)."""
        try:
            request = protocol.unpack(frame[protocol.HEADER.size :])
            record = self._pool.submit_request(request, left_s).result()
        except (protocol.ProtocolError, PallasEvoError) as error:
            record = {"kind": "failure", "message": str(error)}
        if record["kind"] == "failure":
            with contextlib.suppress(WorkerFailed):
                self._pool.wait_ready(0.0)
                return json.dumps(record).encode()
            if all(judge["state"] == "failed" for judge in self._pool.status()["judges"]):
                record = {"kind": "unable", "message": record["message"]}
        return json.dumps(record).encode()

    def about(self) -> bytes:
        """Who and where this is, as JSON: what decides whether its times may stand beside others', and its pool's
        status."""
        return json.dumps({**identity(), **_gpu(), "pid": os.getpid(), "pool": self._pool.status()}).encode()

    def close(self) -> bytes:
        """End the judges and what they started."""
        self._pool.close()
        return b"{}"


def identity() -> dict[str, Any]:
    """What must be the same on all nodes, and this node's name."""
    try:
        jax = version("jax")
    except PackageNotFoundError:
        jax = None
    return {"node": socket.gethostname(), "version": __version__, "code": code(), "jax": jax}


@cache
def code() -> str:
    """A hash of the package's source files: names and contents, so that it is the same on every node."""
    root = Path(__file__).resolve().parents[1]
    said = hashlib.blake2b(digest_size=12)
    for path in sorted(root.rglob("*.py")):
        if "_data" not in path.parts:
            said.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return said.hexdigest()


def leave_only_ours() -> None:
    """Take from this process's environment whatever a judge does not need: a raylet's may hold its starter's keys."""
    kept = judge_environment()
    for name in list(os.environ):
        if name not in kept and not name.startswith("RAY_"):
            del os.environ[name]
    os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the actor's cores; judges limit themselves


def _gpu() -> dict[str, Any]:
    """This actor's GPU by UUID, its name and its load in percent; None where NVML does not tell."""
    told: dict[str, Any] = {"gpu": None, "device": None, "gpu_percent": None}
    found = gpus.mine()
    if not found:
        return told
    told["gpu"] = found[0]
    with contextlib.suppress(Exception):  # NVML's own errors are of many kinds, and this is for the eye only
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(found[0])
        name = pynvml.nvmlDeviceGetName(handle)
        told["device"] = name.decode() if isinstance(name, bytes) else name
        told["gpu_percent"] = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return told
