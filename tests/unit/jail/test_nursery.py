"""A nursery's children are as fresh, as confined and as mortal as those that are started from nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from jailed import CHILD, ENVIRONMENT, FORKED, WORKING, run

from pallas_evo.errors import WorkerFailed
from pallas_evo.jail import Ended, Nursery, Worker
from pallas_evo.jail.nursery import Forked

LEVEL = "landlock+seccomp"
pytestmark = pytest.mark.skipif(LEVEL not in WORKING, reason="this kernel has no Landlock")


@pytest.fixture
def nursery():
    with Nursery(CHILD, env=ENVIRONMENT) as made:
        yield made


def child(nursery: Nursery) -> Worker:
    return Worker(CHILD, nursery=nursery, _level=LEVEL)


def gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.02)
    return not os.path.exists(f"/proc/{pid}")


def test_random_numbers_are_not_its_siblings():
    code = "import random, numpy, uuid\nprint(random.random(), numpy.random.random(), uuid.uuid4())"
    first, second = (run(code, LEVEL + FORKED).output_text.split() for _ in range(2))
    assert len(first) == 3
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_what_a_child_changes_its_siblings_do_not_see():
    run("import jax\njax.changed = True\nimport os\nos.environ['CHANGED'] = '1'", LEVEL + FORKED)
    seen = run("import jax, os\nprint(hasattr(jax, 'changed'), os.environ.get('CHANGED'))", LEVEL + FORKED)
    assert "False None" in seen.output_text


def test_a_child_holds_no_descriptor_of_its_siblings(nursery):
    with child(nursery) as first, child(nursery) as second:
        first.ready()
        second.ready()
        count = [len(os.listdir(f"/proc/{worker.pid}/fd")) for worker in (first, second)]
        assert count[0] == count[1]


def test_children_end_with_their_nursery_and_workers_notice(nursery):
    with child(nursery) as worker:
        worker.ready()
        os.kill(nursery.pid, signal.SIGKILL)
        ended = worker.receive(10, 16) if worker.receive(10, 16) == b"R" else None
        assert ended is None or isinstance(ended, Ended)
        assert gone(worker.pid)
    assert not nursery.alive


def test_without_its_nursery_a_worker_is_started_from_nothing(nursery):
    os.kill(nursery.pid, signal.SIGKILL)
    nursery._process.wait(10)
    with child(nursery) as worker:
        assert not isinstance(worker._process, Forked)
        assert worker.receive(60, 16) == b"R"


def test_a_killed_child_has_its_signal_for_a_code(nursery):
    with child(nursery) as worker:
        assert worker.receive(60, 16) == b"R"
        os.kill(worker.pid, signal.SIGKILL)
        ended = worker.receive(10, 16)
        assert isinstance(ended, Ended)
        assert ended.signal == "SIGKILL"


def test_closing_ends_all(nursery):
    worker = child(nursery)
    worker.ready()
    nursery.close()
    assert gone(worker.pid)
    worker.kill()


def test_a_module_that_cannot_be_imported_has_no_children():
    with Nursery("pallas_evo.no_such_module") as broken, pytest.raises(WorkerFailed, match="no_such_module"):
        broken.fork(env={}, cwd="/", channel=(0, 0), printed=1)


def test_it_dies_with_its_parent():
    script = (
        "import time\nfrom pallas_evo.jail import Nursery\n"
        f"made = Nursery({CHILD!r})\nprint(made.pid, flush=True)\ntime.sleep(100)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    assert gone(pid)
