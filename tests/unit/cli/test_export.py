"""`export`: what it reads, where it writes, and what it says where it cannot."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from made_verdicts import verdict

from pallas_evo import paths
from pallas_evo.archive import open_archive, sha256_of_text
from pallas_evo.archive.encoding import plain
from pallas_evo.cli.app import main
from pallas_evo.cli.export import task_facts
from pallas_evo.tasks import load_tasks

RELU = paths.seed_file("L1/relu").read_text(encoding="utf-8")
CHILD = RELU.replace("BLOCK_M = 16", "BLOCK_M = 32")


def fill(path: Path, *sources: str) -> Path:
    """An archive with programs that were refused."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_archive(path) as archive:
        archive.add_tasks(load_tasks())
        for source in sources:
            program = archive.add_program("L1/relu", source, origin="candidate")
            archive.add_evaluation(program, verdict(candidate_sha256=sha256_of_text(source)))
    return path


def fill_run(folder: Path, *sources: str, judged: bool = True) -> Path:
    """A run folder as ShinkaEvolve and our callback leave it, each program the child of the one before."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "programs.sqlite")) as connection, connection:
        connection.executescript(
            "CREATE TABLE programs (id TEXT PRIMARY KEY, code TEXT, parent_id TEXT, generation INTEGER, "
            "timestamp REAL, combined_score REAL, public_metrics TEXT, private_metrics TEXT, text_feedback TEXT, "
            "correct BOOLEAN, metadata TEXT, island_idx INTEGER);"
            "CREATE TABLE archive (program_id TEXT); CREATE TABLE metadata_store (key TEXT, value TEXT);"
        )
        for number, source in enumerate(sources):
            parent = str(number - 1) if number else None
            private = json.dumps({"task": "L1/relu"})
            metadata = json.dumps({"model_name": "a-model"})
            connection.execute(
                "INSERT INTO programs VALUES (?, ?, ?, ?, 0, 0, '{}', ?, '', 0, ?, 0)",
                (str(number), source, parent, number, private, metadata),
            )
            if judged:
                results = folder / f"gen_{number}" / "results"
                results.mkdir(parents=True)
                judgement = verdict(candidate_sha256=sha256_of_text(source))
                (results / "evaluation.json").write_text(json.dumps(plain(judgement)))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lines(folder: Path, name: str = "kernels.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_an_archive_becomes_five_files_and_is_left_alone(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    source, out = fill(tmp_path / "source" / "archive.sqlite", RELU, CHILD), tmp_path / "data"
    before = contents(source.parent)
    assert main(["export", str(source), "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert sorted(said["files"]) == [
        "README.md", "kernels.jsonl", "level_1.parquet", "level_2.parquet", "level_3.parquet",
    ]  # fmt: skip
    assert said["files"] == {path.name: path.stat().st_size for path in out.iterdir()}
    assert (said["programs"], said["rows"], said["rows_by_level"], said["format"]) == (2, 2, {"1": 2}, "archive")
    assert [one["Pallas_Code"] for one in lines(out)] == [RELU, CHILD]
    assert lines(out)[0]["Origin"] == "seed"  # by its content, whatever it was added as
    assert contents(source.parent) == before
    assert main(["export", str(source), "--out", str(out)]) == 0  # an earlier export is replaced
    assert "2 programs, 2 verdicts" in capsys.readouterr().out


def test_pairs_need_no_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pallas_evo.reporting.dataset", raising=False)
    source, out = fill(tmp_path / "archive.sqlite", RELU), tmp_path / "data"
    assert main(["export", str(source), "--out", str(out)]) == 2
    assert "pip install 'pallas-evo[export]'" in capsys.readouterr().err
    assert not out.exists()
    assert main(["export", str(source), "--out", str(out), "--format", "kernelbook"]) == 0
    assert sorted(os.listdir(out)) == ["README.md", "kernelbook.jsonl"]


def test_archives_and_runs_of_a_folder_are_put_together(tmp_path, capsys):
    fill(tmp_path / "runs" / "one.sqlite", RELU)
    fill(tmp_path / "runs" / "deep" / "two.sqlite", RELU, CHILD)
    fill_run(tmp_path / "runs" / "evolved", RELU, CHILD.replace("32", "64"))
    fill_run(tmp_path / "runs" / "other", "# not judged\n", judged=False)
    before = contents(tmp_path / "runs")
    out = tmp_path / "data"
    assert main(["export", str(tmp_path / "runs"), "--out", str(out), "--format", "kernelbook"]) == 0
    found = {one["program_id"]: one for one in lines(out, "kernelbook.jsonl")}
    assert len(found) == 3
    evolved = found[sha256_of_text(CHILD.replace("32", "64"))]
    assert (evolved["origin"], evolved["source_before"], evolved["generation"]) == ("a-model", RELU, 1)
    assert contents(tmp_path / "runs") == before
    error = capsys.readouterr().err
    assert "left out: " in error
    assert "other" in error
    assert "evaluation.json" in error


def test_a_run_folder_alone(tmp_path):
    out = tmp_path / "data"
    assert (
        main(["export", str(fill_run(tmp_path / "run", RELU, CHILD)), "--out", str(out), "--format", "kernelbook"]) == 0
    )
    assert [one["parent_id"] for one in lines(out, "kernelbook.jsonl")] == [None, sha256_of_text(RELU)]


def _broken_verdict(folder: Path) -> None:
    (fill_run(folder, RELU) / "gen_0" / "results" / "evaluation.json").write_text('{"sizes": 7, "task": []}')


def _of_no_task(folder: Path) -> None:
    with closing(sqlite3.connect(fill_run(folder, RELU) / "programs.sqlite")) as connection, connection:
        connection.execute("""UPDATE programs SET private_metrics = '{"task": "circle packing"}'""")


def _not_judged(folder: Path) -> None:
    fill_run(folder, RELU, judged=False)


def _empty(folder: Path) -> None:
    folder.mkdir()


def _without_programs(folder: Path) -> None:
    fill(folder / "archive.sqlite")


def _old(folder: Path) -> None:
    with closing(sqlite3.connect(fill(folder / "archive.sqlite", RELU))) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_broken_verdict, "judged"),
        (_of_no_task, "no task of ours"),
        (_not_judged, "evaluation.json"),
        (_empty, "there is none"),
        (_without_programs, "there are none"),
        (_old, "pallas_evo archive upgrade"),
        (lambda folder: None, "nothing is there"),
    ],
    ids=["broken verdict", "no task", "not judged", "empty", "no programs", "old", "missing"],
)
def test_what_cannot_be_exported_is_a_sentence(tmp_path, capsys, make, said):
    make(tmp_path / "source")
    assert main(["export", str(tmp_path / "source"), "--out", str(tmp_path / "data"), "--format", "kernelbook"]) == 2
    out, error = capsys.readouterr()
    assert said in error
    assert "Traceback" not in error
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"source"}


@pytest.mark.parametrize("out", ["", "{folder}/file", "{folder}/file/below", "{folder}/full"])
def test_where_nothing_can_be_written(tmp_path, capsys, out):
    source = fill(tmp_path / "archive.sqlite", RELU)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    arguments = ["export", str(source), "--out", out.format(folder=tmp_path), "--format", "kernelbook"]
    assert main(arguments) == 2
    assert "--out" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_the_facts_cover_every_task():
    facts = task_facts()
    assert list(facts) == [task.id for task in load_tasks()]
    for task in load_tasks():
        one = facts[task.id]
        assert (one.number, one.level, one.version) == (task.number, task.level, task.version)
        assert one.original
        assert one.fix
        assert one.seed_sha256 == sha256_of_text(paths.seed_file(task.id).read_text(encoding="utf-8"))
        assert "reference = " in one.baseline
    assert len({dataclasses.astuple(one) for one in facts.values()}) == 45
