"""A pool whose judges are actors in a Ray cluster: the same interface and records as `Pool`, for the same server.

One thread decides: it starts an actor at each place, hands requests out, and takes answers. The queue is here; an
actor is given as many requests as it has judges and never more. A request that is under way belongs to one attempt.
Where its actor or node dies it becomes another attempt's, at most `TRIES` times, and what the first may still say is
discarded: task, sha256 and run (one request) have one verdict.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from types import TracebackType
from typing import Any

from pallas_evo.config import Config, to_yaml
from pallas_evo.errors import PallasEvoError, UsageError, WorkerFailed
from pallas_evo.pool import protocol, ray_actor
from pallas_evo.pool.pool import CLOSED, JUDGE_S, MOST_JUDGES_A_GPU, MOST_QUEUED
from pallas_evo.pool.process import GRACE_S
from pallas_evo.pool.ray_cluster import Node, choose_target, places
from pallas_evo.pool.ray_slots import Asked, Attempt, Engine, Slot

TRIES = 2  # further attempts, after the first, of a request whose actor or node died
TURN_S = 0.5
SCAN_S = 2.0  # between two looks at which nodes there are
ASK_S = 5.0  # between two questions to an actor how it is
EMPTY_S = 60.0  # without one place to judge at, what waits is given up
LATE_S = 30.0  # past the deadline that an actor was given, it is taken for dead
PAUSE_S = 30.0  # the longest between two starts at one place
SLOW_S = 60.0  # an actor that has waited so long for its place is worth a line


class RayPool:
    """Judges on the nodes of a cluster.

    Args:
        engine: the cluster; it is closed with the pool.
        config: what the first processes are prepared for; a request may bring another.
        target: `cuda` on the cluster's GPUs, `cpu` on its cores, `auto` on what it has.
        accelerator: Ray's name of the GPU's type.
        actors: at most so many; by default one a GPU, or one a node on cores.
        judges: in each actor; by default half its share of the node's cores, from 1 to 8.
        most_queued: requests that wait; one more is answered with a failure at once. 256, or four a judge.
        say: takes a line on each thing that an operator may want to know.

    Raises:
        UsageError: several accelerator types and none chosen, or none of the chosen one, or no place to judge at.
        DeviceUnavailable: `cuda`, and no node has a GPU.
    """

    elsewhere = True  # a client's own GPU says nothing of where `auto` should be judged

    def __init__(
        self,
        engine: Engine,
        config: Config | None = None,
        target: str = "auto",
        *,
        accelerator: str | None = None,
        actors: int | None = None,
        judges: int | None = None,
        most_queued: int | None = None,
        say: Callable[[str], None] | None = None,
        _factory: str | None = None,
    ) -> None:
        self.engine, self.config_text = engine, to_yaml(config or Config())
        self.say = say or (lambda line: None)
        nodes = engine.nodes()
        self.target, self.accelerator = choose_target(nodes, target, accelerator)
        self._actors, self._judges, self._factory = actors, judges, _factory
        self._identity = ray_actor.identity()
        self._device: str | None = None  # the first GPU's: no other card's times may stand beside its
        self._slots: dict[tuple[str, int], Slot] = {}
        self._queue: deque[Asked] = deque()
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = False
        self._counts = {"judged": 0, "failures": 0, "retries": 0, "dropped": 0, "late": 0}
        self._began = self._placed_at = time.monotonic()
        self._scan_at = self._began + SCAN_S
        self._runs = self._named = 0
        self._ignored: set[str] = set()
        self._place(nodes)
        if not self._slots:
            raise UsageError("No node of the Ray cluster has a core to judge on: start nodes with --num-cpus over 0.")
        judging = sum(slot.judges for slot in self._slots.values())
        self._most_queued = most_queued if most_queued is not None else max(MOST_QUEUED, 4 * judging)
        self._thread = threading.Thread(target=self._run, name="ray pool", daemon=True)
        self._thread.start()

    # ---- asking ------------------------------------------------------------------------------------------------

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of the GPUs whose actors have come up."""
        with self._changed:
            return tuple(slot.about["gpu"] for slot in self._slots.values() if slot.about.get("gpu"))

    def submit_request(self, request: Mapping[str, Any], deadline_s: float | None = None) -> Future[dict[str, Any]]:
        """Have a candidate judged, as `Pool.submit_request`.

        Raises:
            UsageError: it is too large to be a candidate.
            WorkerFailed: the pool is closed.
        """
        try:
            frame = protocol.pack(request, protocol.REQUEST_BYTES)
        except protocol.ProtocolError as error:
            raise UsageError(f"The candidate is too large to be judged: {error}.") from error
        sha256 = hashlib.sha256(str(request["source"]).encode("utf-8", "surrogatepass")).hexdigest()
        ticket = Asked(frame, None if deadline_s is None else time.monotonic() + deadline_s)
        with self._changed:
            if self._closing:
                raise WorkerFailed("The pool of judges is closed.")
            self._runs += 1
            ticket.key = (str(request["task"]), sha256, self._runs)
            hopeless, waiting = self._hopeless(), self._waiting()
            if hopeless is None and waiting < self._most_queued:
                self._queue.append(ticket)
                self._events.put(None)
                return ticket.future
            self._counts["failures"] += 1
        said = hopeless or f"busy: {waiting} candidates are waiting already. Try again later, or with more nodes."
        ticket.future.set_result({"kind": "failure", "message": said})
        return ticket.future

    def ahead_of(self, future: Future[dict[str, Any]]) -> int:
        """How many wait before this one; 0 also where a judge has it."""
        with self._changed:
            waiting = [ticket.future for ticket in self._queue if not ticket.future.cancelled()]
        return waiting.index(future) if future in waiting else 0

    def status(self) -> dict[str, Any]:
        """As `Pool.status`, with the actors."""
        now = time.monotonic()
        with self._changed:
            slots = list(self._slots.values())
            judges = [
                {**judge, "gpu": slot.about.get("gpu"), "node": slot.place.node.name}
                for slot in slots
                for judge in slot.about.get("pool", {}).get("judges", ())
            ]
            return {
                "target": self.target,
                "gpus": [slot.about["gpu"] for slot in slots if slot.about.get("gpu")],
                "accelerator": self.accelerator,
                "actors": [slot.status(now) for slot in slots],
                "judges": judges,
                "ready": sum(slot.judges for slot in slots if slot.up),
                "busy": sum(len(slot.running) for slot in slots),
                "queued": self._waiting(),
                **self._counts,
                "uptime_s": round(now - self._began, 3),
            }

    def wait_ready(self, deadline_s: float | None = None, *, every: bool = False) -> None:
        """Until one actor (or each) has a judge that is up.

        Raises:
            WorkerFailed: none could start, or not in time.
        """
        with self._changed:
            ready = self._changed.wait_for(
                lambda: (
                    self._closing
                    or self._hopeless()
                    or sum(s.up for s in self._slots.values()) >= (max(1, len(self._slots)) if every else 1)
                ),
                deadline_s,
            )
            if why := self._hopeless():
                raise WorkerFailed(why)
            if not ready:
                raise WorkerFailed(f"The cluster's judges were not ready within {deadline_s:g} s.")

    def close(self) -> None:
        """End all actors; what waits or runs gets a failure for its record. Safe to call again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._events.put(None)
        self._thread.join()
        slots, self._slots = list(self._slots.values()), {}
        left = [attempt.ticket for slot in slots for attempt in slot.running] + list(self._queue)
        self._queue.clear()
        for ticket in left:
            if ticket.take():
                ticket.settle(CLOSED)
        ending = [self.engine.call(slot.actor, "close") for slot in slots if slot.up]
        wait_for(ending, 2 * GRACE_S)
        for slot in slots:
            if slot.actor is not None:
                self.engine.kill(slot.actor)
        self.engine.close()

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # ---- deciding: all of this with the lock held, and but for what `__init__` does in the one thread -----------

    def _run(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=TURN_S)
            except queue.Empty:
                event = None
            try:
                scan = time.monotonic() >= self._scan_at
                nodes = self.engine.nodes() if scan else None  # it may take a while, so without the lock
                with self._changed:
                    if self._closing:
                        return
                    if event is not None:
                        event()
                    if nodes is not None:
                        self._scan_at = time.monotonic() + SCAN_S
                        self._place(nodes)
                    self._turn(time.monotonic())
                    self._changed.notify_all()
            except Exception:  # a fault of our own code, or the cluster's head away: those who wait must not hang
                self._scan_at = time.monotonic() + SCAN_S
                self.say(f"ray pool: {traceback.format_exc()}")

    def _turn(self, now: float) -> None:
        if self._slots:
            self._placed_at = now
        for slot in self._slots.values():
            if slot.actor is None and now >= slot.start_at:
                self._start(slot, now)
            elif slot.up and not slot.asking and now >= slot.ask_at:
                slot.asking = True
                self._call(slot, "about", self._told)
            elif slot.actor is not None and not slot.up and not slot.slow and now - slot.since > SLOW_S:
                slot.slow = True
                self.say(f"{slot.place}: still waiting for its place. Does another job of the cluster hold it?")
            if late := [attempt for attempt in slot.running if now > attempt.limit]:
                self._lost(slot, f"the actor at {slot.place} did not answer within {now - late[0].began:.0f} s")
        why = self._hopeless()
        if why is None and now - self._placed_at > EMPTY_S:
            why = f"The cluster has had no node to judge on for {EMPTY_S:g} s."
        for ticket in list(self._queue):
            if why or (ticket.end is not None and now > ticket.end) or ticket.future.cancelled():
                self._queue.remove(ticket)
                self._finish(ticket, {"kind": "failure", "message": why or "No judge was free before the deadline."})
        self._hand_out(now)

    def _place(self, nodes: list[Node]) -> None:
        """Follow the cluster: places come and go with its nodes."""
        wanted = {place.key: place for place in places(nodes, self.target, self.accelerator, self._actors)}
        for key in [key for key in self._slots if key not in wanted]:
            slot = self._slots[key]
            self._lost(slot, f"the node of {slot.place} is gone")
            del self._slots[key]
        for key, place in wanted.items():
            if key not in self._slots:
                judges = self._judges or max(1, min(MOST_JUDGES_A_GPU, place.cpus // 2))
                self._slots[key] = Slot(place, judges)
        for node in nodes:
            if self.target == "cuda" and node.gpus and node.accelerator != self.accelerator:
                if node.id not in self._ignored:
                    self.say(f"{node.name}: its {node.accelerator or 'GPU'} is left alone, for it is another card")
                self._ignored.add(node.id)

    def _start(self, slot: Slot, now: float) -> None:
        self._named += 1
        settings = {
            "config_text": self.config_text,
            "target": self.target,
            "judges": slot.judges,
            "factory": self._factory,
        }
        name = f"judges-{slot.place.node.id[:12]}-{slot.place.index}-{os.getpid()}-{self._named}"
        slot.since, slot.slow = now, False
        slot.actor = self.engine.start(slot.place, name, settings)
        self._call(slot, "ready", self._ready)

    def _call(self, slot: Slot, method: str, then: Callable[[Slot, Future[bytes]], None]) -> None:
        actor = slot.actor

        def event(future: Future[bytes]) -> None:
            if slot.actor is actor:  # else it is an answer from before
                then(slot, future)

        future = self.engine.call(actor, method)
        future.add_done_callback(lambda done: self._events.put(lambda: event(done)))

    def _ready(self, slot: Slot, future: Future[bytes]) -> None:
        """An actor is up, or could not come up."""
        try:
            about = json.loads(future.result())
            if why := self._foreign(about):
                raise WorkerFailed(why)
        except Exception as error:
            self._lost(slot, _first_line(error), starting=True)
            return
        self._device = self._device or about["device"]
        now = time.monotonic()
        slot.about, slot.up, slot.why, slot.pause_s = about, True, None, 1.0
        slot.since, slot.asking, slot.ask_at = now, False, now + ASK_S
        self.say(f"{slot.place}: {slot.judges} judges on {about['device'] or 'its cores'}")

    def _foreign(self, about: dict[str, Any]) -> str | None:
        """Why an actor's verdicts may not stand beside the others'."""
        if self._factory is not None:
            return None  # stand-ins, whose verdicts say nothing
        for key, what in (("code", "code of pallas_evo"), ("jax", "version of JAX")):
            if about[key] != self._identity[key]:
                return (
                    f"{about['node']} runs another {what} than this service: {about[key]}, and here "
                    f"{self._identity[key]}. Install the same on every node, and start the nodes again."
                )
        if self._device is not None and about["device"] != self._device:
            return (
                f"{about['node']} has a {about['device']}, and the others a {self._device}: times from different cards "
                f"never meet in one score. Give its nodes another accelerator type."
            )
        return None

    def _told(self, slot: Slot, future: Future[bytes]) -> None:
        slot.asking, slot.ask_at = False, time.monotonic() + ASK_S
        try:
            slot.about = json.loads(future.result())
        except Exception as error:
            self._lost(slot, f"the actor at {slot.place} ended ({_first_line(error)})")

    def _hand_out(self, now: float) -> None:
        """Requests to the least busy actors; one that died under it is not asked again while there are others."""
        up = [slot for slot in self._slots.values() if slot.up]
        for ticket in list(self._queue):
            room = [slot for slot in up if len(slot.running) < slot.judges]
            if not room:
                return
            fresh = [slot for slot in up if slot.place.key not in ticket.lost_at]
            able = [slot for slot in room if slot in fresh] if fresh else room
            if not able:
                continue
            self._queue.remove(ticket)
            if not ticket.take():
                self._counts["dropped"] += 1
                continue
            self._ask(min(able, key=lambda slot: len(slot.running) / slot.judges), ticket, now)

    def _ask(self, slot: Slot, ticket: Asked, now: float) -> None:
        left_s = None if ticket.end is None else max(0.0, ticket.end - now)
        attempt = Attempt(ticket, now + LATE_S + (2 * JUDGE_S if left_s is None else left_s))
        ticket.tries += 1
        slot.running.add(attempt)
        future = self.engine.call(slot.actor, "judge", ticket.request, left_s)
        future.add_done_callback(lambda done: self._events.put(lambda: self._answered(slot, attempt, done)))

    def _answered(self, slot: Slot, attempt: Attempt, future: Future[bytes]) -> None:
        if attempt not in slot.running:
            self._counts["late"] += 1  # its actor was given up, so the request is another attempt's by now
            return
        ticket = attempt.ticket
        try:
            record = json.loads(future.result())
        except Exception as error:
            self._lost(slot, f"the actor at {slot.place} ended ({_first_line(error)})")
            return
        if record["kind"] == "unable":
            self._lost(slot, str(record["message"]), starting=True)
            return
        now = time.monotonic()
        slot.running.discard(attempt)
        slot.busy_s += now - attempt.began
        verdict = record.get("evaluation") or {}
        if record["kind"] == "judged" and (verdict.get("task"), verdict.get("candidate_sha256")) != ticket.key[:2]:
            record = {"kind": "failure", "message": f"The actor at {slot.place} gave a verdict on another candidate."}
        slot.judged += record["kind"] == "judged"
        record["service"] = {
            "pid": os.getpid(),
            "judge": record.get("service", {}).get("judge"),
            "waited_s": round(attempt.began - ticket.came, 4),
            "tries": ticket.tries,
            "place": str(slot.place),
        }
        self._finish(ticket, record)

    def _lost(self, slot: Slot, why: str, *, starting: bool = False) -> None:
        """An actor is given up: what it had goes elsewhere, and another takes its place."""
        now = time.monotonic()
        actor, attempts = slot.actor, sorted(slot.running, key=lambda attempt: attempt.ticket.came, reverse=True)
        if slot.up:
            slot.up_s += now - slot.since
            slot.lost += 1
        slot.busy_s += sum(now - attempt.began for attempt in attempts)
        slot.actor, slot.up, slot.running, slot.about = None, False, set(), {}
        slot.why = why if starting else None
        slot.start_at, slot.pause_s = now + slot.pause_s, min(PAUSE_S, 2 * slot.pause_s)
        if actor is not None:
            self.say(f"{slot.place}: {why}; {len(attempts)} candidates go to another")
            self.engine.kill(actor)
        for attempt in attempts:
            ticket = attempt.ticket
            ticket.lost_at.add(slot.place.key)
            if ticket.tries > TRIES or (ticket.end is not None and now >= ticket.end):
                self._finish(ticket, {"kind": "failure", "message": f"No verdict after {ticket.tries} tries: {why}."})
            else:
                self._counts["retries"] += 1
                self._queue.appendleft(ticket)

    def _finish(self, ticket: Asked, record: dict[str, Any]) -> None:
        if not ticket.take():
            self._counts["dropped"] += 1
            return
        self._counts["judged" if record["kind"] == "judged" else "failures"] += record["kind"] != "usage"
        ticket.settle(record)

    def _waiting(self) -> int:
        return sum(not ticket.future.cancelled() for ticket in self._queue)

    def _hopeless(self) -> str | None:
        """Why no request can be judged at all, where that is so."""
        whys = [slot.why for slot in self._slots.values()]
        return whys[0] if whys and all(whys) else None


def _first_line(error: BaseException) -> str:
    """Ray's errors quote the actor's whole traceback, and the error itself comes last."""
    if isinstance(error, PallasEvoError):
        return str(error)
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    for index, line in enumerate(said):
        if line.startswith("pallas_evo.errors."):
            told = " ".join([line.partition(": ")[2], *said[index + 1 :]])
            return told if len(told) <= 600 else f"{told[:250]} ... {told[-350:]}"
    if missing := [line for line in said if "No module named" in line]:
        named = missing[-1].rpartition("No module named ")[2]
        return f"a node has no module {named}: install pallas-evo on every node as it is here"
    return f"{type(error).__name__}: {said[0] if said else ''}"[:500]
