"""What docs/evolution.md says of the recorded runs is their record's."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

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
