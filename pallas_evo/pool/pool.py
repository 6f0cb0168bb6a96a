"""A pool of judge processes: first come, first served; a judge that dies costs its request a retry and no verdict."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from pallas_evo.config import Config, to_yaml
from pallas_evo.errors import DeviceUnavailable, UsageError, WorkerFailed
from pallas_evo.pool import protocol
from pallas_evo.pool.process import GRACE_S, JudgeProcess, Lost
from pallas_evo.running import gpus

MOST_QUEUED = 256
MOST_JUDGES_A_GPU = 8
JUDGE_S = 600.0  # for one candidate: its own deadlines come long before, this one is for a judge that hangs
RECYCLE_AFTER = 300  # candidates; JAX keeps what it compiled for the references, at shapes that never come again
RECYCLE_BYTES = 6 << 30
IDLE_LOOK_S = 5.0
TRIES = 2
CLOSED = {"kind": "failure", "message": "The pool of judges was closed."}


@dataclass(eq=False)
class _Ticket:
    """One request in the queue or at a judge."""

    request: bytes  # as a judge reads it
    end: float | None  # monotonic
    future: Future[dict[str, Any]] = field(default_factory=Future)
    came: float = field(default_factory=time.monotonic)
    taken: bool = False
    tries: int = 0

    def take(self) -> bool:
        """Give it to a judge; False where nobody wants it any more."""
        self.taken = self.taken or self.future.set_running_or_notify_cancel()
        return self.taken

    def settle(self, record: dict[str, Any]) -> None:
        """Give the record, unless nobody wants it any more."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(record)


class Pool:
    """N judge processes, each judging one candidate after another, with a queue before them.

    Args:
        config: what the first processes are prepared for; a request may bring another.
        target: `cuda` times on the GPUs that this process sees, `cpu` runs in the executor, `auto` takes what there is.
        judges: how many; by default half the cores, at most 8 a GPU (or in all, without one), and at least one a GPU.
        most_queued: requests that wait; one more is answered with a failure at once.
        say: takes a line on each thing that an operator may want to know.

    Raises:
        DeviceUnavailable: `cuda`, and there is no GPU.
    """

    def __init__(
        self,
        config: Config | None = None,
        target: str = "auto",
        *,
        judges: int | None = None,
        most_queued: int = MOST_QUEUED,
        say: Callable[[str], None] | None = None,
        recycle_after: int = RECYCLE_AFTER,
        recycle_bytes: int = RECYCLE_BYTES,
        _factory: str | None = None,
    ) -> None:
        found = gpus.mine() if target != "cpu" else ()
        if target == "cuda" and not found:
            raise DeviceUnavailable("No NVIDIA GPU was found here. Use --target cpu, which runs the same program.")
        self.target = "cuda" if found else "cpu"
        self.gpus = found
        self.config_text = to_yaml(config or Config())
        self.say = say or (lambda line: None)
        self.recycle_after, self.recycle_bytes = recycle_after, recycle_bytes
        self.factory = _factory
        self._most_queued = most_queued
        self._queue: deque[_Ticket] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._counts = {"judged": 0, "failures": 0, "retries": 0, "dropped": 0}
        self._began = time.monotonic()
        count = judges if judges is not None else default_judges(len(found))
        if count < 1:
            raise UsageError(f"Expected at least one judge, came {count}.")
        self._keepers = [_Keeper(self, index, self._gpu(index)) for index in range(count)]
        for keeper in self._keepers:
            keeper.start()

    def _gpu(self, index: int) -> str | None:
        """The judge's CUDA_VISIBLE_DEVICES. With one GPU there is nothing to choose."""
        return self.gpus[index % len(self.gpus)] if len(self.gpus) > 1 else None

    # ---- asking ------------------------------------------------------------------------------------------------

    def submit(
        self,
        source: str,
        task: str,
        *,
        config_text: str | None = None,
        config_name: str | None = None,
        overrides: Sequence[str] = (),
        deadline_s: float | None = None,
    ) -> Future[dict[str, Any]]:
        """Have a candidate judged; the future's result is its record (`pallas_evo.pool.answering`).

        A future that is cancelled before a judge took it costs nothing.

        Args:
            source: the candidate's file.
            task: a task's id.
            config_text: YAML; the pool's configuration where neither it nor `overrides` are given.
            config_name: where that was read, for messages.
            overrides: `key=value`, over it.
            deadline_s: from now; past it the record is a failure.

        Raises:
            WorkerFailed: the pool is closed.
        """
        text = self.config_text if config_text is None and not overrides else config_text
        return self.submit_request(
            {
                "source": source,
                "task": task,
                "config_text": text,
                "config_name": config_name,
                "overrides": list(overrides),
            },
            deadline_s,
        )

    def submit_request(self, request: Mapping[str, Any], deadline_s: float | None = None) -> Future[dict[str, Any]]:
        """As `submit`, of a request in the protocol's form.

        Raises:
            UsageError: it is too large to be a candidate.
            WorkerFailed: the pool is closed.
        """
        try:
            frame = protocol.pack(request, protocol.REQUEST_BYTES)
        except protocol.ProtocolError as error:
            raise UsageError(f"The candidate is too large to be judged: {error}.") from error
        ticket = _Ticket(frame, None if deadline_s is None else time.monotonic() + deadline_s)
        with self._changed:
            if self._closing:
                raise WorkerFailed("The pool of judges is closed.")
            hopeless = self._hopeless()
            waiting = sum(not queued.future.cancelled() for queued in self._queue)
            if hopeless is None and waiting < self._most_queued:
                self._queue.append(ticket)
                self._changed.notify()
                return ticket.future
            self._counts["failures"] += 1
        said = hopeless or f"busy: {waiting} candidates are waiting already. Try again later, or with more judges."
        ticket.future.set_result({"kind": "failure", "message": said})
        return ticket.future

    def ahead_of(self, future: Future[dict[str, Any]]) -> int:
        """How many wait before this one; 0 also where a judge has it."""
        with self._changed:
            waiting = [ticket.future for ticket in self._queue if not ticket.future.cancelled()]
        return waiting.index(future) if future in waiting else 0

    def status(self) -> dict[str, Any]:
        """What `pallas_evo serve --status` prints of the pool."""
        with self._changed:
            judges = [keeper.status() for keeper in self._keepers]
            return {
                "target": self.target,
                "gpus": list(self.gpus),
                "judges": judges,
                "ready": sum(judge["state"] in ("idle", "busy") for judge in judges),
                "busy": sum(judge["state"] == "busy" for judge in judges),
                "queued": sum(not ticket.future.cancelled() for ticket in self._queue),
                **self._counts,
                "uptime_s": round(time.monotonic() - self._began, 3),
            }

    def wait_ready(self, deadline_s: float | None = None, *, every: bool = False) -> None:
        """Until one judge (or each) has its processes coming up.

        Raises:
            WorkerFailed: none could start, or not in time.
        """
        wanted = len(self._keepers) if every else 1
        with self._changed:
            ready = self._changed.wait_for(
                lambda: self._closing or self._hopeless() or sum(k.up for k in self._keepers) >= wanted,
                deadline_s,
            )
            if why := self._hopeless():
                raise WorkerFailed(why)
            if not ready:
                raise WorkerFailed(f"The judges were not ready within {deadline_s:g} s.")

    def close(self) -> None:
        """End all judges; what waits or runs gets a failure for its record. Safe to call again."""
        with self._changed:
            self._closing = True
            left, self._queue = list(self._queue), deque()
            self._changed.notify_all()
        for ticket in left:
            ticket.settle(CLOSED)
        for keeper in self._keepers:
            keeper.stop()
        end = time.monotonic() + GRACE_S
        for keeper in self._keepers:
            keeper.join(max(0.0, end - time.monotonic()))
            if keeper.is_alive():
                keeper.stop(kill=True)
                keeper.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # ---- for the keepers ---------------------------------------------------------------------------------------

    def _hopeless(self) -> str | None:
        """Why no request can be judged at all, where that is so."""
        whys = [keeper.why for keeper in self._keepers]
        return whys[0] if all(whys) else None

    def _take(self, seconds: float) -> _Ticket | None:
        """The next request that is still wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._queue, seconds)
            while self._queue and not self._closing:
                ticket = self._queue.popleft()
                if ticket.take():
                    return ticket
                self._counts["dropped"] += 1
            return None

    def _again(self, ticket: _Ticket) -> bool:
        """Put a request whose judge died before all others; False where it may not be tried again."""
        with self._changed:
            if self._closing or self._hopeless() or ticket.tries >= TRIES:
                return False
            self._counts["retries"] += 1
            self._queue.appendleft(ticket)
            self._changed.notify()
            return True

    def _done(self, ticket: _Ticket, record: dict[str, Any]) -> None:
        with self._changed:
            self._counts["judged" if record["kind"] == "judged" else "failures"] += record["kind"] != "usage"
        ticket.settle(record)

    def _failed_to_start(self) -> None:
        with self._changed:
            self._changed.notify_all()
            why = self._hopeless()
            left = list(self._queue) if why else []
            if why:
                self._queue.clear()
        for ticket in left:
            if ticket.take():
                self._done(ticket, {"kind": "failure", "message": str(why)})


class _Keeper(threading.Thread):
    """Keeps one judge process at work: starts it, hands it requests, replaces it when it dies or has grown old."""

    def __init__(self, pool: Pool, index: int, gpu: str | None) -> None:
        super().__init__(name=f"judge {index}", daemon=True)
        self.pool, self.index, self.gpu = pool, index, gpu
        self.judge: JudgeProcess | None = None
        self.up = False
        self.busy = False
        self.why: str | None = None  # the last start failed so
        self.judged = 0  # by this process
        self.rss_bytes = 0
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        # So that the judges of a pool do not all grow old in the same minute.
        self._recycle_after = pool.recycle_after + index * max(1, pool.recycle_after // 30)

    def status(self) -> dict[str, Any]:
        judge = self.judge
        state = "busy" if self.busy else "idle" if self.up else "failed" if self.why else "starting"
        return {
            "pid": judge.pid if judge is not None else None,
            "gpu": self.gpu or (self.pool.gpus[0] if self.pool.gpus else None),
            "state": state,
            "judged": self.judged,
            "rss_bytes": self.rss_bytes,
        }

    def run(self) -> None:
        pause_s = 1.0
        while not self._leaving.is_set():
            if self.judge is None or not self.judge.alive:
                if not self._start():
                    self._leaving.wait(pause_s)
                    pause_s = min(2 * pause_s, 30.0)
                    continue
                pause_s = 1.0
            ticket = self.pool._take(IDLE_LOOK_S)
            if ticket is not None:
                self._serve(ticket)
        self._end()

    def stop(self, *, kill: bool = False) -> None:
        """End the thread and its judge, from another thread; `join` waits for it."""
        self._leaving.set()
        with self._lock:
            if self.judge is not None:
                self.judge.kill() if kill else self.judge.stop()

    def _start(self) -> bool:
        """A fresh judge, ready for requests; False where it could not start."""
        if self.judge is not None:
            self.pool.say(f"judge {self.index} (process {self.judge.pid}) had ended while it waited; starting another")
        self._end()
        try:
            with self._lock:
                if self._leaving.is_set():
                    return False
                judge = self.judge = JudgeProcess(target=self.pool.target, gpu=self.gpu, factory=self.pool.factory)
            judge.start(self.pool.config_text)
        except (WorkerFailed, OSError) as error:
            self._end()
            if not self._leaving.is_set():
                self.why = str(error)
                self.pool.say(f"judge {self.index} could not start: {error}")
                self.pool._failed_to_start()
            return False
        with self.pool._changed:
            self.why, self.up, self.judged = None, True, 0
            self.pool._changed.notify_all()
        return True

    def _serve(self, ticket: _Ticket) -> None:
        """Have one request judged; whatever happens here, it gets a record."""
        try:
            self._judge(ticket)
        except Exception as error:  # a fault of our own code must not leave somebody waiting
            self._end()
            self.pool.say(f"judge {self.index}: {traceback.format_exc()}")
            self.pool._done(ticket, {"kind": "failure", "message": f"{type(error).__name__}: {error}"})

    def _judge(self, ticket: _Ticket) -> None:
        judge = self.judge
        assert judge is not None
        began = time.monotonic()
        left_s = JUDGE_S if ticket.end is None else ticket.end - began
        if left_s <= 0:
            self.pool._done(ticket, {"kind": "failure", "message": "No judge was free before the deadline."})
            return
        if not judge.alive and not self._start():  # it died while it waited: nothing was asked of it
            if not self.pool._again(ticket):
                self.pool._done(ticket, {"kind": "failure", "message": self.why} if self.why else CLOSED)
            return
        assert self.judge is not None
        ticket.tries += 1
        self.busy = True
        try:
            record = self.judge.ask(ticket.request, left_s)
        except Lost as error:
            self.up = self.busy = False
            if self._leaving.is_set():
                self.pool._done(ticket, CLOSED)
                return
            again = time.monotonic() - began < left_s and self.pool._again(ticket)
            self.pool.say(f"judge {self.index}: {error}; {'the candidate goes to another' if again else 'no verdict'}")
            if not again:
                self.pool._done(ticket, {"kind": "failure", "message": f"No verdict: {error}."})
            self._end()
            return
        self.busy = False
        self.judged += 1
        told = record.pop("judge", {})
        self.rss_bytes = int(told.get("rss_bytes", 0))
        record["service"] = {
            "pid": os.getpid(),
            "judge": told.get("pid"),
            "waited_s": round(began - ticket.came, 4),
            "tries": ticket.tries,
        }
        self.pool._done(ticket, record)
        if self.judged >= self._recycle_after or self.rss_bytes > self.pool.recycle_bytes:
            self.pool.say(
                f"judge {self.index} has judged {self.judged} and holds {self.rss_bytes >> 20} MB: replacing it"
            )
            self._end()

    def _end(self) -> None:
        self.up = self.busy = False
        with self._lock:
            judge, self.judge = self.judge, None
        if judge is not None:
            judge.close()


def default_judges(gpu_count: int) -> int:
    """Half the cores, at most 8 for each GPU, at least one for each."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, gpu_count, min(MOST_JUDGES_A_GPU * max(1, gpu_count), cores // 2))
