"""A run's programs in our archive: with parent, diff, island, generation and the whole evaluation."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pallas_evo.archive import Archive, new_id, sha256_of_text
from pallas_evo.archive.encoding import build, restore
from pallas_evo.evolution.rundir import DATABASE, EVALUATION, RunSettings
from pallas_evo.paths import is_seed
from pallas_evo.types import Evaluation, Task

_COLUMNS = "id, code, parent_id, generation, island_idx, combined_score, correct, metadata"


def archive_run(
    archive: Archive, folder: Path, settings: RunSettings, task: Task, *, database: Path | None = None
) -> int:
    """Add what the archive lacks of a run; returns how many evaluations were added. May be called again.

    `database` is a copy of ShinkaEvolve's, for a folder that is not to be written to; a run that we did not start has
    no settings in it.
    """
    with closing(sqlite3.connect(database or folder / DATABASE)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute(f"SELECT {_COLUMNS} FROM programs ORDER BY generation, timestamp").fetchall()
    archive.add_tasks([task])
    run_yaml = _text(folder / "run.yaml")
    archive.add_run("evolve", run_id=settings.run_id, task=task.id, name=folder.name, config_yaml=run_yaml)
    there = Counter(record.candidate_sha256 for record in archive.evaluations(run_id=settings.run_id))
    hashes = {row["id"]: sha256_of_text(row["code"]) for row in rows}
    codes = {row["id"]: row["code"] for row in rows}
    config_yaml = _text(folder / EVALUATION)
    added, done = 0, set()
    for row in rows:
        if row["generation"] in done:  # ShinkaEvolve's copies of one program on several islands
            continue
        done.add(row["generation"])
        sha256 = hashes[row["id"]]
        if there[sha256] > 0:
            there[sha256] -= 1
            continue
        results = folder / f"gen_{row['generation']}" / "results"
        evaluation = _evaluation(results)
        if evaluation is None or evaluation.candidate_sha256 != sha256:
            continue
        parent = row["parent_id"] if codes.get(row["parent_id"]) != row["code"] else None
        archive.together(
            partial(
                _keep, archive, task.id, settings.run_id, row, hashes.get(parent), evaluation, config_yaml, new_id()
            )
        )
        added += 1
    return added


def _keep(
    archive: Archive,
    task: str,
    run_id: str,
    row: sqlite3.Row,
    parent_sha256: str | None,
    evaluation: Evaluation,
    config_yaml: str | None,
    evaluation_id: str,
) -> None:
    """A program and its evaluation; may be called again."""
    program = archive.add_program(
        task,
        row["code"],
        origin="mutation" if parent_sha256 is not None else "seed" if is_seed(task, row["code"]) else "candidate",
        parent_sha256=parent_sha256,
        name=_metadata(row).get("patch_name"),
        run_id=run_id,
        generation=row["generation"],
        island=row["island_idx"],
        metadata=_kept(_metadata(row)),
    )
    archive.add_evaluation(
        program,
        evaluation,
        run_id=run_id,
        config_yaml=config_yaml,
        other_samples_us={
            size: {"xla": list(measured["baseline_us"])}
            for size, measured in evaluation.environment.get("timing", {}).items()
            if "baseline_us" in measured
        },
        evaluation_id=evaluation_id,
    )


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _evaluation(results: Path) -> Evaluation | None:
    try:
        content = json.loads((results / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return build(Evaluation, restore(content))


def _metadata(row: sqlite3.Row) -> dict[str, Any]:
    try:
        content = json.loads(row["metadata"] or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _kept(metadata: dict[str, Any]) -> dict[str, Any]:
    """What says how a program was made; ShinkaEvolve's logs and timings stay in its own database."""
    names = ("patch_type", "patch_name", "patch_description", "model_name", "api_costs")
    return {name: metadata[name] for name in names if metadata.get(name) is not None}
