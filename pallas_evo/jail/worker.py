"""A supervised child process that runs one of our modules: the parent's side.

The parent believes nothing that a child says: every frame has a size cap and a deadline, what the child prints is
drained and capped, and whatever the child does, `kill` leaves no process, no open descriptor and no scratch folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from pallas_evo.errors import JailUnavailable, WorkerFailed
from pallas_evo.jail import bubblewrap, folders, processes, scratch
from pallas_evo.jail.frames import HEADER
from pallas_evo.jail.nursery import Child, Nursery

Level = Literal["bubblewrap+landlock+seccomp", "landlock+seccomp", "none"]

BOOT = str(folders.PACKAGE / "jail" / "boot.py")
START_S = 60.0  # until a child of ours is up: not the candidate's time, so it is generous
POLL_S = 0.1
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",  # the order of a set of strings must not make two exports differ
    "PYTHONIOENCODING": "utf-8:backslashreplace",
    "JAX_PLATFORMS": "cpu",
    "JAX_TRACEBACK_FILTERING": "off",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
"""What every child's environment holds, beside its scratch folder and its token."""


@dataclass(frozen=True, kw_only=True)
class WorkerLimits:
    """What one child may use. None is no limit."""

    memory_bytes: int | None = 8 << 30  # address space; below 1 GB `import jax` dies
    cpu_s: int | None = 60
    file_bytes: int | None = 16 << 20  # one file
    scratch_bytes: int = 64 << 20  # all files of the scratch folder
    scratch_entries: int = 1000
    output_bytes: int = 64 << 10  # of what it prints; the rest is drained and dropped
    processes: int | None = 16384  # RLIMIT_NPROC counts all threads of the user, so it is no tight bound
    threads: int = 256 + 32 * (os.cpu_count() or 1)
    open_files: int | None = 256

    def rlimits(self) -> dict[str, int | None]:
        """By the resource's name, as the child applies them."""
        return {
            "as": self.memory_bytes,
            "cpu": self.cpu_s,
            "fsize": self.file_bytes,
            "nproc": self.processes,
            "nofile": self.open_files,
            "core": 0,
            "msgqueue": 0,
        }


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The child gave no (further) answer, and is gone.

    `reason`: `exited` (by itself or by a signal that we did not send), `timeout`, `too_large` (a frame over its cap),
    `closed` (it shut its pipe and stayed), or the limit that it broke: `scratch`, `threads`.
    """

    reason: Literal["exited", "timeout", "too_large", "closed", "scratch", "threads"]
    returncode: int | None
    signal: str | None  # "SIGABRT"
    output_text: str
    interrupted: bool = False  # `interrupt` was called: how it ended says nothing of the child


class Worker:
    """One child, running `main(channel)` of a module of ours, from construction until `kill`.

    Starting does not wait: build several, then talk to them. Use it as a context manager, or call `kill`.

    Args:
        module: dotted name of a module of this package; its top level is imported before the child is confined.
        limits: see WorkerLimits.
        jailed: confine the child to the best level that this machine has.
        allow_unjailed: run it unconfined where the level is `none`, in place of raising.
        readable: packages of ours (`"pallas_evo.running"`) or paths that the jailed child reads beside its own folder.
        env: variables added to the child's environment, which otherwise holds nothing of this process's.
        inherited: descriptors of ours that an unjailed child keeps; `PALLAS_EVO_INHERITED` has its numbers for them.
        nursery: of this module, forks the child where the level allows it; without, or if it is gone, it is started.

    Raises:
        JailUnavailable: `jailed`, and nothing on this machine can confine a process.
    """

    def __init__(
        self,
        module: str,
        *,
        limits: WorkerLimits | None = None,
        jailed: bool = True,
        allow_unjailed: bool = False,
        readable: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
        nursery: Nursery | None = None,
        _level: Level | None = None,
    ) -> None:
        from pallas_evo.jail.levels import level, why_none

        self.module = module
        self.limits = limits or WorkerLimits()
        self.level: Level = (_level or level()) if jailed else "none"
        if jailed and self.level == "none" and not allow_unjailed:
            raise JailUnavailable(
                f"Expected a way to confine a candidate's process; this machine has none ({why_none()}). Install "
                "bubblewrap, use a kernel with Landlock and seccomp, or accept the risk with --allow-unjailed."
            )
        if jailed and inherited:
            raise ValueError("A jailed child inherits no descriptor.")
        self.token = os.urandom(8).hex()
        self.scratch = scratch.make()
        self._output = bytearray()
        self._broke: Literal["scratch", "threads"] | None = None
        self._greeted = False
        self._interrupted = False
        self._handles = processes.Handles()  # of what runs below bwrap
        self._ended: Ended | None = None
        self._lock = threading.Lock()
        self._fds: list[int] = []
        try:
            self._start(readable, env or {}, inherited, nursery)
        except BaseException:
            self._close_fds()
            scratch.remove(self.scratch)
            raise

    # starting

    def _start(
        self, readable: Sequence[str], env: Mapping[str, str], inherited: Sequence[int], nursery: Nursery | None
    ) -> None:
        interpreter = folders.interpreter()
        extra = [folders.of_package(item) if item.startswith("pallas_evo.") else item for item in readable]
        needed = [*folders.of_module(self.module), *extra]
        inward, self._write_fd = os.pipe()
        self._read_fd, outward = os.pipe()
        output, printed = os.pipe()
        self._fds += [self._write_fd, self._read_fd]
        for fd in self._fds:
            os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._write_fd, fcntl.F_SETPIPE_SZ, 1 << 20)  # or a long first frame would wait for the child
        line = [interpreter.executable, "-P", "-s", "-S", "-B", "-u", BOOT, str(inward), str(outward)]
        bwrap = bubblewrap.executable()
        if self.level.startswith("bubblewrap") and bwrap:
            line = [*bubblewrap.command(bwrap, needed, self.scratch), *line]
        environment = {**self._environment(), **env}
        parent = os.getpid()
        try:
            forked = None
            if nursery is not None and nursery.alive and not self.level.startswith("bubblewrap"):
                with contextlib.suppress(WorkerFailed):
                    forked = nursery.fork(
                        env=environment,
                        cwd=self.scratch,
                        channel=(inward, outward),
                        printed=printed,
                        inherited=inherited,
                    )
                    parent = nursery.pid
            self._process: Child = forked or in_spawner(
                lambda: subprocess.Popen(
                    line,
                    env={**environment, "PALLAS_EVO_INHERITED": ",".join(str(number) for number in inherited)},
                    cwd=self.scratch,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=printed,
                    pass_fds=(inward, outward, *inherited),
                    start_new_session=True,
                )
            )
        except OSError as error:
            os.close(output)
            raise WorkerFailed(f"{self.module}: the process could not be started ({error}).") from error
        finally:
            for fd in (inward, outward, printed):
                os.close(fd)
        spec = {
            "module": self.module,
            "parent_pid": None if self.level.startswith("bubblewrap") else parent,
            "path": interpreter.path,
            "limits": self.limits.rlimits(),
            "confine": self.level != "none",
            "readable": [*interpreter.readable, *needed],
            "listable": interpreter.listable,
            "scratch": self.scratch,
        }
        self._drain = threading.Thread(target=self._watch, args=(output,), name=f"drain {self.module}", daemon=True)
        self._drain.start()
        self.send(json.dumps(spec).encode())

    def _environment(self) -> dict[str, str]:
        """All that the child's environment holds: nothing is copied from ours."""
        return {**ENVIRONMENT, "HOME": self.scratch, "TMPDIR": self.scratch, "PALLAS_EVO_WORKER": self.token}

    # watching, in a thread of its own

    def _watch(self, output: int) -> None:
        """Drain what the child prints until every holder of its pipe is gone, and look at what it uses meanwhile."""
        poller = select.poll()
        poller.register(output, select.POLLIN | select.POLLHUP)
        next_look = time.monotonic() + POLL_S
        try:
            while True:
                if poller.poll(POLL_S * 1000):
                    piece = os.read(output, 1 << 16)
                    if not piece:
                        return
                    room = self.limits.output_bytes - len(self._output)
                    if room > 0:
                        self._output += piece[:room]
                    else:
                        time.sleep(0.001)  # a flood is drained, but not at the price of this process's time
                if time.monotonic() >= next_look and self._broke is None:
                    self._look()
                    next_look = time.monotonic() + POLL_S
        finally:
            os.close(output)

    def _look(self) -> None:
        if scratch.overfull(self.scratch, self.limits.scratch_bytes, self.limits.scratch_entries):
            self._broke = "scratch"
        elif self.level != "none" and processes.threads_of(self._tree()) > self.limits.threads:
            self._broke = "threads"
        if self._broke:
            self._signal()

    def _tree(self) -> list[int]:
        return [self._process.pid, *processes.below(self._process.pid)]

    # talking

    def ready(self, deadline_s: float = START_S) -> None:
        """Wait until the child is up and confined; called by `receive` too. Only our own code has run until then.

        Raises:
            JailUnavailable: the child could not be confined.
            WorkerFailed: it ended, or did not come up in time.
        """
        if self._greeted:
            return
        hello = self._frame(deadline_s, 64 << 10)
        if isinstance(hello, Ended):
            raise WorkerFailed(
                f"{self.module}: the process did not start ({hello.reason}, code {hello.returncode}, {hello.signal}); "
                f"it said: {hello.output_text[-2000:].strip() or 'nothing'}"
            )
        error = json.loads(hello)["error"]
        if error:
            self.kill()
            kind = WorkerFailed if self.level == "none" else JailUnavailable
            raise kind(f"{self.module}: the process could not set itself up at level {self.level}: {error}")
        if self.level.startswith("bubblewrap"):
            with self._lock:
                self._handles.hold(processes.below(self._process.pid))
        self._greeted = True

    def send(self, payload: bytes, deadline_s: float = 10.0) -> bool:
        """Hand one frame to the child. False when it did not take it all: `receive` will then say why."""
        view = memoryview(HEADER.pack(len(payload)) + payload)
        end = time.monotonic() + deadline_s
        poller = select.poll()
        with contextlib.suppress(OSError):
            poller.register(self._write_fd, select.POLLOUT)
            while view:
                left = end - time.monotonic()
                if left <= 0 or not poller.poll(left * 1000):
                    return False
                with contextlib.suppress(BlockingIOError):
                    view = view[os.write(self._write_fd, view) :]
            return True
        return False

    def receive(self, deadline_s: float, max_bytes: int) -> bytes | Ended:
        """The child's next frame, or why there is none; in that case the child has been killed.

        Args:
            deadline_s: seconds from now for the whole frame.
            max_bytes: a frame that announces more is not read.
        """
        self.ready()
        return self._frame(deadline_s, max_bytes)

    def _frame(self, deadline_s: float, max_bytes: int) -> bytes | Ended:
        if self._ended is not None:
            return self._ended
        end = time.monotonic() + deadline_s
        header = self._read(HEADER.size, end)
        if isinstance(header, str):
            return self._finish(header)
        (size,) = HEADER.unpack(header)
        if size > max_bytes:
            return self._finish("too_large")
        payload = self._read(size, end)
        return self._finish(payload) if isinstance(payload, str) else bytes(payload)

    def _read(self, size: int, end: float) -> bytearray | Literal["timeout", "closed"]:
        taken = bytearray()
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN | select.POLLHUP)
        while len(taken) < size:
            left = end - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                return "timeout"
            with contextlib.suppress(BlockingIOError):
                piece = os.read(self._read_fd, min(size - len(taken), 1 << 20))
                if not piece:
                    return "closed"
                taken += piece
        return taken

    # ending

    def _finish(self, reason: Literal["timeout", "closed", "too_large"]) -> Ended:
        """End the child, and say how it ended."""
        ended_by_itself = False
        if reason == "closed":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
                ended_by_itself = True
        self.kill()
        code = self._process.returncode
        if code is not None and code > 128 and self.level.startswith("bubblewrap"):
            code = 128 - code  # bwrap reports its child's signal as a shell does
        name = None
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
        self._ended = Ended(
            reason=self._broke or ("exited" if ended_by_itself else reason),
            returncode=code,
            signal=name,
            output_text=self.output_text,
            interrupted=self._interrupted,
        )
        return self._ended

    @property
    def output_text(self) -> str:
        """What the child has printed so far, stdout and stderr together, up to the cap: printable text only."""
        return printable(bytes(self._output).decode("utf-8", "backslashreplace"))

    @property
    def pid(self) -> int:
        """The child's process id (bwrap's, where that is between)."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child runs, as far as one can see without talking to it."""
        return self._ended is None and self._process.poll() is None

    def stop(self) -> None:
        """Send the child its end and do not wait for it; `kill` does, and removes what is left."""
        self._signal()

    def kill(self) -> None:
        """End the child and all that came of it, and remove its scratch folder. Safe to call again."""
        self._signal()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if self.level == "none":
            processes.kill_marked(self.token)
        with self._lock:
            self._handles.wait(5)  # inside bubblewrap the namespace ends a moment after bwrap does
        if self._drain is not threading.current_thread():
            self._drain.join(5)
        self._close_fds()
        scratch.remove(self.scratch)

    def interrupt(self) -> None:
        """End the child from another thread than the one that talks to it; that one then gets an `Ended`."""
        self._interrupted = True
        self._signal()

    def _signal(self) -> None:
        with self._lock:
            if self._process.poll() is None:
                if not self._greeted and self.level.startswith("bubblewrap"):
                    self._handles.hold(processes.below(self._process.pid))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._handles.kill()

    def _close_fds(self) -> None:
        with self._lock:
            while self._fds:
                os.close(self._fds.pop())

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()


def printable(text: str) -> str:
    """The text with everything that could steer a terminal or a log escaped; line ends and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


# The kernel sends a parent-death signal when the *thread* that started the child ends, so all are started by one.
_jobs: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]] | None = None
_jobs_lock = threading.Lock()


def in_spawner(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process from the thread that starts all of them."""
    global _jobs
    future: Future[subprocess.Popen[bytes]] = Future()
    with _jobs_lock:
        if _jobs is None:
            _jobs = queue.SimpleQueue()
            threading.Thread(target=_spawner, args=(_jobs,), name="pallas_evo spawner", daemon=True).start()
        _jobs.put((start, future))
    return future.result()


def _spawner(
    jobs: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]],
) -> None:
    while True:
        start, future = jobs.get()
        try:
            future.set_result(start())
        except BaseException as error:
            future.set_exception(error)
        del start, future


def _forget_spawner() -> None:
    global _jobs, _jobs_lock
    _jobs, _jobs_lock = None, threading.Lock()


if sys.platform == "linux":
    os.register_at_fork(after_in_child=_forget_spawner)
