"""The one registry of tasks."""

from __future__ import annotations

from difflib import get_close_matches

from pallas_evo.errors import UnknownTask
from pallas_evo.tasks import level1, level2, level3
from pallas_evo.types import Task

_TASKS: tuple[Task, ...] = (*level1.TASKS, *level2.TASKS, *level3.TASKS)
_BY_ID = {task.id: task for task in _TASKS}


def load_tasks() -> tuple[Task, ...]:
    """All 45 tasks in the order of their numbers."""
    return _TASKS


def get_task(id: str) -> Task:
    """The task with that id, for example `L1/relu`.

    Raises:
        UnknownTask: no task has that id; the message names the nearest ones.
    """
    try:
        return _BY_ID[id]
    except KeyError:
        nearest = ", ".join(_nearest(id))
        raise UnknownTask(f"No task is called {id!r}. Nearest: {nearest}. `pallas_evo tasks` lists all.") from None


def _nearest(id: str) -> list[str]:
    """Up to three ids like `id`, by the name after the slash first: the level is what is most often wrong."""
    name = id.rpartition("/")[2].lower()
    by_name: dict[str, str] = {known.partition("/")[2]: known for known in _BY_ID}
    inside = [known for known in by_name if name and (name in known or known in name)]
    close = get_close_matches(name, by_name, n=3, cutoff=0.0)
    return [by_name[found] for found in list(dict.fromkeys([*close[:1], *inside, *close]))[:3]]
