"""`python -m pallas_evo.seed` as its users run it: once, twice, killed in the middle, two at once, and wrongly.

Seeds of small programs are used, so that one verification takes seconds; all 45 are run by `make seed`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pallas_evo import seed
from pallas_evo.archive import open_archive
from pallas_evo.errors import PallasEvoError, WorkerFailed
from pallas_evo.paths import original_file, seed_file
from pallas_evo.tasks import get_task, load_tasks
from pallas_evo.verification import RUNGS, Rung, Verification

COMMAND = [sys.executable, "-m", "pallas_evo.seed"]
RUN = ("trace", "lower", "ptx", "numerics_cpu")
DEADLINE_S = 240.0


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    line = [*COMMAND, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE_S, cwd=cwd, check=False)


def contents(archive: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with sqlite3.connect(f"file:{archive}?mode=ro", uri=True) as connection:
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: sorted(connection.execute(f"select * from {name}"), key=repr) for name in names}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    archive = tmp_path_factory.mktemp("seeded") / "archive.sqlite"
    return archive, run("--only", "L1/relu", "--archive", archive, "--json")


def test_verifies_one_seed_and_says_so_as_json(seeded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = seeded
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "quiet in a pipe"
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert (said["verified"], said["total"]) == (1, 1)
    assert said["summary"].startswith("1/1 seed verified (cpu; ")
    (one,) = said["seeds"]
    assert one["task"] == "L1/relu"
    assert list(one["rungs"]) == list(RUNGS)
    assert one["rungs"]["numerics_cpu"]["passed"] is True
    assert one["original"]["findings"][0]["reason"] == "block_size"
    assert one["original"]["findings"][0]["fix"]
    assert one["original"]["findings"][0]["slow"] is None


def test_archive_holds_the_pair_its_finding_and_every_rung(
    seeded: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    archive, done = seeded
    said = json.loads(done.stdout)
    with open_archive(archive, read_only=True) as store:
        (kernel,) = store.programs("L1/relu", origin="seed")
        (original,) = store.programs("L1/relu", origin="tpu_original")
        assert kernel.source == seed_file("L1/relu").read_text()
        assert original.source == original_file("L1/relu").read_text()
        assert kernel.parent_sha256 == original.sha256
        assert kernel.diff
        (finding,) = store.findings(program=original)
        assert finding.environment["measured_on"]
        rungs = {one.rung: one for one in store.verifications(program=kernel)}
        assert set(rungs) == {name for name, rung in said["seeds"][0]["rungs"].items() if rung["passed"] is not None}
        assert all(one.passed for one in rungs.values())
        assert rungs["numerics_cpu"].environment == said["environment"]
        (only_run,) = store.runs(kind="seed")
        assert (only_run.status, only_run.message) == ("finished", said["summary"])


def test_seeding_twice_changes_nothing_and_takes_no_time(
    seeded: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    archive, done = seeded
    before = contents(archive)
    again = run("--only", "L1/relu", "--archive", archive, "--json")
    first, second = json.loads(done.stdout), json.loads(again.stdout)
    assert again.returncode == 0
    assert contents(archive) == before
    assert second["summary"] == first["summary"]
    assert second["seeds"][0]["verified_before"] is True
    assert second["seeds"][0]["rungs"] == first["seeds"][0]["rungs"]
    assert second["duration_s"] < first["duration_s"]


def test_table_and_one_last_line(seeded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    archive, done = seeded
    table = run("--only", "L1/relu", "--archive", archive)
    lines = table.stdout.splitlines()
    assert lines[0].split()[:7] == ["seed", "trace", "lower", "ptx", "cpu", "judge", "gpu"]
    assert any(line.startswith("L1/relu") for line in lines)
    assert lines[-1] == json.loads(done.stdout)["summary"]
    assert "\x1b" not in table.stdout + table.stderr


def test_no_heading_is_cut_where_stdout_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = load_tasks()
    figures = {"registers": 255, "spill_bytes": 0, "shared_bytes": 166_912}
    ptx = Rung(name="ptx", passed=True, details={"sizes": {"medium": {"sm_80": figures}}})
    cpu = Rung(name="numerics_cpu", passed=True, details={"cases": [{"normwise_error": 2.8e-4, "bound": 1.1e-3}]})
    seed._print_table(
        [seed.Outcome(task=t, sha256="", parent_sha256="", rungs={"ptx": ptx, "numerics_cpu": cpu}) for t in tasks]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "seed", "trace", "lower", "ptx", "cpu", "judge", "gpu", "regs", "spills", "shared", "error", "bound",
    ]  # fmt: skip
    assert {task.id for task in tasks} <= {line.split()[0] for line in lines if line}
    assert not any("…" in line for line in lines)


def test_default_archive_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Verification, "verify", lambda self, task, source, rungs: iter(passed(rungs)))
    assert seed.main(["--only", "L1/relu"]) == 0
    assert (tmp_path / "runs" / "archive.sqlite").is_file()


# ---- wrong use: one sentence on stderr, nothing on stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "L1/sofmax"), "L1/softmax"),
        (("--nope",), "--nope"),
        (("--archive", "/proc/nowhere/archive.sqlite"), "--archive"),
        (("--archive", ""), "--archive"),
    ],
)
def test_wrong_use_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_archive_is_refused_and_left_alone(tmp_path: Path) -> None:
    archive = tmp_path / "archive.sqlite"
    archive.write_bytes(b"not a database, and somebody's work" * 40)
    before = archive.read_bytes()
    done = run("--only", "L1/relu", "--archive", archive)
    assert done.returncode == 2
    assert "archive.sqlite" in done.stderr
    assert "Traceback" not in done.stderr
    assert archive.read_bytes() == before


# ---- a seed that falls short, and failures of ours (in this process, the rungs played)


def passed(rungs: Any) -> list[Rung]:
    return [Rung(name=name, passed=True) for name in rungs if name != "numerics_gpu"]


def test_a_seed_that_falls_short_is_exit_code_1_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = {"passed": False}

    def verify(self: Verification, task: Any, source: str, rungs: Any) -> Any:
        yield Rung(name="trace", passed=True)
        yield Rung(name="numerics_cpu", passed=verdict["passed"], message="small: numerics: too far.")

    monkeypatch.setattr(Verification, "verify", verify)
    arguments = ["--only", "L1/relu", "--archive", str(tmp_path / "a.sqlite")]
    assert seed.main(arguments) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("0/1 seed verified")
    assert "L1/relu: numerics_cpu: small: numerics: too far." in said.err
    verdict["passed"] = True
    assert seed.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1/1 seed verified")


def test_our_own_failure_is_exit_code_3_and_the_other_seeds_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(self: Verification, task: Any, source: str, rungs: Any) -> Any:
        if task.id == "L1/gelu":
            raise WorkerFailed("The process did not start.")
        return iter(passed(rungs))

    monkeypatch.setattr(Verification, "verify", verify)
    assert seed.main(["--archive", str(tmp_path / "a.sqlite")]) == 3
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("44/45 seeds verified")
    assert said.err == "L1/gelu: The process did not start.\n"
    with open_archive(tmp_path / "a.sqlite", read_only=True) as store:
        assert store.summary().programs == 90
        assert store.summary().findings == 45
        (only_run,) = store.runs()
        assert only_run.status == "failed"


def test_verifying_again_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []

    def verify(self: Verification, task: Any, source: str, rungs: Any) -> Any:
        verified.append(task.id)
        return iter(passed(rungs))

    monkeypatch.setattr(Verification, "verify", verify)
    arguments = ["--only", "L1/relu", "--archive", str(tmp_path / "a.sqlite")]
    for extra, times in (([], 1), ([], 1), (["--again"], 2)):
        assert seed.main([*arguments, *extra]) == 0
        assert len(verified) == times


def test_a_file_of_the_package_that_is_gone_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed, "seed_file", lambda id: tmp_path / "gone.py")
    with open_archive(tmp_path / "a.sqlite") as store, pytest.raises(PallasEvoError, match="Install it again"):
        seed._store_programs(store, [get_task("L1/relu")])


# ---- killed, and two at once


@pytest.mark.slow
def test_killed_in_the_middle_the_next_run_goes_on(tmp_path: Path) -> None:
    archive = tmp_path / "archive.sqlite"
    line = [*COMMAND, "--only", "L1/exp", "--archive", str(archive)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    ends = time.monotonic() + DEADLINE_S
    while not verified_rungs(archive):  # its first verdicts are on the disk, the others are not
        assert time.monotonic() < ends
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = verified_rungs(archive)
    assert 0 < len(kept) < len(RUN)
    with open_archive(archive, read_only=True) as store:
        assert [one.status for one in store.runs()] == ["running"]
    done = run("--only", "L1/exp", "--archive", archive, "--json")
    assert done.returncode == 0, done.stderr
    rungs = json.loads(done.stdout)["seeds"][0]["rungs"]
    assert set(verified_rungs(archive)) == {name for name, rung in rungs.items() if rung["passed"]}
    for name, when in kept.items():
        assert verified_rungs(archive)[name] == when, "what was verified before the kill was not verified again"
    with open_archive(archive, read_only=True) as store:
        assert [one.status for one in store.runs()] == ["finished"]


def verified_rungs(archive: Path) -> dict[str, Any]:
    if not archive.exists():
        return {}
    with open_archive(archive, read_only=True) as store:
        return {one.rung: one.created_at for one in store.verifications() if one.passed}


@pytest.mark.slow
def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "archive.sqlite"
    ids = ("L1/tanh", "L1/tanh", "L1/clamp")
    lines = [[*COMMAND, "--only", id, "--archive", str(archive), "--json"] for id in ids]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for line in lines]
    answers = [process.communicate(timeout=DEADLINE_S) for process in both]
    assert [process.returncode for process in both] == [0, 0, 0], answers
    with open_archive(archive, read_only=True) as store:
        summary = store.summary()
        assert summary.programs == 4
        assert summary.findings == 2
        assert {one.status for one in store.runs()} == {"finished"}
        for id in set(ids):
            rungs = [one.rung for one in store.verifications(task=id)]
            assert sorted(rungs) == sorted(set(rungs))
            assert {"trace", "lower", "numerics_cpu"} <= set(rungs)


def test_every_task_has_files_to_store() -> None:
    for task in load_tasks():
        assert seed_file(task.id).is_file()
        assert original_file(task.id).is_file()
