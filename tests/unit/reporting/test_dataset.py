"""The dataset: what was in the archive comes back from the files, in its column, or is null."""

from __future__ import annotations

import dataclasses
import json
import math
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_archive import CHILD, GRANDCHILD, HOSTILE, ORIGINAL, RELU, SEED, TEXTS, made, timed

from pallas_evo.archive import open_archive, sha256_of_text
from pallas_evo.cli.export import task_facts
from pallas_evo.reporting.dataset_columns import COLUMNS, NAMES
from pallas_evo.reporting.dataset_rows import finite, plain_text, positive, standing
from pallas_evo.tasks import get_task
from pallas_evo.tasks.listing import reference_source

pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

from pallas_evo.reporting import dataset

ISSUE = [
    "Op_Name", "Level_ID", "Task_ID", "Pallas_Runtime", "JAX_Baseline_Runtime", "Pallas_Speedup",
    "Pallas_Code", "Pallas_Code_Original", "JAX_Baseline_Code", "Correct", "Error", "Target_Hardware",
    "Framework", "Backend", "Fix_Applied", "Kernel_Name", "Program_ID", "Parent_ID", "Generation",
    "Compile_Runtime", "Max_Diff", "Filters", "Jaxpr", "StableHLO", "Triton_IR", "PTX_sm_80", "Registers",
    "Shared_Memory", "Roofline_Percent", "JAX_Version", "Timer", "Samples", "Seed_SHA256", "License",
    "Origin",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dataset")
    with made(place / "archive.sqlite") as archive:
        (place / "out").mkdir()
        dataset.write_dataset(archive, task_facts(), place / "out", version="1.2.3", day="2026-12-01")
    return place / "out"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All rows of the three tables."""
    return [row for level in (1, 2, 3) for row in pq.read_table(folder / f"level_{level}.parquet").to_pylist()]


def row(folder: Path, source: str, hardware: str | None = None) -> dict[str, Any]:
    """The one row of a program, on some hardware."""
    (found,) = (
        one
        for one in rows_of(folder)
        if one["Program_ID"] == sha256_of_text(source) and hardware in (None, one["Target_Hardware"])
    )
    return found


def test_the_columns_are_those_of_the_issue_in_its_order(folder):
    assert list(NAMES) == ISSUE
    for level in (1, 2, 3):
        schema = pq.read_schema(folder / f"level_{level}.parquet")
        assert schema.names == ISSUE
        assert [field.type for field in schema] == [field.type for field in dataset.SCHEMA]
    for column in COLUMNS:
        metadata = pq.read_schema(folder / "level_1.parquet").field(column.name).metadata
        assert metadata[b"how"].decode() == column.how
        assert metadata.get(b"unit", b"").decode() == column.unit


def test_lines_and_tables_hold_the_same_rows(folder):
    lines = (folder / "kernels.jsonl").read_bytes().decode("ascii").split("\n")
    assert lines.pop() == ""
    read = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert read == rows_of(folder)
    assert all(list(one) == ISSUE for one in read)


def test_nothing_of_the_archive_is_lost(folder):
    with open_archive(folder.parent / "archive.sqlite", read_only=True) as archive:
        programs = archive.programs()
        assert {one.sha256 for one in programs} == {one["Program_ID"] for one in rows_of(folder)}
        for program in programs:
            for one in [one for one in rows_of(folder) if one["Program_ID"] == program.sha256]:
                assert one["Pallas_Code"] == plain_text(program.source or "")
                assert one["Parent_ID"] == program.parent_sha256
                assert f"L{one['Level_ID']}/{one['Op_Name']}" == program.task
        for record in archive.evaluations():
            if record.target == "cpu" and record.candidate_sha256 == sha256_of_text(SEED):
                continue  # a correct verdict without a time, of a program that was timed
            verdict = archive.evaluation(record.id)
            (one,) = (
                one
                for one in rows_of(folder)
                if (one["Program_ID"], one["Target_Hardware"]) == (record.candidate_sha256, verdict.ran_on)
            )
            assert one["Correct"] is verdict.correct
            assert one["JAX_Version"] == verdict.environment["jax"]
            assert {name["name"]: (name["passed"], name["message"]) for name in one["Filters"]} == {
                name: (found.passed, found.message) for name, found in verdict.filters.items()
            }
            samples = {(taken.size, taken.slot): list(taken.samples_us) for taken in archive.samples(record.id)}
            assert {(taken["size"], taken["slot"]): taken["samples_us"] for taken in one["Samples"]} == samples
            for kind, column in (("jaxpr", "Jaxpr"), ("stablehlo", "StableHLO"), ("triton_ir", "Triton_IR")):
                assert one[column] == verdict.texts.get(kind)


def test_a_timed_seed_in_full(folder):
    one = row(folder, SEED)
    expected = {
        "Op_Name": "relu",
        "Level_ID": 1,
        "Task_ID": 1,
        "Pallas_Runtime": 0.04,
        "JAX_Baseline_Runtime": 0.05,
        "Pallas_Speedup": 1.25,
        "Pallas_Code": SEED,
        "Pallas_Code_Original": ORIGINAL,
        "JAX_Baseline_Code": reference_source(RELU),
        "Correct": True,
        "Error": None,
        "Target_Hardware": "NVIDIA H200",
        "Framework": "JAX Pallas",
        "Backend": "triton",
        "Kernel_Name": "the seed",
        "Parent_ID": sha256_of_text(ORIGINAL),
        "Generation": None,
        "Compile_Runtime": 300.0,
        "Max_Diff": 3e-8,
        "Jaxpr": TEXTS["jaxpr"],
        "PTX_sm_80": TEXTS["ptx_sm_80"],
        "Registers": 32,
        "Shared_Memory": 1024,
        "Roofline_Percent": 50.0,
        "Timer": "cupti",
        "Seed_SHA256": sha256_of_text(SEED),
        "License": "Apache-2.0",
        "Origin": "seed",
    }
    assert {name: one[name] for name in expected} == expected
    assert "mask" in one["Fix_Applied"]
    assert {filter["name"]: filter["value"] for filter in one["Filters"]} == {
        "output_std": 0.1 + 0.2,
        "output_range": None,
    }


def test_every_device_has_a_row_of_its_own(folder):
    assert row(folder, CHILD, "NVIDIA A100")["Pallas_Speedup"] == 2.5
    one = row(folder, CHILD, "NVIDIA H200")
    assert (one["Pallas_Speedup"], one["Generation"], one["Origin"]) == (2.0, 3, "a-model")
    assert (one["Seed_SHA256"], one["Parent_ID"]) == (sha256_of_text(SEED), sha256_of_text(SEED))


def test_what_was_not_measured_is_null(folder):
    one = row(folder, GRANDCHILD)
    assert (one["Correct"], one["Origin"]) == (False, "offline mutator")
    assert one["Error"] == "timeout: took \\udc80 too long"
    for name in (
        "Pallas_Runtime", "JAX_Baseline_Runtime", "Pallas_Speedup", "Target_Hardware", "Compile_Runtime", "Max_Diff",
        "Registers", "Shared_Memory", "Roofline_Percent", "Jaxpr", "StableHLO", "Triton_IR", "PTX_sm_80",
    ):  # fmt: skip
        assert one[name] is None, name
    assert (one["Filters"], one["Samples"]) == ([], [])


def test_no_time_is_zero_and_no_number_is_none(folder):
    for one in rows_of(folder):
        for name, value in one.items():
            assert not (isinstance(value, float) and not math.isfinite(value)), name
        for name in ("Pallas_Runtime", "JAX_Baseline_Runtime", "Pallas_Speedup"):
            assert one[name] != 0


def test_a_program_that_nobody_judged(folder):
    one = next(one for one in rows_of(folder) if one["Level_ID"] == 2)
    assert (one["Op_Name"], one["Correct"], one["Error"], one["Filters"]) == ("swiglu", None, None, None)
    one = row(folder, ORIGINAL)
    assert (one["Correct"], one["Error"]) == (None, "block_size: blocks are too large")
    assert (one["Backend"], one["Origin"], one["Fix_Applied"]) == ("tpu", "tpu_original", None)


def test_a_strangers_text(folder):
    one = row(folder, HOSTILE)
    assert one["Pallas_Code"] == HOSTILE.replace("\udc80", "\\udc80")
    assert one["Pallas_Code"].count("\x00") == 1
    assert (one["Kernel_Name"], one["Origin"], one["License"]) == ("mine \\udc80", "hand", None)
    assert (one["Seed_SHA256"], one["Fix_Applied"]) == (None, None)


def test_a_level_without_rows_is_a_table(folder):
    table = pq.read_table(folder / "level_3.parquet")
    assert (table.num_rows, table.schema.names) == (0, ISSUE)
    assert pq.ParquetFile(folder / "level_3.parquet").num_row_groups == 0  # `datasets` cannot read an empty group


def test_row_groups_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "_GROUP_ROWS", 2)
    with made(tmp_path / "archive.sqlite") as archive:
        dataset.write_dataset(archive, task_facts(), tmp_path, version="1", day="today")
    file = pq.ParquetFile(tmp_path / "level_1.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [2, 2, 2]


def test_the_card(folder):
    import yaml

    text = (folder / "README.md").read_text(encoding="utf-8")
    matter = yaml.safe_load(text.split("---\n")[1])
    assert matter["license"] == "other"  # one file names none
    assert [one["path"] for one in matter["configs"][0]["data_files"]] == ["level_1.parquet", "level_2.parquet"]
    assert all((folder / one["path"]).exists() for one in matter["configs"][0]["data_files"])
    assert matter["size_categories"] == ["n<1K"]
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.unit} |" in text
    assert "| 1 | 6 | 4 | 3 |" in text
    assert "| 3 | 0 | 0 | 0 |" in text
    assert "1.2.3" in text


def test_pandas_reads_it(folder):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(folder / "level_1.parquet")
    assert list(frame.columns) == ISSUE
    assert frame["Pallas_Speedup"].dropna().tolist() == [1.25, 2.5, 2.0]
    assert frame["Pallas_Runtime"].isna().sum() == 3
    assert len(pandas.read_json(folder / "kernels.jsonl", lines=True)) == 7
    assert pandas.read_parquet(folder / "level_3.parquet").empty


@pytest.mark.skipif(find_spec("datasets") is None, reason="datasets is not installed")
def test_datasets_reads_it(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from datasets import load_dataset

    files = {f"level_{level}": str(folder / f"level_{level}.parquet") for level in (1, 2)}
    found = load_dataset("parquet", data_files=files, cache_dir=str(tmp_path))
    assert found["level_1"].column_names == ISSUE
    assert found["level_1"].to_list() == pq.read_table(folder / "level_1.parquet").to_pylist()
    assert load_dataset(str(folder), cache_dir=str(tmp_path)).num_rows == {"level_1": 6, "level_2": 1}


def test_another_version_of_a_task_is_another_task(tmp_path):
    with open_archive(tmp_path / "archive.sqlite") as archive:
        archive.add_tasks([dataclasses.replace(get_task(RELU), version=9)])
        program = archive.add_program(RELU, SEED, origin="seed")
        archive.add_evaluation(program, timed(SEED, task_version=9))
        dataset.write_dataset(archive, task_facts(), tmp_path, version="1", day="today")
    one = row(tmp_path, SEED)
    assert (one["Correct"], one["Pallas_Runtime"]) == (None, None)
    assert one["Error"] == "judged under version 9 of the task only, which is at 1 now"


def judged(*words: str) -> list[str]:
    """`standing` of verdicts written as `device timer right/wrong`, as their numbers."""
    records = []
    for number, word in enumerate(words):
        device, timer, verdict = word.split()
        identity = (device, timer)
        records.append(
            SimpleNamespace(
                id=number,
                correct=verdict == "right",
                identity=_Identity(device="" if device == "-" else device, timer=timer, key=identity),
            )
        )
    return [one.id for one in standing(records, 1)]


class _Identity(SimpleNamespace):
    task_version = 1

    @property
    def timed(self) -> bool:
        return self.timer != "untimed"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.key == other.key


@pytest.mark.parametrize(
    ("verdicts", "stand"),
    [
        ([], []),
        (["- untimed wrong"], [0]),
        (["cpu untimed right"], [0]),
        (["cpu untimed right", "cpu untimed right"], [1]),
        (["cpu untimed right", "gpu cupti right"], [1]),
        (["gpu cupti right", "gpu cupti right"], [1]),
        (["gpu cupti right", "gpu wall right"], [0, 1]),
        (["gpu cupti right", "other cupti right"], [0, 1]),
        (["gpu cupti right", "gpu untimed wrong"], [1]),
        (["gpu untimed wrong", "gpu cupti right"], [1]),
        (["gpu cupti right", "gpu untimed wrong", "gpu wall right"], [2]),
        (["gpu untimed wrong", "cpu untimed right"], [0]),
        (["gpu cupti right", "cpu untimed wrong"], [0, 1]),
        (["- untimed wrong", "cpu untimed right"], [1]),
        (["cpu untimed right", "- untimed wrong"], [0]),
    ],
)
def test_which_verdicts_stand(verdicts, stand):
    assert judged(*verdicts) == stand


def test_numbers():
    assert [finite(value) for value in (1, 0.0, -1.5, True, None, "1", math.nan, math.inf)] == [
        1.0, 0.0, -1.5, None, None, None, None, None,
    ]  # fmt: skip
    assert [positive(value) for value in (2.0, 0.0, -1.0, math.nan)] == [2.0, None, None, None]
