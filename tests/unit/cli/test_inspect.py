"""`pallas_evo inspect`: what it finds, what it says, and that it writes nothing to what it looks at."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from made_verdicts import verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "reporting"))

from made_runs import OURS, add, make_run, program, small_run

from pallas_evo import paths
from pallas_evo.archive import location, open_archive, schema, sha256_of_text
from pallas_evo.cli.app import main
from pallas_evo.tasks import get_task
from pallas_evo.types import SizeResult

ROOT = Path(paths.SEEDS).parent
PAGE = (ROOT / "docs" / "inspect.md").read_text()
SEED = paths.seed_file("L1/relu").read_text()
ORIGINAL = paths.original_file("L1/relu").read_text()
FASTER = SEED.replace("BLOCK_M = ", "BLOCK_M = 2 * ")


def timed(score: float, **changed):
    """A correct verdict with a time."""
    medium = SizeResult(
        shape=((4096, 4096),), correct=True, normwise_error=0.0, bound=2e-6, median_us=30 / score, xla_us=30.0,
        floor_us=15.0, roofline_percent=50.0 * score, samples_us=(30 / score, 31 / score),
    )  # fmt: skip
    content = {
        "correct": True, "combined_score": score, "status": "accepted", "stage": None, "reason": None, "message": "",
        "sizes": {"medium": medium}, "ran_on": "NVIDIA H200", "timer": "cupti",
    }  # fmt: skip
    return verdict(**{**content, **changed})


def make_archive(path: Path, *, run: str = "run-1") -> dict[str, str]:
    """A seed with its original, a faster mutant, a refused one; returns their ids."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_archive(path) as archive:
        archive.add_tasks([get_task("L1/relu"), get_task("L1/tanh")])
        archive.add_run("evolve", run_id=run, task="L1/relu", name="mine")
        original = archive.add_program("L1/relu", ORIGINAL, origin="tpu_original")
        seed = archive.add_program(
            "L1/relu", SEED, origin="seed", parent_sha256=original.sha256, run_id=run, generation=0
        )
        made = {"original": original.sha256, "seed": seed.sha256}
        children = [("faster", FASTER, timed(1.25)), ("refused", FASTER + "# more\n", verdict())]
        for place, (name, source, _) in enumerate(children):
            parent = list(made.values())[-1]
            record = archive.add_program(
                "L1/relu", source, origin="mutation", parent_sha256=parent, name=name, run_id=run, generation=place + 1,
                island=place,
            )  # fmt: skip
            made[name] = record.sha256
        archive.add_evaluation(
            seed,
            replace(timed(0.5), candidate_sha256=seed.sha256),
            run_id=run,
            other_samples_us={"medium": {"xla": [30.0]}},
        )
        for name, _, judged in children:
            archive.add_evaluation(("L1/relu", made[name]), replace(judged, candidate_sha256=made[name]), run_id=run)
        archive.finish_run(run)
    return made


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder, with when it was written and what it holds."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
        if not path.is_fifo()
    }


def inspect(capsys, *words: object) -> dict:
    """The JSON that a call prints."""
    assert main(["inspect", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))


# ---- what is shown


def test_archives_and_runs_are_found_at_any_depth(tmp_path, capsys):
    make_archive(tmp_path / "a" / "b" / "c" / "archive.sqlite")
    small_run(tmp_path / "x" / "mine")
    make_run(tmp_path / "x" / "theirs", [program("p", combined_score=7.5)], name="evolution_db.db")
    found = inspect(capsys, tmp_path)
    assert [Path(source).name for source in found["sources"]] == [
        "archive.sqlite",
        "programs.sqlite",
        "evolution_db.db",
    ]
    assert {(run["task"], run["programs"], run["best"], run["gain"]) for run in found["runs"]} == {
        ("L1/relu", 3, 1.25, 2.5), ("theirs", 1, 7.5, 1.0),
    }  # fmt: skip
    best = {(view["source"], view["task"]): [row["score"] for row in view["best"]] for view in found["tasks"]}
    assert best[found["sources"][0], "L1/relu"] == [1.25, 0.5]
    assert best[found["sources"][0], "L1/tanh"] == []
    assert best[found["sources"][1], "L1/relu"] == [1.25, 0.5]
    assert main(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for said in (
        "L1/relu",
        "1.25",
        "24.00",
        "30.00",
        "62.5%",
        "2.50x",
        "theirs",
        "7.5",
        "No correct program yet (1): L1/tanh",
    ):
        assert said in text


def test_a_run_that_an_archive_holds_too_counts_once(tmp_path, capsys):
    made = make_archive(tmp_path / "archive.sqlite", run="mine")
    small_run(tmp_path / "mine")
    found = inspect(capsys, tmp_path)
    assert len(found["sources"]) == len(found["repeats"]) == 1
    assert [run["id"] for run in found["runs"]] == ["mine"]
    assert inspect(capsys, tmp_path, "--program", "better")["program"]["row"]["id"] == "better"  # it is still found
    with closing(sqlite3.connect(tmp_path / "mine" / "programs.sqlite")) as connection, connection:
        add(connection, [program(f"new-{number}", parent_id="better") for number in range(4)])
    assert len(inspect(capsys, tmp_path)["sources"]) == 2  # more than the archive holds
    assert made


def test_a_task(tmp_path, capsys):
    made = make_archive(tmp_path / "archive.sqlite")
    found = inspect(capsys, tmp_path, "--task", "L1/relu")
    (view,) = found["views"]
    assert [row["id"] for row in view["view"]["best"]] == [made["faster"], made["seed"]]
    assert view["view"]["seed"]["id"] == made["seed"]
    assert view["view"]["original"] == made["original"]
    assert view["view"]["rejected"] == {"output_std": 1}
    assert [(step["step"], step["best"]) for step in view["generations"]] == [(0, 0.5), (1, 1.25), (2, None)]
    assert [(step["step"], step["correct"]) for step in view["islands"]] == [(0, 1), (1, 0), (None, 1)]
    assert main(["inspect", str(tmp_path), "--task", "L1/relu"]) == 0
    text = capsys.readouterr().out
    for said in ("output_std", "Islands", "Generations", "1.25", "cupti"):
        assert said in text


def test_a_program(tmp_path, capsys):
    made = make_archive(tmp_path / "archive.sqlite")
    found = inspect(capsys, tmp_path, "--program", made["faster"][:8])["program"]
    assert found["row"]["id"] == made["faster"]
    assert (found["row"]["time_us"], found["row"]["xla_us"]) == (24.0, 30.0)
    assert [row["origin"] for row in found["lineage"]] == ["seed", "tpu_original"]
    assert found["lineage_code"] == {made["seed"]: SEED, made["original"]: ORIGINAL}
    assert "+BLOCK_M = 2 * " in found["diff"]
    assert found["samples_us"] == {"medium": {"candidate": [24.0, 31 / 1.25]}}
    assert found["measured"]["filters"]["output_std"]["threshold"] == 0.02
    assert found["measured"]["compiled"]["sm_80"]["registers"] == 40
    assert inspect(capsys, tmp_path, "--program", made["seed"])["program"]["samples_us"]["medium"]["xla"] == [30.0]
    assert main(["inspect", str(tmp_path), "--program", made["refused"].upper()]) == 0
    text = capsys.readouterr().out
    for said in (
        "rejected: output_std",
        "Too alike.",
        "0.75",
        "0.02",
        "40",
        "1024",
        "50%",
        "jax: 0.10.2",
        "# more",
        "TPU-sized",
    ):
        assert said in text


def test_a_run_from_our_seed_leads_back_to_the_original_that_comes_with_us(tmp_path, capsys):
    make_run(
        tmp_path, [program("a", code=SEED, private_metrics=OURS), program("b", parent_id="a", private_metrics=OURS)]
    )
    found = inspect(capsys, tmp_path, "--program", "b")["program"]
    assert [row["origin"] for row in found["lineage"]] == ["seed", "tpu_original"]
    assert found["lineage_code"][sha256_of_text(ORIGINAL)] == ORIGINAL


def test_several_programs_with_one_prefix_are_listed(tmp_path, capsys):
    small_run(tmp_path)
    assert main(["inspect", str(tmp_path), "--program", "e"]) == 2
    make_run(tmp_path / "two", [program("seed-x"), program("seed-y", code="y\n"), program("other", code="z\n")])
    assert main(["inspect", str(tmp_path), "--program", "seed"]) == 2
    assert "two seed-x, two seed-y" in capsys.readouterr().err
    assert inspect(capsys, tmp_path, "--program", "seed-x")["program"]["row"]["id"] == "seed-x"
    assert inspect(capsys, tmp_path, "--program", "seed", "--task", "L1/relu")["program"]["row"]["id"] == "seed-0"


def test_scores_of_two_devices_stand_apart(tmp_path, capsys):
    make_archive(tmp_path / "archive.sqlite")
    with open_archive(tmp_path / "archive.sqlite") as archive:
        record = archive.add_program("L1/relu", SEED + "# another\n", origin="mutation")
        for changed in ({"ran_on": "NVIDIA A100"}, {"ran_on": "cpu", "timer": "untimed", "sizes": {}}):
            archive.add_evaluation(record, replace(timed(9.0, **changed), candidate_sha256=record.sha256))
    views = [view for view in inspect(capsys, tmp_path)["tasks"] if view["task"] == "L1/relu"]
    assert [(view["device"], view["timer"], len(view["best"])) for view in views] == [
        ("NVIDIA A100", "cupti", 1), ("NVIDIA H200", "cupti", 2), ("cpu", "untimed", 1),
    ]  # fmt: skip
    assert {view["programs"] for view in views} == {5}


def test_the_json_keys_are_those_of_the_page(tmp_path, capsys):
    make_archive(tmp_path / "archive.sqlite")
    documented = dict(re.findall(r"^\| ([^|]+) \| `([^|]+)` \|$", PAGE.partition("| object |")[2], re.MULTILINE))
    keys = {
        name.split(",")[0].split(" ")[0].strip("`"): set(
            re.findall(r"\w+", re.sub(r"\[\]|\{\w+\}( \{[^}]*\})?|\{[^}]*\}", "", text))
        )
        for name, text in documented.items()
    }
    overview = inspect(capsys, tmp_path)
    assert set(overview) == {"sources", "repeats", "problems", "runs", "tasks"}
    assert set(overview["runs"][0]) == keys["run"]
    assert set(overview["tasks"][0]) == keys["task"]
    assert set(overview["tasks"][0]["best"][0]) == keys["row"]
    task = inspect(capsys, tmp_path, "--task", "L1/relu")
    assert set(task) == {"sources", "repeats", "problems", "task", "views"}
    assert set(task["views"][0]) == {"view", "generations", "islands"}
    assert set(task["views"][0]["generations"][0]) == keys["generation"]
    found = inspect(capsys, tmp_path, "--program", overview["tasks"][0]["best"][0]["id"])
    assert set(found) == {"sources", "repeats", "problems", "program"}
    assert set(found["program"]) == keys["program"]
    assert set(found["program"]["row"]) == keys["row"]


# ---- what is never done


def test_nothing_is_written_to_what_lies_at_rest(tmp_path, capsys):
    make_archive(tmp_path / "archive.sqlite")
    small_run(tmp_path / "mine")
    before = state(tmp_path)
    for words in ([], ["--task", "L1/relu"], ["--program", "better"], ["--json"]):
        assert main(["inspect", str(tmp_path), *words]) == 0
    assert main(["inspect", f"sqlite:///{tmp_path}/archive.sqlite"]) == 0
    assert state(tmp_path) == before


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-wal",)], ids=["killed", "copied"])
def test_a_log_that_a_kill_left_is_read_and_left_alone(left, tmp_path, capsys):
    work, place = tmp_path / "work", tmp_path / "runs"
    make_archive(work / "archive.sqlite")
    small_run(work / "mine")
    place.mkdir()
    (place / "mine").mkdir()
    with (
        closing(sqlite3.connect(work / "archive.sqlite")) as archive,
        closing(sqlite3.connect(work / "mine" / "programs.sqlite")) as run,
    ):
        with archive:
            archive.execute("UPDATE runs SET name = 'only in the log'")
        with run:
            add(run, [program("late", parent_id="better", combined_score=3.5, private_metrics=OURS)])
        for name in ("archive.sqlite", "mine/programs.sqlite"):
            for suffix in ("", *left):
                shutil.copyfile(work / f"{name}{suffix}", place / f"{name}{suffix}")
    before = state(place)
    found = inspect(capsys, place)
    assert "only in the log" in {run["name"] for run in found["runs"]}
    assert 3.5 in {run["best"] for run in found["runs"]}
    assert inspect(capsys, place, "--program", "late")["program"]["row"]["score"] == 3.5
    assert state(place) == before


def test_a_run_at_work_is_read(tmp_path, capsys):
    path = small_run(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        add(connection, [program("not-yet")])
        before = state(tmp_path)
        assert inspect(capsys, path)["runs"][0]["programs"] == 3
        assert state(tmp_path) == before


# ---- what cannot be read


def broken(path: Path, kind: str) -> None:
    """A file that is no archive, one way or another."""
    make_archive(path)
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "garbage":
        path.write_bytes(os.urandom(5000))
    elif kind == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "header":
        path.write_bytes(path.read_bytes()[:60])
    elif kind == "damaged":
        content = bytearray(path.read_bytes())
        content[8192:40960] = os.urandom(32768)
        path.write_bytes(content)
    elif kind == "folder":
        path.unlink()
        path.mkdir()
        (path / "inside.sqlite").write_bytes(b"text")
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(
                {
                    "older": "UPDATE alembic_version SET version_num = '0001'",
                    "newer": "UPDATE alembic_version SET version_num = '9999'",
                    "tables gone": "DROP TABLE evaluations; DROP TABLE programs",
                    "columns gone": "DROP TABLE run_programs; CREATE TABLE run_programs (x)",
                    "no json": "UPDATE evaluation_details SET gates = 'no json'",
                    "no date": "UPDATE evaluations SET created_at = 'yesterday'",
                }[kind]
            )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("empty", "an empty file"),
        ("garbage", "not an SQLite database"),
        ("half", "truncated"),
        ("header", "not an SQLite database"),
        ("damaged", "damaged"),
        ("folder", "inside.sqlite"),
        ("pipe", "no file"),
        ("older", "pallas_evo archive upgrade"),
        ("newer", "newer pallas_evo"),
        ("tables gone", "not one"),
        ("columns gone", "no such column"),
        ("no json", "cannot be read"),
        ("no date", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_is_shown(kind, said, tmp_path, capsys):
    bad = tmp_path / "bad.sqlite"
    broken(bad, kind)
    before = state(tmp_path)
    for words in ([], ["--task", "L1/relu"], ["--program", sha256_of_text(SEED)]):
        assert main(["inspect", str(bad), *words]) in (2, 3)
        out, err = capsys.readouterr()
        assert said in err
        assert "bad.sqlite" in err
        assert "Internal error" not in err
        assert "Traceback" not in err
    make_archive(tmp_path / "good.sqlite")
    assert main(["inspect", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert said in err
    assert "1.25" in out
    assert str(tmp_path / "good.sqlite") in inspect(capsys, tmp_path)["sources"]
    assert {name: content for name, content in state(tmp_path).items() if not name.startswith("good")} == before


@pytest.mark.parametrize("value", ["abc", '{"a": {"b": 1}}'], ids=repr)
def test_a_column_of_an_archive_may_hold_anything(value, tmp_path, capsys):
    """An archive may be a stranger's. Every column of every table that has rows; no crash of ours, no traceback."""
    made = make_archive(tmp_path / "whole.sqlite")
    for table in schema.metadata.tables.values():
        for column in table.columns:
            path = tmp_path / "changed.sqlite"
            shutil.copyfile(tmp_path / "whole.sqlite", path)
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE")
                try:
                    if not connection.execute(f'UPDATE {table.name} SET "{column.name}" = ?', (value,)).rowcount:
                        break
                except sqlite3.IntegrityError:
                    continue
                connection.commit()
            for words in ([], ["--program", made["faster"]]):
                assert main(["inspect", str(path), *words]) in (0, 2, 3)
                said = capsys.readouterr().err
                assert "Internal error" not in said, (table.name, column.name, words)


def test_damage_that_shows_late_is_named_too(tmp_path, capsys, monkeypatch):
    """A large file is not checked as a whole before it is read."""
    monkeypatch.setattr(location, "_QUICK_CHECK_BYTES", 0)
    broken(tmp_path / "bad.sqlite", "damaged")
    make_archive(tmp_path / "good.sqlite")
    for words in ([], ["--task", "L1/relu"]):
        assert main(["inspect", str(tmp_path), *words]) == 0
        out, err = capsys.readouterr()
        assert "bad.sqlite" in err
        assert "1.25" in out


def test_a_page_is_made_of_what_can_be_read(tmp_path, capsys):
    pytest.importorskip("jinja2")
    broken(tmp_path / "bad.sqlite", "no json")
    assert main(["inspect", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 2
    assert not (tmp_path / "page.html").exists()
    make_archive(tmp_path / "good.sqlite")
    capsys.readouterr()
    assert main(["inspect", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    assert "bad.sqlite" in capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    assert "good.sqlite" in page
    assert "bad.sqlite" in page  # among what was left out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{folder}/missing"], "nothing is there"),
        ([""], "nothing is there"),
        (["{folder}/empty"], "python -m pallas_evo.seed"),
        (["{folder}/records"], "timed.json"),
        (["{folder}/records/timed.json"], "not an SQLite database"),
        (["{folder}/other.db"], "not one"),
        (["sqlite:///{folder}/missing.sqlite"], "nothing is there"),
        (["nonsense://x"], "nonsense"),
        (["{folder}/archive.sqlite", "--task", "L1/rleu"], "L1/relu"),
        (["{folder}/archive.sqlite", "--program", "zzz"], "zzz"),
        (["{folder}/archive.sqlite", "--program", " "], "came nothing"),
        (["{folder}/archive.sqlite", "--program", "%"], "%"),
        (["{folder}/archive.sqlite", "--nonsense"], "nonsense"),
        ([], "PATH"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_callers_mistake_is_a_sentence(words, said, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "timed.json").write_text("{}")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")
    make_archive(tmp_path / "archive.sqlite")
    assert main(["inspect", *(word.format(folder=tmp_path) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert "Traceback" not in err


def test_databases_of_others_are_passed_over(tmp_path, capsys):
    with closing(sqlite3.connect(tmp_path / "prompts.sqlite")) as connection:
        connection.execute("CREATE TABLE prompts (x)")
    small_run(tmp_path)
    make_archive(tmp_path / ".hidden" / "archive.sqlite")
    make_archive(tmp_path / "gen_3" / "results" / "archive.sqlite")  # a candidate's
    found = inspect(capsys, tmp_path)
    assert (len(found["sources"]), found["problems"]) == (1, [])


def test_the_path_may_hold_anything(tmp_path, capsys):
    folder = tmp_path / "a?b#c%20 [bold]\x1b[2J"
    make_archive(folder / "archive.sqlite")
    small_run(folder / "mine")
    assert len(inspect(capsys, folder)["sources"]) == 2
    assert main(["inspect", str(folder)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_benchmarks_archive_can_be_inspected(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("make_archive", ROOT / "benchmarks" / "make_archive.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    benchmark.make(tmp_path / "big.sqlite", 100, 4, 2)
    found = inspect(capsys, tmp_path / "big.sqlite")
    assert [view["programs"] for view in found["tasks"]] == [52, 52]  # each with a seed and an original
    assert len(found["runs"]) == 2 * benchmark.RUNS
    assert all(view["best"] and view["device"] == benchmark.DEVICE for view in found["tasks"])


def test_nothing_heavy_is_imported(tmp_path):
    make_archive(tmp_path / "archive.sqlite")
    code = (
        f"import sys; from pallas_evo.cli.app import main; main(['inspect', {str(tmp_path)!r}]); "
        "print('imported', *sorted({'jax', 'shinka', 'matplotlib', 'triton', 'jinja2', 'pygments'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported"
