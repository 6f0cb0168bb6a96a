"""ShinkaEvolve: the evaluator that it calls, runs seeded from the archive, and a mutator that needs no key.

judge_file      judge one candidate file and write the two files that ShinkaEvolve reads
evolve          a whole run: population, ShinkaEvolve's runner, progress, our archive
write_task_dir  a folder that `shinka_run --task-dir` runs as it is
OfflineMutator  real mutations of a kernel, without a language model

Importing this imports neither shinka nor jax: each name is looked up when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pallas_evo.evolution.callback import judge_file as judge_file
    from pallas_evo.evolution.mutator import OfflineMutator as OfflineMutator
    from pallas_evo.evolution.runs import evolve as evolve
    from pallas_evo.evolution.taskdir import write_task_dir as write_task_dir

__all__ = ["OfflineMutator", "evolve", "judge_file", "write_task_dir"]

_HOMES = {"judge_file": "callback", "OfflineMutator": "mutator", "evolve": "runs", "write_task_dir": "taskdir"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pallas_evo.evolution' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pallas_evo.evolution.{_HOMES[name]}"), name)
