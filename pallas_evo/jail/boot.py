"""The first code of ours in a child process: `python boot.py IN OUT`, or `python boot.py --nurse SOCKET`.

A child reads its specification from the IN descriptor, sets limits, imports the child module (ours), confines itself,
says so in a first frame on OUT, and calls the module's `main(channel)`. Until that call only our own code has run, so
what goes wrong before is our failure and not a candidate's. A nursery (`nursery.py` is its other side) imports a module
once and forks a child for each request; the child then goes the same way.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import socket
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from typing import Any

MESSAGE_BYTES = 1 << 16
MOST_DESCRIPTORS = 16


def _adopt_package(folder: str) -> None:
    """Make `pallas_evo` importable without its `__init__`, which is for users and is not there in a jail."""
    package = types.ModuleType("pallas_evo")
    package.__path__ = [folder]
    sys.modules["pallas_evo"] = package


def run(inward: int, outward: int) -> None:
    """Everything that a child does, from its first frame to its exit."""
    from pallas_evo.jail import confinement
    from pallas_evo.jail.frames import Channel

    channel = Channel(inward, outward)
    frame = channel.receive()
    if frame is None:
        os._exit(1)
    spec = json.loads(frame)
    confinement.die_with_parent(spec["parent_pid"])
    sys.path += [path for path in spec["path"] if path not in sys.path]
    sys.argv = [spec["module"]]
    try:
        confinement.set_limits(spec["limits"])
        import importlib

        module = importlib.import_module(spec["module"])
        # Or the first user of a temporary file would try whether it can remove one: in a jail it can't.
        tempfile.tempdir = spec["scratch"]
        if spec["confine"]:
            confinement.confine(spec["readable"], spec["listable"], spec["scratch"])
    except BaseException as error:
        channel.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    channel.send(json.dumps({"error": None}).encode())
    module.main(channel)


def nurse(number: int) -> None:
    """Import a module, then fork a child for each request, and report how each ended, until the other side is gone."""
    from pallas_evo.jail import confinement

    parent = socket.socket(fileno=number)
    first = json.loads(parent.recv(MESSAGE_BYTES))
    confinement.die_with_parent(first["parent_pid"])
    sys.path += first["path"]
    try:
        import importlib

        confinement.import_seccomp()
        module = importlib.import_module(first["module"])
        for name in ("landlock", *getattr(module, "PRELOAD", ())):
            importlib.import_module(name)
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:  # a fork has only the thread that forks: whatever the others hold would stay held for ever
            raise RuntimeError(f"{first['module']} starts threads when it is imported ({threads})")
    except BaseException as error:
        parent.send(json.dumps({"ready": False, "why": f"{type(error).__name__}: {error}"[:1000]}).encode())
        os._exit(1)
    gc.freeze()  # the collector would write to, and so copy, every page that children share
    parent.send(json.dumps({"ready": True}).encode())
    children: dict[int, int] = {}  # by pidfd
    while True:
        watched: list[Any] = [parent, *children]
        for ready in select.select(watched, [], [])[0]:
            if ready is parent:
                data, descriptors, _, _ = socket.recv_fds(parent, MESSAGE_BYTES, MOST_DESCRIPTORS)
                if not data:
                    os._exit(0)
                _fork(parent, json.loads(data), descriptors, children)
            else:
                pid = children.pop(ready)
                _, status = os.waitpid(pid, 0)
                os.close(ready)
                parent.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _fork(
    parent: socket.socket, asked: Mapping[str, Any], descriptors: Sequence[int], children: dict[int, int]
) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        parent.send(json.dumps({"number": asked["number"], "why": str(error)}).encode())
    else:
        if pid == 0:
            _become_child(parent, asked, descriptors, children)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # the child does it, too: whoever is first
        handle = os.pidfd_open(pid)
        children[handle] = pid
        socket.send_fds(parent, [json.dumps({"number": asked["number"], "pid": pid}).encode()], [handle])
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _become_child(
    parent: socket.socket, asked: Mapping[str, Any], descriptors: Sequence[int], siblings: Mapping[int, int]
) -> None:
    """In the child: a group, standard streams, an environment and random numbers of its own. Does not return."""
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        parent.close()
        for handle in siblings:
            os.close(handle)
        inward, outward, printed, *inherited = descriptors
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.close(printed)
        os.environ.clear()
        os.environ.update(asked["env"])
        os.environ["PALLAS_EVO_INHERITED"] = ",".join(str(descriptor) for descriptor in inherited)
        os.chdir(asked["cwd"])
        random.seed()
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(int.from_bytes(os.urandom(4), "big"))
        run(inward, outward)
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        import traceback

        with contextlib.suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    _adopt_package(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if sys.argv[1] == "--nurse":
        nurse(int(sys.argv[2]))
    else:
        run(int(sys.argv[1]), int(sys.argv[2]))
