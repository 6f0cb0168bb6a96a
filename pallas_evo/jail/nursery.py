"""Children without the price of their imports: a process that has imported one module, and forks for each child.

Importing JAX takes most of a CPU second, and a candidate is served by half a dozen processes of its own. A nursery
imports a module of ours once, runs nothing but our code, has one thread, and forks: each child is a fresh process that
confines itself before it sees a candidate, exactly as one that was started from nothing. What a fork would share and
must not (the state of random number generators) is drawn anew.

Not for level bubblewrap, where a child has namespaces of its own, which a fork would share with its siblings.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from pallas_evo.errors import WorkerFailed
from pallas_evo.jail import folders

MESSAGE_BYTES = 1 << 16
START_S = 60.0
FORK_S = 20.0


class Child(Protocol):
    """What a worker asks of its process: `subprocess.Popen` is one, `Forked` is the other."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Forked:
    """A child of a nursery, in `Popen`'s terms."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle  # a pidfd: readable when the process has ended
        self._code: Future[int] = Future()

    @property
    def returncode(self) -> int | None:
        """As of `Popen`: negative for a signal; None while the process is there."""
        return self._code.result() if self._code.done() else None

    def poll(self) -> int | None:
        """The return code, where it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The return code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, in time.
        """
        try:
            return self._code.result(timeout)
        except TimeoutError as error:
            raise subprocess.TimeoutExpired(["a forked child"], timeout or 0.0) from error

    def ended(self, code: int) -> None:
        """Note how it ended."""
        if not self._code.done():
            self._code.set_result(code)
            os.close(self._handle)

    def gone(self) -> bool:
        """Whether the kernel says so, whatever the nursery has told."""
        return self._code.done() or bool(select.select([self._handle], [], [], 0)[0])


class Nursery:
    """Forks children that run one module of ours. Building it does not wait; use it as a context manager.

    Args:
        module: its top level, and what it names in `PRELOAD`, is imported once.
        env: added to the environment that every child has; it is all that those imports see.
    """

    def __init__(self, module: str, *, env: Mapping[str, str] | None = None) -> None:
        from pallas_evo.jail.worker import ENVIRONMENT, in_spawner

        self.module = module
        interpreter = folders.interpreter()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boot = str(folders.PACKAGE / "jail" / "boot.py")
        line = [interpreter.executable, "-P", "-s", "-S", "-B", "-u", boot, "--nurse", str(theirs.fileno())]
        try:
            self._process = in_spawner(
                lambda: subprocess.Popen(
                    line,
                    env={**ENVIRONMENT, **(env or {})},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            )
        except OSError as error:
            self._socket.close()
            raise WorkerFailed(f"{module}: a nursery could not be started ({error}).") from error
        finally:
            theirs.close()
        self._ready: Future[None] = Future()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[Forked]] = {}
        self._children: dict[int, Forked] = {}
        self._listener = threading.Thread(target=self._listen, name=f"nursery {module}", daemon=True)
        self._listener.start()
        self._tell({"module": module, "path": interpreter.path, "parent_pid": os.getpid()})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can fork, or will be able to."""
        return self._process.poll() is None and not (self._ready.done() and self._ready.exception())

    def fork(
        self,
        *,
        env: Mapping[str, str],
        cwd: str,
        channel: Sequence[int],
        printed: int,
        inherited: Sequence[int] = (),
    ) -> Forked:
        """A fresh child with this environment, folder and descriptors; it waits for its specification on `channel`.

        Raises:
            WorkerFailed: the nursery is gone, or cannot fork.
        """
        number, answer = next(self._numbers), Future[Forked]()
        with self._lock:
            self._asked[number] = answer
        try:
            self._ready.result(START_S)
            self._tell(
                {"number": number, "env": dict(env), "cwd": cwd, "inherited": len(inherited)},
                [*channel, printed, *inherited],
            )
            return answer.result(FORK_S)
        except (TimeoutError, OSError) as error:
            raise WorkerFailed(f"{self.module}: its nursery does not answer ({error}).") from error
        finally:
            with self._lock:
                self._asked.pop(number, None)

    def close(self) -> None:
        """End it, and every child that is left. Safe to call again."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(5)
        self._socket.close()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- talking ---------------------------------------------------------------------------------------------------

    def _tell(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(message).encode()], list(descriptors))

    def _listen(self) -> None:
        """Hand on what the nursery says, until it is gone; then its children are, too: the kernel sees to that."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, 1)
                if not data:
                    break
                self._heard(json.loads(data), descriptors)
        gone = WorkerFailed(f"{self.module}: its nursery ended.")
        with self._lock:
            left, asked = list(self._children.values()), list(self._asked.values())
        if not self._ready.done():
            self._ready.set_exception(gone)
        for answer in asked:
            if not answer.done():
                answer.set_exception(gone)
        for child in left:
            end = time.monotonic() + 5
            while not child.gone() and time.monotonic() < end:
                time.sleep(0.01)
            child.ended(-signal.SIGKILL)

    def _heard(self, said: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        if "ready" in said:
            if said["ready"]:
                self._ready.set_result(None)
            else:
                self._ready.set_exception(WorkerFailed(f"{self.module}: {said['why']}"))
        elif "code" in said:
            with self._lock:
                child = self._children.pop(said["pid"], None)
            if child is not None:
                child.ended(said["code"])
        elif "why" in said:
            with self._lock:
                self._asked[said["number"]].set_exception(WorkerFailed(f"{self.module}: {said['why']}"))
        else:
            child = Forked(said["pid"], descriptors[0])
            with self._lock:
                self._children[child.pid] = child
                answer = self._asked.get(said["number"])
            if answer is not None:
                answer.set_result(child)
            else:  # nobody waits for it any more
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
