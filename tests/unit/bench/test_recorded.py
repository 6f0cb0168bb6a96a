"""Recorded benches: their tables are made from their records, and so is what the README says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pallas_evo import paths
from pallas_evo.bench.record import read_record
from pallas_evo.bench.table import SECTIONS, markdown, our_failures, summary

ROOT = Path(paths.SEEDS).parent
RECORDS = sorted((ROOT / "runs").glob("*/bench.json"))


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.parent.name)
def test_the_page_beside_a_record_is_made_from_it(file):
    page = file.with_name("bench.md")
    assert page.read_text() == markdown(read_record(file)), f"python -m pallas_evo.bench.table {file} > {page}"


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.parent.name)
def test_a_record_can_be_shown_part_by_part(file):
    record = read_record(file)
    assert our_failures(record) is not None
    for section in SECTIONS.values():
        assert "nan" not in section(record)


def test_the_readmes_figures_are_a_records():
    text = (ROOT / "README.md").read_text()
    for named in re.findall(r"\]\((runs/[^)]+/bench)\.(?:json|md)\)", text):
        said = summary(read_record(ROOT / f"{named}.json"))
        assert said in text, f"python -m pallas_evo.bench.table {named}.json --part summary"
