"""Imports point one way, stay light, and modules stay small enough to read."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pallas_evo

PACKAGE = Path(pallas_evo.__file__).parent
BASE = {"types", "errors", "reasons", "config", "paths", "devices"}
ALLOWED = {
    "types": set(),
    "errors": set(),
    "reasons": set(),
    "paths": set(),
    "config": {"errors"},
    "devices": {"types"},
    "tasks": BASE,
    "jail": BASE,
    "tracing": BASE | {"tasks", "jail"},
    "artefact": BASE | {"tasks", "jail"},
    "running": BASE | {"tasks", "jail"},
    "judging": BASE | {"tasks"},
    "evaluation": BASE | {"tasks", "jail", "tracing", "artefact", "running", "judging"},
    "verification": BASE | {"tasks", "jail", "tracing", "artefact", "running", "judging", "evaluation"},
    "archive": {"types", "errors"},
    "reporting": {"types", "errors"},
}
"""Part -> what it may import of ours. A part that is not here is in JOINING."""
JOINING = {"bench", "cli", "seed", "evolution", "pool", "__init__", "__main__"}


def imports(path: Path) -> set[str]:
    """The parts of pallas_evo that a module names, wherever it imports them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "pallas_evo":
            names = [f"pallas_evo.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names = [node.module or ""]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("pallas_evo.")}
    return found


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if "_data" not in path.parts]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_is_below_it(path):
    part = part_of(path)
    if part in ALLOWED:
        assert imports(path) - {part, "__version__"} <= ALLOWED[part]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_is_too_long_to_read(path):
    assert len(path.read_text().splitlines()) <= 600


def test_every_part_is_known():
    """A new part gets a place in the order before it gets imports."""
    assert {part_of(path) for path in MODULES} <= set(ALLOWED) | JOINING


def test_the_test_sees_imports_wherever_they_are(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "from pallas_evo import cli\ndef f():\n    import pallas_evo.seed\n    from pallas_evo.jail.worker import x\n"
    )
    assert imports(file) == {"cli", "seed", "jail"}


@pytest.mark.parametrize(
    "module",
    ["pallas_evo", "pallas_evo.tasks", "pallas_evo.cli.app", "pallas_evo.archive", "pallas_evo.pool.server"],
)
def test_the_doors_are_light(module):
    """Neither JAX nor ShinkaEvolve comes with a door; both take seconds."""
    code = f"import sys, {module}; print(*sorted({{'jax', 'shinka', 'matplotlib', 'triton'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_door_opens_all_that_it_names():
    for name in pallas_evo.__all__:
        assert getattr(pallas_evo, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = pallas_evo.nonsense
