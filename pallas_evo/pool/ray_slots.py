"""What the pool on a cluster keeps account of: requests, attempts at them, and the places where actors are."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from pallas_evo.pool.pool import _Ticket
from pallas_evo.pool.ray_cluster import Node, Place


class Engine(Protocol):
    """What is needed of a cluster: `ray_cluster.Cluster`, or a stand-in."""

    def nodes(self) -> list[Node]: ...
    def start(self, place: Place, name: str, settings: dict[str, Any]) -> Any: ...
    def call(self, actor: Any, method: str, *arguments: Any) -> Future[bytes]: ...
    def kill(self, actor: Any) -> None: ...
    def close(self) -> None: ...


@dataclass(eq=False)
class Asked(_Ticket):
    """A request; `key` is what has one verdict, `lost_at` the places whose actors died under it."""

    key: tuple[str, str, int] = ("", "", 0)
    lost_at: set[tuple[str, int]] = field(default_factory=set)


@dataclass(eq=False)
class Attempt:
    ticket: Asked
    limit: float
    began: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class Slot:
    """A place, its actor, and what that is doing."""

    place: Place
    judges: int
    actor: Any = None
    up: bool = False
    why: str | None = None  # the last start failed so
    running: set[Attempt] = field(default_factory=set)
    about: dict[str, Any] = field(default_factory=dict)
    judged: int = 0
    lost: int = 0  # actors
    busy_s: float = 0.0  # of its judges together
    up_s: float = 0.0  # before `since`
    since: float = 0.0
    start_at: float = 0.0
    pause_s: float = 1.0
    asking: bool = False
    ask_at: float = 0.0
    slow: bool = False

    def status(self, now: float) -> dict[str, Any]:
        up_s = self.up_s + (now - self.since if self.up else 0.0)
        busy_s = self.busy_s + sum(now - attempt.began for attempt in self.running)
        return {
            "place": str(self.place),
            "state": "up" if self.up else "failed" if self.why else "starting",
            "why": self.why,
            "pid": self.about.get("pid"),
            "accelerator": self.place.node.accelerator if self.place.gpu else None,
            "gpu": self.about.get("gpu"),
            "device": self.about.get("device"),
            "gpu_percent": self.about.get("gpu_percent"),
            "judges": self.judges,
            "running": len(self.running),
            "judged": self.judged,
            "lost": self.lost,
            "utilisation": round(busy_s / (up_s * self.judges), 4) if up_s else None,
        }
