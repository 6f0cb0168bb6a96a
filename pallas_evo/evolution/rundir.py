"""A run's folder: its settings, ShinkaEvolve's generations, and what must go before a killed run is resumed."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pallas_evo.errors import ConfigError, UsageError

SETTINGS = "run.yaml"
EVALUATION = "evaluation.yaml"
DATABASE = "programs.sqlite"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """All that a run is made of, beside the evaluation's own configuration.

    `generations` counts the new programs beyond the initial population, which has `population` programs once it is
    judged. `variants` are mutants of the seed, and `best` the best programs of earlier runs, in the population.
    """

    task: str
    generations: int
    run_id: str = ""
    mutator: str = "offline"
    target: str = "auto"
    islands: int = 2
    variants: int = 0
    best: int = 0
    population: int = 0
    evaluation_jobs: int = 1
    proposal_jobs: int = 1
    deadline_s: float = 300.0
    job_time: str = "02:00:00"
    seed: int = 0
    random_search: bool = False
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0)
    max_tokens: int = 16384
    patch_types: tuple[str, ...] = ("diff", "full", "cross")
    patch_type_probs: tuple[float, ...] = (0.5, 0.25, 0.25)
    archive_size: int = 40
    max_api_costs: float | None = None


def new_folder(task: str, root: Path = Path("runs")) -> Path:
    """`runs/<UTC>-<task>`."""
    return root / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{task.replace('/', '-')}"


def make_folder(folder: Path) -> None:
    """Make the folder and see that it can be written.

    Raises:
        UsageError: it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"{folder}: expected a folder for the run that can be written ({error.strerror}). Give another --run-dir."
        ) from error


def write_settings(folder: Path, settings: RunSettings) -> None:
    """Write `run.yaml`, all of it or nothing."""
    import yaml

    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(settings).items()
    }
    temporary = folder / f".{SETTINGS}"
    temporary.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    temporary.replace(folder / SETTINGS)


def read_settings(path: Path, *, task: str | None = None) -> RunSettings | None:
    """The settings in a file, or None where there is no file. `task` is for a budget, which names none.

    Raises:
        ConfigError: it holds no settings of a run.
    """
    import yaml

    if not path.exists():
        return None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        known = {field.name for field in dataclasses.fields(RunSettings)}
        if unknown := set(content) - known:
            raise ConfigError(
                f"{path}: {', '.join(sorted(unknown))} is no setting of a run ({', '.join(sorted(known))})."
            )
        if task is not None:
            content = {**content, "task": task}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
        return RunSettings(**values)
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: expected the settings of a run, came: {error}") from error


def stored_generations(folder: Path) -> set[int]:
    """The generations that have a program in ShinkaEvolve's database."""
    path = folder / DATABASE
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as connection:
        try:
            return {int(row[0]) for row in connection.execute("SELECT DISTINCT generation FROM programs")}
        except sqlite3.Error:
            return set()


def clear_unfinished(folder: Path) -> int:
    """Remove generations that a killed run left half made; returns how many numbers below the last are lost for good.

    ShinkaEvolve goes on after the last number that it stored, and a folder that is there would burn its number. A
    generation below it without a program was cut off, unless a `failure.json` says that its proposal failed.
    """
    stored = stored_generations(folder)
    last = max(stored, default=-1)
    for number, path in _generations(folder):
        cut_off = number < last and number not in stored and not (path / "failure.json").exists()
        if number > last or cut_off:
            shutil.rmtree(path, ignore_errors=True)
    present = stored | {number for number, _ in _generations(folder)}
    return len(set(range(last + 1)) - present)


def sources(folder: Path) -> Iterator[str]:
    """Every candidate that lies in the folder."""
    for _, path in _generations(folder):
        try:
            yield (path / "main.py").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _generations(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in sorted(folder.glob("gen_*")):
        if match := re.fullmatch(r"gen_(\d+)", path.name):
            yield int(match.group(1)), path
