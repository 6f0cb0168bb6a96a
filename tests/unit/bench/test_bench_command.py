"""`pallas_evo bench`: a wrong option is a sentence, a pipe gets data alone, exit codes say how it went."""

from __future__ import annotations

import json

import pytest
from bench_fakes import Fakes, made_verdict

import pallas_evo.bench
from pallas_evo import running
from pallas_evo.bench import run_bench
from pallas_evo.bench.table import markdown
from pallas_evo.cli.app import main
from pallas_evo.errors import WorkerFailed


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Runs the command with made-up instruments on a machine that seems to have a GPU."""

    def run(*arguments: str, judge=made_verdict) -> int:
        fakes = Fakes(judge)
        monkeypatch.setattr(running, "gpu_present", lambda: True)
        monkeypatch.setattr(
            pallas_evo.bench,
            "run_bench",
            lambda plan, record, progress: run_bench(plan, record, fakes.instruments, progress),
        )
        tasks = ["--tasks", "L1/relu,L1/softmax", "--candidates", "4", "--at-once", "1,2"]
        return main(["bench", "--out", str(tmp_path / "out"), *tasks, *arguments])

    return run


def test_a_pipe_gets_the_tables_and_nothing_else(bench, tmp_path, capsys):
    assert bench() == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert out == markdown(record) == (tmp_path / "out" / "bench.md").read_text()


def test_json_is_the_record(bench, tmp_path, capsys):
    assert bench("--json", "--only", "suite,wall") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "out" / "bench.json").read_text())
    assert set(found["parts"]) == {"suite"}


def test_a_seed_that_falls_short_is_1(bench):
    assert bench(judge=lambda source, task: made_verdict(source, task, correct=task != "L1/relu", reason="race")) == 1


def test_a_failure_of_ours_is_3_and_named(bench, capsys):
    def fails(source, task):
        raise WorkerFailed("The pool was closed.")

    assert bench("--only", "suite", judge=fails) == 3
    assert "suite: L1/relu: WorkerFailed: The pool was closed." in capsys.readouterr().err


def test_a_record_is_not_written_over(bench, capsys):
    assert bench("--only", "suite") == 0
    assert bench("--only", "suite") == 2
    assert "--resume" in capsys.readouterr().err
    assert bench("--only", "suite", "--resume") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "nonsense"], "no such part"),
        (["--at-once", "0"], "numbers from 1"),
        (["--at-once", "1,two"], "numbers from 1"),
        (["--at-once", ""], "numbers from 1"),
        (["--tasks", "L1/rellu"], "L1/relu"),
        (["--set", "timer.repeats=many"], "many"),
        (["--target", "cpu", "--only", "self"], "--only suite,throughput"),
        (["--out", "/dev/null/x"], "cannot be made"),
    ],
)
def test_a_wrong_option_is_a_sentence(arguments, said, bench, capsys):
    assert bench(*arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("target", ["auto", "cuda"])
def test_without_a_gpu_it_says_what_runs_all_the_same(target, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(running, "gpu_present", lambda: False)
    assert main(["bench", "--target", target, "--out", str(tmp_path / "out")]) == 2
    assert "--target cpu" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
