"""The wheel: one package, with seeds and configs inside it and nothing else at top level."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pallas_evo import paths
from pallas_evo.tasks import load_tasks

ROOT = Path(paths.SEEDS).parent


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed here: pip install hatchling")
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(out),
            str(ROOT),
        ],
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_nothing_else_is_installed_at_top_level(names):
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"pallas_evo"}


def test_seeds_and_configs_are_inside(names):
    for task in load_tasks():
        for file in (paths.seed_file(task.id), paths.original_file(task.id)):
            assert f"pallas_evo/_data/seeds/{file.relative_to(paths.SEEDS)}" in names
    for folder in (paths.CONFIGS, paths.EVALUATORS):
        for file in folder.rglob("*"):
            if file.suffix in (".yaml", ".py") and "__pycache__" not in file.parts:
                assert f"pallas_evo/_data/{folder.name}/{file.relative_to(folder)}" in names
    assert {name.split("/")[2] for name in names if "/_data/" in name} == {"seeds", "evaluators", "configs"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "pallas_evo/_data/seeds/tpu/findings.json" in names
    assert any(name.startswith("pallas_evo/archive/migrations/versions/") for name in names)
