"""docs/export.md describes the columns that the files have."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from pallas_evo import paths
from pallas_evo.reporting.dataset_columns import COLUMNS, NAMES

DOCS = Path(paths.SEEDS).parent / "docs"


def test_the_table_is_made_from_the_columns():
    spec = importlib.util.spec_from_file_location("make_export", DOCS / "make_export.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = (DOCS / "export.md").read_text(encoding="utf-8")
    assert made.page(text) == text, "run: python docs/make_export.py"
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(NAMES)


def test_every_column_says_how_it_is_made():
    assert all(column.how for column in COLUMNS)
    assert len(set(NAMES)) == len(NAMES)
    assert {column.name for column in COLUMNS if column.name.endswith("_Runtime")} == {
        column.name for column in COLUMNS if column.unit == "ms"
    }
