"""Where seeds, evaluators and configs lie: beside the package in a checkout, under `_data` in an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "_data"
_ROOT = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent

SEEDS = _ROOT / "seeds"
EVALUATORS = _ROOT / "evaluators"
CONFIGS = _ROOT / "configs"

DEFAULT_ARCHIVE = Path("runs") / "archive.sqlite"
"""The default archive, under the working directory."""


def seed_file(task_id: str) -> Path:
    """The seed program of a task: `L1/relu` is `seeds/level1/relu.py`."""
    level, name = task_id.split("/")
    return SEEDS / f"level{level[1:]}" / f"{name}.py"


def is_seed(task_id: str, source: str) -> bool:
    """Whether a program is the task's seed, to the letter."""
    try:
        return seed_file(task_id).read_text(encoding="utf-8") == source
    except OSError:  # a task of somebody's own has no seed here
        return False


def original_file(task_id: str) -> Path:
    """The TPU-sized original that the task's seed came from: `L1/relu` is `seeds/tpu/level1/relu.py`."""
    level, name = task_id.split("/")
    return SEEDS / "tpu" / f"level{level[1:]}" / f"{name}.py"
