"""The docs say what the code is: tables made from it, links that lead somewhere, no path of one machine."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import typer

from pallas_evo import paths
from pallas_evo.cli.app import app
from pallas_evo.config import Config
from pallas_evo.judging.filters import FILTERS
from pallas_evo.tasks import load_tasks

ROOT = Path(paths.SEEDS).parent
COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def committed() -> list[Path]:
    """The files that git tracks; all of them where this is no checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_reasons_page_is_made_from_the_table():
    spec = importlib.util.spec_from_file_location("make_reasons", ROOT / "docs" / "make_reasons.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert (ROOT / "docs" / "reasons.md").read_text() == made.page(), "run: python docs/make_reasons.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_be_filled_in(page):
    assert not re.search(r"<!--|TODO|FIXME|XXX", page.read_text())


def test_every_page_that_a_file_names_is_there():
    for path in committed():
        if path.suffix in (".md", ".py", ".yaml", ".toml") or path.name == "Makefile":
            for page in re.findall(r"(?<![\w/])docs/[a-z0-9_]+\.md", path.read_text(errors="replace")):
                assert (ROOT / page).is_file(), f"{path.relative_to(ROOT)} names {page}"


def test_every_command_that_the_docs_name_is_there():
    for page in PAGES:
        for name in re.findall(r"(?<![/\w.])pallas_evo ([a-z][a-z-]+)", page.read_text()):
            assert name in COMMANDS, f"{page.name}: pallas_evo {name}"


def test_the_thresholds_in_the_docs_are_the_defaults():
    filters = (ROOT / "docs" / "filters.md").read_text()
    written = dict(re.findall(r"^\| `(\w+)` \|[^|]+\| ([\d.]+) \|", filters, re.MULTILINE))
    thresholds = Config().judging.filters
    assert {name: float(value) for name, value in written.items()} == {
        **{name: getattr(thresholds, name) for name in FILTERS},
        "source_analysis": 0.0,
    }
    bounds = Config().judging.numerics
    numerics = (ROOT / "docs" / "numerics.md").read_text()
    for said in (
        f"| `f32` | {bounds.yardstick_factor:g} times the yardstick's, never asked below {bounds.normwise_floor:.0e}",
        f"| {bounds.f32_rtol:.0e} abs(ref) + {bounds.f32_atol_rms:.0e} RMS(ref) |",
        f"| {bounds.dot_rtol:.0e} abs(ref) + a RMS(ref), a = {bounds.yardstick_factor:g} times",
        f"at least {bounds.dot_atol_rms:.0e} |",
    ):
        assert re.sub(r"e-0", "e-", said) in numerics


def test_the_seeds_in_the_docs_are_counted():
    text = (ROOT / "docs" / "seeds.md").read_text()
    counted = Counter(task.level for task in load_tasks())
    assert f"level1` ({counted[1]} " in text
    assert f"level2` ({counted[2]} " in text
    assert f"level3` ({counted[3]} " in text


def test_the_two_commands_are_there():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^seed:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)
    ci = ROOT / ".ci" / "run"
    assert ci.stat().st_mode & 0o111
    assert "make test" in ci.read_text()


def test_no_committed_file_names_a_machine_or_a_download_host():
    bad = re.compile(rb"/(?:work|root|farm)/[a-z.]|/home/[a-z]+/|files\.pythonhosted|pypi\.org/(?:simple|packages)")
    found = []
    for path in committed():
        if path.suffix in (".sqlite", ".png") or path.name == "test_docs.py" or "attacks" in path.parts:
            continue
        if match := bad.search(path.read_bytes()):
            found.append(f"{path.relative_to(ROOT)}: {match.group(0)!r}")
    assert not found
