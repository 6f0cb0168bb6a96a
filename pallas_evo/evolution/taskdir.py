"""One task as a folder for ShinkaEvolve's own `shinka_run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pallas_evo.errors import UsageError
from pallas_evo.evolution.prompt import system_message
from pallas_evo.paths import seed_file
from pallas_evo.types import Task

FILES = ("initial.py", "evaluate.py", "shinka.yaml")

_EVALUATE = '''"""Judges one candidate for {task}; ShinkaEvolve runs a copy of this file in its results folder."""

import sys

ROOT = {root!r}  # of the pallas_evo that wrote this, for a Python that does not have it installed
if ROOT not in sys.path:
    sys.path.append(ROOT)

from pallas_evo.evolution.callback import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["--task", {task!r}, "--target", {target!r}, *sys.argv[1:]]))
'''


def write_task_dir(task: Task, folder: Path, *, target: str = "auto") -> Path:
    """Write initial.py, evaluate.py and shinka.yaml; returns the folder.

    Raises:
        UsageError: the folder cannot be written, or one of the files is there.
    """
    import yaml

    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder}: expected a folder without {', '.join(there)}. Give another, or remove them.")
    root = str(Path(__file__).resolve().parents[2])
    texts = {
        "initial.py": seed_file(task.id).read_text(encoding="utf-8"),
        "evaluate.py": _EVALUATE.format(task=task.id, root=root, target=target),
        "shinka.yaml": yaml.safe_dump(shinka_run_config(task, target), sort_keys=False, width=120),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: expected a folder that can be written ({error.strerror}).") from error
    return folder


def _evolution(task: Task, target: str) -> dict[str, Any]:
    from pallas_evo.verification import gpu_name

    return {
        "task_sys_msg": system_message(task, device=gpu_name() if target != "cpu" else None),
        "language": "python",
        "embedding_model": None,
        "use_text_feedback": True,
        "patch_types": ["diff", "full", "cross"],
        "patch_type_probs": [0.5, 0.25, 0.25],
    }


def shinka_run_config(task: Task, target: str = "auto") -> dict[str, Any]:
    """What `shinka_run --config-fname` reads; the models are left to ShinkaEvolve and to `--set evo.llm_models=...`."""
    return {
        "evo": _evolution(task, target),
        "db": {"num_islands": 2, "archive_size": 40},
        "job": {"time": "02:00:00"},
        "max_evaluation_jobs": 1,
        "max_proposal_jobs": 1,
    }
