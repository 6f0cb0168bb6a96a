"""The first code of ours in a child process: `python boot.py IN OUT`, started by `worker.py` and by nothing else.

Reads the specification from the IN descriptor, sets limits, imports the child module (ours), confines the process,
says so in a first frame on OUT, and calls the module's `main(channel)`. Until that call only our own code has run, so
what goes wrong before is our failure and not a candidate's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types


def _adopt_package(folder: str) -> None:
    """Make `pallas_evo` importable without its `__init__`, which is for users and is not there in a jail."""
    package = types.ModuleType("pallas_evo")
    package.__path__ = [folder]
    sys.modules["pallas_evo"] = package


def run(inward: int, outward: int) -> None:
    """Everything that a child does, from its first frame to its exit."""
    _adopt_package(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from pallas_evo.jail import confinement
    from pallas_evo.jail.frames import Channel

    channel = Channel(inward, outward)
    frame = channel.receive()
    if frame is None:
        os._exit(1)
    spec = json.loads(frame)
    confinement.die_with_parent(spec["parent_pid"])
    sys.path += spec["path"]
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


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
