"""A pool of judges behind a Unix socket: one connection a request, and nothing that it says is believed unchecked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.pool import location, protocol
from pallas_evo.pool.protocol import HEARTBEAT_S, ProtocolError
from pallas_evo.running import gpus

REQUEST_S = 10.0  # until a client has said what it wants
WRITE_S = 30.0


class Judges(Protocol):
    """What a server needs of a pool, wherever its judges are."""

    target: str

    @property
    def gpus(self) -> tuple[str, ...]: ...
    def submit_request(self, request: Mapping[str, Any], deadline_s: float | None = None) -> Future[dict[str, Any]]: ...
    def ahead_of(self, future: Future[dict[str, Any]]) -> int: ...
    def status(self) -> dict[str, Any]: ...


class Server:
    """Serves one pool at one path.

    Args:
        pool: the judges; whoever made it closes it.
        where: the socket's path, or one that is claimed already; the server releases it.
        say: takes a line for each connection's end.

    Raises:
        UsageError: a server lives at the path, or it cannot be used.
    """

    def __init__(self, pool: Judges, where: Path | location.Claim, *, say: Callable[[str], None] | None = None) -> None:
        self.say = say or (lambda line: None)
        self._claim = where if isinstance(where, location.Claim) else location.Claim(where)
        self.pool, self.path = pool, self._claim.path
        try:
            self._listener = self._claim.listen()
        except BaseException:
            self._claim.release()
            raise
        self._clients: set[asyncio.Task[None]] = set()
        self._ended = False
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def serve(self, *, signals: bool = True) -> None:
        """Serve until `stop`, or, with `signals`, until SIGTERM, SIGINT or SIGHUP comes; then the socket is gone."""
        try:
            asyncio.run(self._serve(signals))
        finally:
            self.close()

    def stop(self) -> None:
        """End `serve`, from another thread, or before it has begun."""
        self._ended = True
        if self._stop is not None:
            loop, event = self._stop
            with contextlib.suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Take the socket away. Safe to call again."""
        self._listener.close()
        self._claim.release()

    async def _serve(self, signals: bool) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._stop = (loop, stop)
        if self._ended:
            return
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.add_signal_handler(number, stop.set)
        server = await asyncio.start_unix_server(self._meet, sock=self._listener, limit=1 << 20)
        try:
            await stop.wait()
        finally:
            server.close()
            for task in list(self._clients):
                task.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._talk(reader, writer)
        except (ProtocolError, OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.say(f"a client was let go: {error or type(error).__name__}")
        except asyncio.CancelledError:
            pass  # the server ends; the client does without
        finally:
            self._clients.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        uid = location.peer_uid(connection)
        if uid != os.getuid():
            raise ProtocolError(f"it belongs to the user {uid}")
        await _write(writer, protocol.hello(target=self.pool.target, gpus=list(self.pool.gpus)))
        try:
            async with asyncio.timeout(REQUEST_S):
                header = await reader.readexactly(protocol.HEADER.size)
                size = protocol.length(header, protocol.REQUEST_BYTES)
                request = protocol.unpack(await reader.readexactly(size))
            if request.get("op") == "status":
                about = {"pid": os.getpid(), "socket": str(self.path), "version": protocol.hello()["version"]}
                await _write(writer, {"kind": "status", **about, **self.pool.status()})
                return
            why = _malformed(request)
            if why:
                raise ProtocolError(why)
        except ProtocolError as error:
            await _write(writer, {"kind": "refused", "message": f"it refused the request: {error}"})
            raise
        if why := self._unsuitable(request):
            await _write(writer, {"kind": "unsuitable", "message": why})
            return
        await self._judge(request, reader, writer)

    async def _judge(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer when a judge has, say meanwhile that we live, and drop the request when its client is gone."""
        began = time.monotonic()
        try:
            asked = self.pool.submit_request(request, request.get("deadline_s"))
        except PallasEvoError as error:
            kind = "usage" if isinstance(error, UsageError) else "failure"
            await _write(writer, {"kind": kind, "message": str(error)})
            return
        answer = asyncio.wrap_future(asked)
        gone = asyncio.ensure_future(reader.read(1))
        either: set[asyncio.Future[Any]] = {answer, gone}
        try:
            while True:
                await asyncio.wait(either, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    break
                if gone.done():
                    raise ProtocolError(f"it left before {request['task']} was judged")
                await _write(writer, {"kind": "waiting", "ahead": self.pool.ahead_of(asked)})
            record = answer.result()
            await _write(writer, record)
        finally:
            gone.cancel()
            asked.cancel()  # where a judge has it, it runs to its end and nobody reads the verdict
            answer.cancel()
        self.say(_line(request, record, time.monotonic() - began))

    def _unsuitable(self, request: Mapping[str, Any]) -> str | None:
        """Why this service's verdict would not be the one that the client would come to itself."""
        if getattr(self.pool, "elsewhere", False):  # on a cluster, whose GPUs the client does not see
            asked = request["target"]
            return None if asked in ("auto", self.pool.target) else f"it judges on {self.pool.target}, not on {asked}"
        chosen = request.get("cuda_visible_devices")
        theirs = gpus.visible(chosen) if request["target"] != "cpu" else ()
        wanted = request["target"] if request["target"] != "auto" else ("cuda" if theirs else "cpu")
        if wanted != self.pool.target:
            return f"it judges on {self.pool.target}, and {wanted} is wanted"
        if wanted == "cuda" and chosen is not None and theirs and theirs[0] not in self.pool.gpus:
            return f"it has {', '.join(self.pool.gpus)}, and {theirs[0]} is wanted"
        return None


def _malformed(request: Mapping[str, Any]) -> str | None:
    """What is wrong with the form of a request."""
    if request.get("op") != "judge":
        return "expected op: judge or status"
    if request.get("target") not in ("auto", "cpu", "cuda"):
        return "expected target: auto, cpu or cuda"
    for name, needed in (("source", True), ("task", True), ("config_text", False), ("config_name", False)):
        if not isinstance(request.get(name), str) and (needed or request.get(name) is not None):
            return f"expected text in {name}"
    overrides = request.get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(one, str) for one in overrides):
        return "expected a list of texts in overrides"
    chosen, deadline = request.get("cuda_visible_devices"), request.get("deadline_s")
    if not isinstance(chosen, str | None) or not isinstance(deadline, int | float | None):
        return "expected text in cuda_visible_devices and a number in deadline_s"
    return None


async def _write(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    async with asyncio.timeout(WRITE_S):
        writer.write(protocol.pack(message))
        await writer.drain()


def _line(request: Mapping[str, Any], record: Mapping[str, Any], seconds: float) -> str:
    told = record.get("service", {})
    if record["kind"] == "judged":
        what = record["evaluation"]["status"] + ("" if record["correct"] else f" ({record['evaluation']['reason']})")
    else:
        what = f"{record['kind']}: {record['message']}"
    return f"{request['task']}: {what}, {seconds:.2f} s, {told.get('waited_s', 0):.2f} s of it in the queue"
