"""pallas_evo: seed kernels and an honest judge for evolving JAX Pallas GPU kernels.

load_tasks      the 45 tasks
evaluate        judge one candidate
open_archive    the archive of seeds, programs and evaluations

Importing this loads neither jax nor shinka: each name is looked up when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pallas_evo.archive import open_archive as open_archive
    from pallas_evo.evaluation import evaluate as evaluate
    from pallas_evo.tasks import load_tasks as load_tasks

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "load_tasks", "open_archive"]

_HOMES = {
    "load_tasks": "pallas_evo.tasks",
    "evaluate": "pallas_evo.evaluation",
    "open_archive": "pallas_evo.archive",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pallas_evo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
