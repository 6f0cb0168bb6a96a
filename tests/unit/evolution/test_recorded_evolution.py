"""What docs/evolution.md says of the recorded runs is their record's."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

from pallas_evo.archive import open_archive

ROOT = Path(__file__).parents[3]


def test_the_table_is_the_records():
    page = (ROOT / "docs" / "evolution.md").read_text()
    named = re.findall(r"\]\(\.\./(runs/[^)]+/evolve\.json)\)", page)
    assert named
    spec = importlib.util.spec_from_file_location("gpu_evolve", ROOT / "benchmarks" / "gpu_evolve.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["gpu_evolve"] = benchmark  # its dataclasses look themselves up there
    spec.loader.exec_module(benchmark)
    for name in named:
        assert benchmark.markdown(json.loads((ROOT / name).read_text())) in page, f"make the table from {name} again"


def test_the_seeds_of_the_recorded_runs_are_seeds():
    """Or the report has nothing to hold their best against."""
    summary = json.loads((ROOT / "runs" / "h200-2026-12-01" / "evolve.json").read_text())
    with open_archive(ROOT / "runs" / "h200-2026-12-01" / "evolve.sqlite", read_only=True) as archive:
        seeds = {program.task for program in archive.programs() if program.origin == "seed"}
    assert seeds == {task["task"] for task in summary["tasks"]}
