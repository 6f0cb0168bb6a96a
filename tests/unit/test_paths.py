"""What is a task's seed: to the letter, and of that task."""

from __future__ import annotations

from pallas_evo.paths import is_seed, seed_file
from pallas_evo.tasks import load_tasks


def test_each_seed_is_its_own_tasks_and_no_others():
    sources = {task.id: seed_file(task.id).read_text() for task in load_tasks()}
    assert all(is_seed(task, source) for task, source in sources.items())
    assert not is_seed("L1/relu", sources["L1/gelu"])
    assert not is_seed("L1/relu", sources["L1/relu"] + " ")


def test_a_task_that_has_no_seed_here():
    assert not is_seed("L1/somebodys_own", "def kernel(x): ...")
