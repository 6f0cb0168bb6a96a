"""The docs say what the code is: tables made from it, links that lead somewhere, no path of one machine."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from pallas_evo import paths

ROOT = Path(paths.SEEDS).parent
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


def test_no_committed_file_names_a_machine_or_a_download_host():
    bad = re.compile(rb"/(?:work|root|farm)/[a-z.]|/home/[a-z]+/|files\.pythonhosted|pypi\.org/(?:simple|packages)")
    found = []
    for path in committed():
        if path.suffix in (".sqlite", ".png") or path.name == "test_docs.py" or "attacks" in path.parts:
            continue
        if match := bad.search(path.read_bytes()):
            found.append(f"{path.relative_to(ROOT)}: {match.group(0)!r}")
    assert not found
