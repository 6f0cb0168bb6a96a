"""ShinkaEvolve runs as views: ours, a stranger's, and what a hostile or broken one may hold."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path

import pytest
from made_runs import OURS, make_run, program, small_run

from pallas_evo.archive import sha256_of_text
from pallas_evo.errors import ArchiveError
from pallas_evo.reporting.shinka import ShinkaReader
from pallas_evo.reporting.text import jsonable


def reader(path: Path) -> ShinkaReader:
    return ShinkaReader(partial(sqlite3.connect, path), path.parent, str(path))


def everything(run: ShinkaReader) -> list[object]:
    """All that a report asks of a run."""
    found: list[object] = [*run.runs()]
    for view in run.tasks(best=5):
        found += [view, run.detail(view), run.family(view, depth=2)]
    return [*found, *(run.program(*key) for key in run.find("", None, limit=50))]


def test_a_run_of_ours(tmp_path):
    run = reader(small_run(tmp_path / "mine"))
    (view,) = run.runs()
    assert (view.task, view.device, view.timer, view.sizes, view.version) == (
        *("L1/relu", "NVIDIA H200", "cupti", ("medium",), 1),
    )
    assert (view.programs, view.correct, view.best, view.seed, view.gain) == (3, 2, 1.25, 0.5, 2.5)
    assert view.date is not None
    assert view.date.isoformat() == "2026-01-01T00:00:00+00:00"
    (task,) = run.tasks(best=5)
    assert [row.id for row in task.best] == ["better", "seed-0"]
    assert (task.best[0].time_us, task.best[0].xla_us, task.best[0].roofline_percent) == (8.0, 10.0, 60.0)
    assert task.seed is not None
    assert task.seed.id == "seed-0"
    assert task.rejected == {"numerics": 1}
    detail = run.detail(task)
    assert [(step.step, step.correct, step.best) for step in detail.generations] == [
        (0, 1, 0.5),
        (1, 1, 1.25),
        (2, 0, None),
    ]
    assert [(step.step, step.evaluations) for step in detail.islands] == [(0, 1), (1, 2)]


def test_the_copies_of_the_first_program_are_one(tmp_path):
    """A child of a copy leads back to the one that is shown, and the copy's id finds it."""
    run = reader(small_run(tmp_path))
    found = run.program("L1/relu", "refused")
    assert [row.id for row in found.lineage] == ["better", "seed-0"]
    assert run.find("seed-1", None) == (("L1/relu", "seed-0"),)
    assert found.lineage_code == {"seed-0": "# seed\n"}
    assert "+# refused" in (found.diff or "")


def test_different_first_programs_are_all_kept(tmp_path):
    """A run of somebody else may begin with many programs, none of which has a name."""
    run = reader(make_run(tmp_path, [program(f"p{number}", combined_score=number) for number in range(4)]))
    (task,) = run.tasks(best=9)
    assert [row.id for row in task.best] == ["p3", "p2", "p1", "p0"]
    assert (task.device, task.timer, task.version, task.timed) == (None, None, None, False)
    assert run.runs()[0].task == tmp_path.name


def test_scores_of_different_identity_are_apart(tmp_path):
    others = [
        {"device": "A100"},
        {"timer": "untimed", "sizes": []},
        {"task_version": 2},
        {"sizes": ["large", "medium"]},
    ]
    rows = [
        program(f"p{place}", private_metrics={**OURS, **other}, combined_score=9.0 - place)
        for place, other in enumerate([{}, *others])
    ]
    views = reader(make_run(tmp_path, rows)).tasks(best=9)
    assert sorted(row.id for view in views for row in view.best) == ["p0", "p1", "p2", "p3", "p4"]
    assert all(len(view.best) == 1 for view in views)
    assert views[0].version == 2
    assert views[-1].timer == "untimed"
    runs = reader(tmp_path / "programs.sqlite").runs()
    assert len(runs) == 5
    assert all(run.gain is None for run in runs if run.timer == "untimed")


def test_result_files_count_only_for_their_own_program(tmp_path):
    path = small_run(tmp_path)
    results = tmp_path / "gen_1" / "results"
    results.mkdir(parents=True)
    size = {"shape": [[4, 4]], "correct": True, "median_us": 7.5, "xla_us": 9.0, "roofline_percent": 50.0}
    content = {
        "candidate_sha256": sha256_of_text("# better\n"),
        "filters": {"output_range": {"passed": True, "value": {"__float__": "inf"}, "threshold": 0.1, "message": "m"}},
        "sizes": {"medium": {**size, "samples_us": [7.4, 7.5, 7.6]}},
        "environment": {"jax": "0.11", "timing": {"medium": {"baseline_us": [9.0, 9.1]}}},
    }
    (results / "evaluation.json").write_text(json.dumps(content))
    found = reader(path).program("L1/relu", "better")
    assert (found.row.time_us, found.row.xla_us, found.row.shape) == (7.5, 9.0, [[4, 4]])
    assert found.row.filters["output_range"]["value"] == float("inf")
    assert found.samples_us == {"medium": {"candidate": [7.4, 7.5, 7.6], "xla": [9.0, 9.1]}}
    (results / "evaluation.json").write_text(json.dumps({**content, "candidate_sha256": "0" * 64}))
    assert reader(path).program("L1/relu", "better").row.time_us == 8.0  # the database's


HOSTILE = [
    {"private_metrics": "not json"},
    {"private_metrics": "[1, 2]"},
    {"private_metrics": {"task": 7, "device": ["x"], "timer": {}, "sizes": "medium", "task_version": "one"}},
    {"public_metrics": {"medium_us": "fast", "medium_xla_us": 10**400, "_xla_us": None}},
    {"public_metrics": "[" * 100_000},
    {"metadata": None, "combined_score": None},
    {"metadata": {"patch_name": {"a": 1}}, "combined_score": float("inf")},
    {"combined_score": "nan", "generation": "three", "timestamp": "yesterday"},
    {"timestamp": 1e300, "island_idx": "left", "generation": 2**62},
    {"correct": "false"},
    {"parent_id": "nobody"},
    {"parent_id": "p"},  # its own parent
    {"code": b"\xff\xfe\x00bytes"},
    {"code": "\x1b[2J\x07", "text_feedback": b"\xff"},
]


@pytest.mark.parametrize("columns", HOSTILE, ids=lambda columns: ",".join(columns))
def test_a_column_may_hold_anything(columns, tmp_path):
    run = reader(make_run(tmp_path, [program("p", **columns), program("good", combined_score=2.0)]))
    assert json.loads(json.dumps(jsonable(everything(run)), allow_nan=False))
    assert run.tasks(best=1)[-1].best[0].id in ("good", "p")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "7", '{"gates": 3, "filters": [], "sizes": {"medium": []}, "compiled": {"sm": {"registers": "a"}}}',
     '{"gates": [[], {"name": {}}], "filters": {"f": 1}, "sizes": {"m": {"shape": "x", "median_us": 1e400}}}',
     '{"environment": [], "compiled": {"sm_80": null}, "sizes": {"m": {"shape": [1, 2], "samples_us": ["a", 1.0]}}}',
     "[" * 100_000],
)  # fmt: skip
def test_a_result_file_may_hold_anything(content, tmp_path):
    path = small_run(tmp_path)
    results = tmp_path / "gen_1" / "results"
    results.mkdir(parents=True)
    if content.startswith('{"'):
        content = f'{{"candidate_sha256": "{sha256_of_text("# better" + chr(10))}", {content[1:]}'
    (results / "evaluation.json").write_text(content)
    assert jsonable(everything(reader(path)))


def test_a_database_without_the_columns_is_refused_by_name(tmp_path):
    path = tmp_path / "programs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript("CREATE TABLE programs (x); CREATE TABLE archive (y); CREATE TABLE metadata_store (z)")
    with pytest.raises(ArchiveError, match=r"programs\.sqlite: .*cannot be read"):
        reader(path)


def test_an_older_schema_lacks_some_columns(tmp_path):
    path = tmp_path / "programs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE programs (id, code, parent_id, combined_score, correct); CREATE TABLE archive (program_id);"
            "INSERT INTO programs VALUES ('a', 'x = 1', NULL, 3.5, 1)"
        )
    run = reader(path)
    assert run.tasks(best=1)[0].best[0].score == 3.5
    assert everything(run)


def test_a_run_with_no_program_yet(tmp_path):
    run = reader(make_run(tmp_path / "young", []))
    (view,) = run.runs()
    assert (view.programs, view.correct, view.best, view.gain, view.date) == (0, 0, None, None, None)
    assert run.tasks(best=3)[0].best == ()
