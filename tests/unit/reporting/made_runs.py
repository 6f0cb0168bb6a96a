"""ShinkaEvolve run folders as its 0.0.7 leaves them, made without it: the schema is its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE programs (
  id TEXT PRIMARY KEY, code TEXT NOT NULL, language TEXT NOT NULL, parent_id TEXT, archive_inspiration_ids TEXT,
  top_k_inspiration_ids TEXT, generation INTEGER NOT NULL, timestamp REAL NOT NULL, code_diff TEXT, combined_score REAL,
  public_metrics TEXT, private_metrics TEXT, text_feedback TEXT, complexity REAL, embedding TEXT, embedding_pca_2d TEXT,
  embedding_pca_3d TEXT, embedding_cluster_id INTEGER, correct BOOLEAN DEFAULT 0,
  children_count INTEGER NOT NULL DEFAULT 0, metadata TEXT, migration_history TEXT, island_idx INTEGER,
  system_prompt_id TEXT
);
CREATE TABLE archive (program_id TEXT PRIMARY KEY);
CREATE TABLE metadata_store (key TEXT PRIMARY KEY, value TEXT);
"""

OURS = {"task": "L1/relu", "task_version": 1, "device": "NVIDIA H200", "timer": "cupti", "sizes": ["medium"]}


def program(id: str, **columns: Any) -> dict[str, Any]:
    """A row of `programs`; mappings become the JSON that ShinkaEvolve stores."""
    row = {
        "id": id, "code": f"# {id}\n", "language": "python", "parent_id": None, "generation": 0,
        "timestamp": 1_767_225_600.0, "combined_score": 1.0, "correct": 1, "public_metrics": {}, "private_metrics": {},
        "metadata": {}, "text_feedback": "", "island_idx": 0,
    } | columns  # fmt: skip
    return {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}


def make_run(folder: Path, rows: Sequence[Mapping[str, Any]], *, name: str = "programs.sqlite") -> Path:
    """The folder with its database, at rest; returns the database."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        add(connection, rows)
    return path


def add(connection: sqlite3.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert programs, as a run at work does."""
    for row in rows:
        names = ", ".join(row)
        marks = ", ".join("?" for _ in row)
        connection.execute(f"INSERT INTO programs ({names}) VALUES ({marks})", tuple(row.values()))


def small_run(folder: Path) -> Path:
    """A seed on two islands, a better child, a child of it that is refused."""
    return make_run(
        folder,
        [
            program("seed-0", code="# seed\n", private_metrics=OURS, combined_score=0.5),
            program("seed-1", code="# seed\n", private_metrics=OURS, combined_score=0.5, island_idx=1),
            program(
                "better", parent_id="seed-1", generation=1, combined_score=1.25, island_idx=1, private_metrics=OURS,
                metadata={"patch_name": "wider"},
                public_metrics={"medium_us": 8.0, "medium_xla_us": 10.0, "medium_roofline_percent": 60.0},
            ),
            program(
                "refused", parent_id="better", generation=2, combined_score=0.0, correct=0, island_idx=1,
                private_metrics={**OURS, "device": None, "timer": "untimed", "sizes": [], "reason": "numerics"},
            ),
        ],
    )  # fmt: skip
