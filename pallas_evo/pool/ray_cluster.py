"""The one module that knows Ray: reaching a cluster, what its nodes have, actors on them. Ray is imported on demand."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import Any

from pallas_evo.errors import DeviceUnavailable, PallasEvoError, UsageError
from pallas_evo.pool.ray_actor import Host
from pallas_evo.pool.surroundings import judge_environment

NAMESPACE = "pallas_evo"
REACH_S = 5.0
JOIN_S = 30.0  # an address that answers and is no cluster would keep Ray for minutes
CONTROL_THREADS = 3  # of an actor, beside one for each judge: for `ready`, `about` and `close`
ACCELERATOR = "accelerator_type:"
INSTALL = "pip install 'pallas-evo[ray]'"
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|COOKIE|AUTH)", re.IGNORECASE)


@dataclass(frozen=True)
class Node:
    """A living node: its id and name, GPUs and cores that Ray may give away, and the type of its accelerator."""

    id: str
    name: str
    gpus: int
    cpus: int
    accelerator: str | None


@dataclass(frozen=True)
class Place:
    """Where one actor belongs: the `index`th of its node, `cpus` of whose cores are its share."""

    node: Node
    index: int
    gpu: bool
    cpus: int

    @property
    def key(self) -> tuple[str, int]:
        return self.node.id, self.index

    def __str__(self) -> str:
        return f"{self.node.name}:{self.node.id[:6]}/{self.index}"


def choose_target(nodes: Sequence[Node], target: str, accelerator: str | None) -> tuple[str, str | None]:
    """`cuda` or `cpu`, and the one accelerator type to judge on (None: the GPUs have no type).

    Raises:
        UsageError: several types and none was chosen, or none of the chosen one.
        DeviceUnavailable: `cuda`, and no node has a GPU.
    """
    types = sorted({node.accelerator or "(no type)" for node in nodes if node.gpus})
    listed = ", ".join(types) or "no GPU"
    if target == "cpu" or (target == "auto" and not types and accelerator is None):
        if accelerator is not None:
            raise UsageError(f"--accelerator {accelerator} needs GPUs, and --target is cpu. Leave one of them away.")
        return "cpu", None
    if accelerator is not None:
        if accelerator not in types:
            raise UsageError(f"--accelerator {accelerator}: the Ray cluster has {listed}. Choose what it has.")
        return "cuda", accelerator
    if not types:
        raise DeviceUnavailable("No node of the Ray cluster has a GPU. Use --target cpu, which runs the same program.")
    if len(types) > 1:
        raise UsageError(
            f"The Ray cluster has several accelerators ({listed}), and times from different cards never meet in one "
            f"score. Choose one by --accelerator, or start a service for each."
        )
    return "cuda", None if types == ["(no type)"] else types[0]


def places(nodes: Sequence[Node], target: str, accelerator: str | None, actors: int | None) -> list[Place]:
    """One place for each GPU of the chosen type, at most `actors`; on CPUs `actors` dealt out, or one a node."""
    found: list[Place] = []
    if target == "cuda":
        for node in sorted(nodes, key=lambda node: node.id):
            if node.gpus and node.accelerator == accelerator:
                found += [Place(node, index, True, node.cpus // node.gpus) for index in range(node.gpus)]
        return found if actors is None else found[:actors]
    able = sorted((node for node in nodes if node.cpus), key=lambda node: node.id)
    count = len(able) if actors is None else actors
    for index, node in enumerate(able):
        share = count // len(able) + (index < count % len(able))
        found += [Place(node, inner, False, node.cpus // share) for inner in range(share)]
    return found


def load() -> Any:
    """The module `ray`.

    Raises:
        UsageError: it is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        found = importlib.import_module("ray")
        if not hasattr(found, "init"):
            raise ImportError("what is called ray here is a folder of another kind")
        return found
    except ImportError as error:
        raise UsageError(f"--ray needs Ray, which is not installed here ({error}): {INSTALL}.") from error


def hidden() -> dict[str, str]:
    """For the environment of actors: an empty value for each of our variables that looks like a secret.

    A raylet that was started from the same shell would hand its own on to them.
    """
    kept = judge_environment()
    return {name: "" for name in os.environ if name not in kept and _SECRET.search(name)}


class Cluster:
    """A connection to a Ray cluster, from construction until `close`.

    Args:
        address: host:port of the head, or `auto` for the cluster that this machine is a node of.

    Raises:
        UsageError: Ray is not installed, of another version than the cluster's, or nothing answers at the address.
    """

    def __init__(self, address: str) -> None:
        self.ray = load()
        self.address = address
        self._ours = not self.ray.is_initialized()
        if self._ours:
            _check(address)
            with _signals_kept():
                self._join()

    def _join(self) -> None:
        where = "this machine" if self.address == "auto" else self.address
        begin = "Start one by: ray start --head; then ray start --address=HOST:PORT on each further node."
        given_up = threading.Timer(JOIN_S, _give_up, (where, begin))  # Ray cannot be interrupted while it waits
        given_up.daemon = True
        given_up.start()
        try:
            self.ray.init(
                address=self.address,
                namespace=NAMESPACE,
                log_to_driver=False,
                configure_logging=False,
                logging_level="ERROR",
            )
        except Exception as error:  # Ray raises many kinds here, RuntimeError, ValueError and its own among them
            said = " ".join(str(error).split())
            with contextlib.suppress(Exception):
                self.ray.shutdown()
            if "ersion mismatch" in said:
                raise UsageError(
                    f"{where}: the Ray cluster there is of another version ({said[:300]}). Install the same Python "
                    f"and Ray here as on its nodes: pip install 'ray==VERSION'."
                ) from error
            if isinstance(error, ConnectionError) and self.address == "auto":
                raise UsageError(f"No Ray cluster runs on {where}. {begin}") from error
            raise UsageError(
                f"{where}: no Ray cluster can be joined there ({type(error).__name__}: {said[:300]}). This machine "
                f"must be one of its nodes. {begin}"
            ) from error
        finally:
            given_up.cancel()

    @property
    def version(self) -> str:
        return str(self.ray.__version__)

    def nodes(self) -> list[Node]:
        """Those that live."""
        found = []
        for told in self.ray.nodes():
            if not told.get("Alive", told.get("alive")):
                continue
            has = told.get("Resources", {})
            types = [name.removeprefix(ACCELERATOR) for name in has if name.startswith(ACCELERATOR)]
            name = told.get("NodeName") or told.get("NodeManagerHostname") or told["NodeID"][:8]
            gpus, cpus = int(has.get("GPU", 0)), int(has.get("CPU", 0))
            found.append(Node(told["NodeID"], str(name), gpus, cpus, types[0] if gpus and types else None))
        return found

    def start(self, place: Place, name: str, settings: dict[str, Any]) -> Any:
        """An actor at a place; it waits there until Ray has what it needs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {
            "name": name,
            "namespace": NAMESPACE,
            "num_cpus": min(settings["judges"], place.cpus),
            "num_gpus": 1 if place.gpu else 0,
            "max_concurrency": settings["judges"] + CONTROL_THREADS,
            "max_restarts": 0,  # whether a request may be tried again is decided in one place only
            "max_task_retries": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(place.node.id, soft=False),
            "runtime_env": {"env_vars": hidden()},
        }
        if place.node.accelerator is not None and place.gpu:
            options["accelerator_type"] = place.node.accelerator
        return self.ray.remote(Host).options(**options).remote(settings)

    def call(self, actor: Any, method: str, *arguments: Any) -> Future[bytes]:
        """A method of an actor, under way; whatever comes of it is in the future."""
        future: Future[bytes] = getattr(actor, method).remote(*arguments).future()
        return future

    def kill(self, actor: Any) -> None:
        """End an actor at once, wherever it is by now."""
        with contextlib.suppress(Exception):
            self.ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Leave the cluster; actors of ours end with that. Safe to call again."""
        if self._ours:
            self._ours = False
            with _signals_kept():
                self.ray.shutdown()

    def describe(self) -> dict[str, Any]:
        """What `doctor --ray` says: the nodes, and the actors of every service that runs there."""
        from ray.util import list_named_actors

        total, free = self.ray.cluster_resources(), self.ray.available_resources()
        nodes = [
            {"name": node.name, "accelerator": node.accelerator, "gpus": node.gpus, "cpus": node.cpus}
            for node in self.nodes()
        ]
        asked = []
        for one in list_named_actors(all_namespaces=True):
            if one["namespace"] == NAMESPACE:
                with contextlib.suppress(Exception):  # it has ended meanwhile
                    asked.append((one["name"], self.call(self.ray.get_actor(one["name"], NAMESPACE), "about")))
        wait_for([future for _, future in asked], REACH_S)
        actors = []
        for name, future in asked:
            told = json.loads(future.result()) if future.done() and future.exception() is None else None
            actors.append({"name": name, "about": told})
        return {
            "address": self.address,
            "version": self.version,
            "nodes": nodes,
            "gpus": {"total": total.get("GPU", 0), "free": free.get("GPU", 0)},
            "cpus": {"total": total.get("CPU", 0), "free": free.get("CPU", 0)},
            "actors": actors,
        }


def _check(address: str) -> None:
    """Refuse what cannot be an address, or where nothing listens: Ray itself would wait for a minute and then abort."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UsageError(f"--ray {address}: expected auto, or the head's HOST:PORT as `ray start --head` prints it.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--ray {address}: nothing answers there ({getattr(error, 'strerror', None) or error}). Is the cluster up, "
            f"and is that its head's address? It is printed by: ray start --head."
        ) from error


def _give_up(where: str, begin: str) -> None:
    """End the process, in our words: Ray waits in native code, which no exception reaches."""
    os.write(2, f"{where}: what answers there is no Ray cluster, or none that this machine is in. {begin}\n".encode())
    os._exit(PallasEvoError.exit_code)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
