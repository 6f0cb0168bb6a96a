"""A Hydra plugin: `shinka_launch task=L1_softmax` finds the 45 tasks.

Hydra looks for plugins in the namespace package `hydra_plugins`, where a one-line module imports this class
(docs/evolution.md). The task files name the prompt and the paths by resolvers, so that they hold on any machine.
"""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from pallas_evo.paths import CONFIGS, EVALUATORS, seed_file


def _prompt(task_id: str) -> str:
    from pallas_evo.evolution.prompt import system_message
    from pallas_evo.tasks import get_task
    from pallas_evo.verification import gpu_name

    return system_message(get_task(task_id), device=gpu_name())


class PallasEvoSearchPath(SearchPathPlugin):  # type: ignore[misc]
    """Adds configs/shinka to Hydra's search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called once by Hydra before it composes a configuration."""
        OmegaConf.register_new_resolver("pallas_evo_prompt", _prompt, replace=True)
        OmegaConf.register_new_resolver("pallas_evo_seed", lambda task_id: str(seed_file(task_id)), replace=True)
        OmegaConf.register_new_resolver("pallas_evo_evaluator", lambda: str(EVALUATORS / "evaluate.py"), replace=True)
        search_path.append("pallas_evo", f"file://{CONFIGS / 'shinka'}")
