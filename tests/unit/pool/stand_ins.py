"""A judge that judges nothing: what a candidate's text says is done, and the verdict says who did it.

sleep 0.5      takes half a second
die            its process is killed, every time
die once PATH  its process is killed unless PATH is there, which it makes first
ours           our own failure
bug            an exception that nobody expected
note PATH      PATH gets a line when the judging begins
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from pallas_evo.errors import JailUnavailable, WorkerFailed
from pallas_evo.jail import scratch
from pallas_evo.jail.confinement import die_with_parent
from pallas_evo.paths import SEEDS
from pallas_evo.pool.pool import Pool
from pallas_evo.types import Evaluation

FACTORY = "stand_ins:StandIn"
BROKEN = "stand_ins:broken"
HERE = str(Path(__file__).parent)


class StandIn:
    """In place of an `Evaluator`; its environment holds what it was made with, and how often."""

    made = 0

    def __init__(self, config, target):
        StandIn.made += 1
        self.config, self.target, self.child = config, target, None

    def prepare(self):
        """One process waits, as spares do."""
        if self.child is None:
            judge = os.getpid()
            self.folder = scratch.make()
            self.child = subprocess.Popen(["sleep", "3600"], preexec_fn=lambda: die_with_parent(judge))

    def evaluate(self, source, task, *, more=False):
        for line in source.splitlines():
            self._obey(line)
        return Evaluation(
            task=task.id, task_version=1, target=self.target, correct=True, combined_score=1.0, status="accepted",
            stage=None, reason=None, message="", gates=(), filters={}, sizes={}, compiled={}, ran_on="cpu",
            compiled_for=(), jail=None, seeds={"small": self.config.judging.small_seeds},
            candidate_sha256=hashlib.sha256(source.encode()).hexdigest(), duration_s=0.0,
            environment={"judge": os.getpid(), "made": StandIn.made, "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")},
        )  # fmt: skip

    def _obey(self, line):
        word, _, rest = line.partition(" ")
        if word == "sleep":
            time.sleep(float(rest))
        elif word == "note":
            with open(rest, "a") as file:
                file.write(f"{os.getpid()}\n")
        elif line.startswith("die once "):
            marker = Path(line.removeprefix("die once "))
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        elif word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "ours":
            raise WorkerFailed("the disk is full")
        elif word == "bug":
            raise ZeroDivisionError("nobody thought of this")

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None
            scratch.remove(self.folder)


def broken(config, target):
    """A judge that cannot be made."""
    raise JailUnavailable("Expected a way to confine a candidate; this machine has none.")


def pool(**settings):
    """A pool of stand-ins on the CPU."""
    return Pool(target="cpu", **{"judges": 1, "_factory": FACTORY, **settings})


def alive(pid):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def below(pid):
    """All processes below one."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def until(true, seconds=20.0):
    """Wait until something is true; a guard against hanging, and no measurement."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


SERVE = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from pallas_evo.pool import protocol
from pallas_evo.pool.server import Server
from stand_ins import pool

protocol.build = lambda: "test"

def log(line):
    print(line, file=sys.stderr, flush=True)

with pool(judges={judges}, say=log) as made:
    server = Server(made, Path({path!r}), say=log)
    made.wait_ready(every=True)
    print("ready", flush=True)
    server.serve()
"""


@contextmanager
def serving(path, judges=1):
    """A service of stand-ins in a process of its own."""
    code = SERVE.format(here=HERE, judges=judges, path=str(path))
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(20)
