"""Pairs before and after: every program but the originals, with what it was made from."""

from __future__ import annotations

import json

import pytest
from made_archive import CHILD, GRANDCHILD, HOSTILE, ORIGINAL, SEED, SWIGLU, TEXTS, made

from pallas_evo.archive import sha256_of_text, unified_diff
from pallas_evo.cli.export import task_facts
from pallas_evo.paths import original_file
from pallas_evo.reporting import dataset_rows, kernelbook


@pytest.fixture(params=[1, 200], ids=["one at a time", "in one chunk"])
def objects(tmp_path, request, monkeypatch):
    monkeypatch.setattr(dataset_rows, "CHUNK", request.param)
    monkeypatch.setattr(kernelbook, "CHUNK", request.param)
    with made(tmp_path / "archive.sqlite") as archive:
        kernelbook.write_kernelbook(archive, task_facts(), tmp_path, version="1.2.3", day="2026-12-01")
    lines = (tmp_path / "kernelbook.jsonl").read_bytes().decode("ascii").splitlines()
    assert "4 of them with what they were made from" in " ".join((tmp_path / "README.md").read_text().split())
    return {found["program_id"]: found for found in (json.loads(line, parse_constant=pytest.fail) for line in lines)}


def test_every_program_but_the_originals(objects):
    sources = (SEED, CHILD, GRANDCHILD, HOSTILE)
    assert {sha256_of_text(source) for source in sources} < set(objects)
    assert len(objects) == len(sources) + 1
    assert sha256_of_text(ORIGINAL) not in objects


@pytest.mark.parametrize(("before", "after"), [(ORIGINAL, SEED), (SEED, CHILD), (CHILD, GRANDCHILD)])
def test_before_and_after(objects, before, after):
    found = objects[sha256_of_text(after)]
    assert found["parent_id"] == sha256_of_text(before)
    assert (found["source_before"], found["source_after"]) == (before, after)
    assert found["diff"] == unified_diff(before, after)


def test_a_seed_without_a_parent_comes_from_its_original(objects):
    (found,) = (one for one in objects.values() if one["task"] == SWIGLU)
    assert found["parent_id"] is None
    assert found["source_before"] == original_file(SWIGLU).read_text(encoding="utf-8")
    assert found["diff"].startswith("--- parent\n+++ child\n@@")


def test_a_file_from_nowhere_has_no_before(objects):
    found = objects[sha256_of_text(HOSTILE)]
    assert (found["source_before"], found["diff"]) == (None, None)
    assert found["source_after"] == HOSTILE.replace("\udc80", "\\udc80")


def test_texts_and_result(objects):
    found = objects[sha256_of_text(CHILD)]
    assert {kind: found[kind] for kind in TEXTS} == TEXTS
    assert found["result"]["target_hardware"] in ("NVIDIA A100", "NVIDIA H200")
    assert found["result"]["correct"] is True
    assert found["result"]["pallas_speedup"] in (2.0, 2.5)
    refused = objects[sha256_of_text(GRANDCHILD)]
    assert refused["stablehlo"] is None
    assert (refused["result"]["correct"], refused["result"]["pallas_runtime"]) == (False, None)
