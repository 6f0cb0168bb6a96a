"""Asking the service that keeps judges warm, where one serves this user. Standard library only: it must be quick.

Whatever is wrong with the service, the caller does without it: `ask` then gives None, after one line at most. A record
that it gives is the one verdict of one request; nothing that comes later is ever read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pallas_evo.errors import UsageError
from pallas_evo.pool import location, protocol
from pallas_evo.pool.protocol import ProtocolError, Reader

CONNECT_S = 0.25
HELLO_S = 3.0
LOOK_S = 0.25  # between two looks at whether the caller still wants an answer


def ask(
    request: Mapping[str, Any],
    *,
    service: str = "auto",
    deadline_s: float | None = None,
    look: Callable[[], None] | None = None,
    say: Callable[[str], None] | None = None,
    silence_s: float = protocol.SILENCE_S,
) -> dict[str, Any] | None:
    """One candidate's record from the service, or None: judge it yourself.

    Args:
        request: `source`, `task`, `target`; and `config_text`, `config_name`, `overrides` where they are not the
            defaults.
        service: `auto`, `off`, or the socket's path.
        deadline_s: for the whole, waiting in the queue included.
        look: called a few times a second while the service works; what it raises ends the wait, and the service drops
            the request.
        say: takes one line where a service is there and cannot be used; stderr by default.
        silence_s: a service that says nothing for so long is taken for dead.

    Returns:
        A record of kind `judged`, `usage` or `failure`.
    """
    path = _path(service)
    if path is None:
        return None
    say = say or _to_stderr
    try:
        connection = _connect(path)
    except OSError as error:
        # Nothing there, or a dead server's socket, is the ordinary case, unless the caller named it.
        if service != "auto" or not isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
            say(f"{path}: no judging service answers there ({error.strerror or error}); judging here.")
        return None
    end = None if deadline_s is None else time.monotonic() + deadline_s
    try:
        with contextlib.closing(connection):
            return _judge(connection, request, end, look, silence_s)
    except ProtocolError as error:
        say(f"{path}: the judging service cannot be used: {error}; judging here.")
        return None


def status(service: str = "auto") -> dict[str, Any]:
    """What a running service says of itself: judges, busy, queued, judged, failures, uptime_s, target, gpus, ...

    Raises:
        UsageError: there is none, or it says nothing of use.
    """
    path = _path(service)
    if path is None:
        raise UsageError(f"No service is wanted here: {location.VARIABLE} is empty. Give its path by --socket.")
    location.check_length(path)
    try:
        with contextlib.closing(_connect(path)) as connection:
            reader = Reader(connection.fileno())
            _greeting(reader)
            protocol.send(connection, {"op": "status"})
            answer = reader.frame(HELLO_S)
    except (OSError, ProtocolError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise UsageError(f"{path}: no judging service answers there ({said}). Start one: pallas_evo serve.") from error
    if answer is None or answer.get("kind") != "status":
        raise UsageError(f"{path}: the judging service did not say how it is. Is it of another version?")
    return answer


def _path(service: str) -> Path | None:
    if service == "off":
        return None
    return location.default_socket() if service == "auto" else Path(service).absolute()


def _connect(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > location.MOST_BYTES:
        raise OSError(0, f"its path is over {location.MOST_BYTES} bytes long")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect(str(path))
        uid = location.peer_uid(connection)
        if uid != os.getuid():
            raise OSError(0, f"it belongs to the user {uid}, who is not you")
        connection.settimeout(HELLO_S)
    except BaseException:
        connection.close()
        raise
    return connection


def _greeting(reader: Reader) -> dict[str, Any]:
    greeting = reader.frame(HELLO_S)
    if greeting is None:
        raise ProtocolError(f"it said nothing for {HELLO_S:g} s")
    if greeting.get("kind") != "hello":
        raise ProtocolError("it is something else")
    return greeting


def _judge(
    connection: socket.socket,
    request: Mapping[str, Any],
    end: float | None,
    look: Callable[[], None] | None,
    silence_s: float,
) -> dict[str, Any]:
    reader = Reader(connection.fileno())
    greeting = _greeting(reader)
    ours = protocol.hello()
    for key in ("protocol", "version", "build"):
        if greeting.get(key) != ours[key]:
            what = {"protocol": "speaks another protocol", "version": "is of another version"}.get(
                key, "runs other code or another Python than this command; start it again"
            )
            raise ProtocolError(f"it {what}")
    protocol.send(
        connection,
        {
            **request,
            "op": "judge",
            "deadline_s": None if end is None else max(0.0, end - time.monotonic()),
            "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        },
    )
    heard = time.monotonic()
    while True:
        answer = reader.frame(LOOK_S)
        if look is not None:
            look()
        kind = answer.get("kind") if answer is not None else None
        if answer is None or kind == "waiting":
            now = time.monotonic()
            heard = heard if answer is None else now
            if end is not None and now > end:
                raise ProtocolError("it did not answer in time")
            if now - heard > silence_s:
                raise ProtocolError(f"it said nothing for {silence_s:g} s")
            continue
        if kind in ("unsuitable", "refused"):
            raise ProtocolError(str(answer.get("message", "it refused the request")))
        _check(answer, request)
        return answer


def _check(answer: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    """A verdict must be on this candidate; anything else is no answer."""
    kind = answer.get("kind")
    if kind in ("usage", "failure") and isinstance(answer.get("message"), str):
        return
    evaluation = answer.get("evaluation")
    if kind != "judged" or not isinstance(evaluation, dict) or not isinstance(answer.get("metrics"), dict):
        raise ProtocolError("its answer is no record of a verdict")
    sha256 = hashlib.sha256(str(request["source"]).encode("utf-8", "surrogatepass")).hexdigest()
    if (evaluation.get("task"), evaluation.get("candidate_sha256")) != (request["task"], sha256):
        raise ProtocolError("its verdict is on another candidate")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
