"""The files that ShinkaEvolve reads, whatever happens while they are made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pallas_evo.errors import PallasEvoError, UsageError, WorkerFailed
from pallas_evo.evolution import callback
from pallas_evo.evolution.metrics import shinka_metrics
from pallas_evo.paths import EVALUATORS, seed_file
from pallas_evo.pool import surroundings
from pallas_evo.tasks import get_task
from pallas_evo.types import Evaluation

FAST = ["--set", "judging.small_seeds=1", "--set", "judging.variant_seeds=0", "--set", "compile.enabled=false"]


def command(results, program, *more):
    words = ["--program_path", str(program), "--results_dir", str(results), "--task", "L1/relu", "--target", "cpu"]
    return [sys.executable, str(EVALUATORS / "evaluate.py"), *words, *FAST, *more]


def files(results):
    return {name: json.loads((results / name).read_text()) for name in ("metrics.json", "correct.json")}


def test_the_front_imports_neither_jax_nor_shinka():
    code = (
        "import sys, pallas_evo.evolution.callback; "
        "print([name for name in ('jax', 'shinka', 'numpy') if name in sys.modules])"
    )
    root = str(EVALUATORS.parent)
    said = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_seed_is_accepted_from_a_copy_elsewhere_and_old_files_go(tmp_path):
    copy = tmp_path / "evaluate.py"
    copy.write_text((EVALUATORS / "evaluate.py").read_text())
    results = tmp_path / "results"
    results.mkdir()
    (results / "correct.json").write_text('{"correct": "stale"}')
    words = command(results, seed_file("L1/relu"))
    words[1] = str(copy)
    environment = {**os.environ, "PYTHONPATH": str(EVALUATORS.parent), "SECRET_API_KEY": "k"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = files(results)
    assert found["correct.json"] == {"correct": True, "error": None, "judged": True}
    assert found["metrics.json"]["combined_score"] == 1.0
    assert "failure" not in found["metrics.json"]["private"]
    assert sorted(path.name for path in results.iterdir()) == ["correct.json", "evaluation.json", "metrics.json"]


def test_a_refused_candidate_is_a_result(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def kernel(")
    done = subprocess.run(command(tmp_path / "r", bad), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = files(tmp_path / "r")
    assert found["correct.json"]["correct"] is False
    assert found["correct.json"]["judged"] is True
    assert found["metrics.json"]["private"]["reason"] == "syntax"


def test_killed_in_the_middle_it_leaves_no_verdict_and_no_process(tmp_path):
    process = subprocess.Popen(command(tmp_path / "r", seed_file("L1/relu")), stdout=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (judges := children.read_text().split()):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert files(tmp_path / "r")["correct.json"] == {
        **files(tmp_path / "r")["correct.json"],
        "correct": False,
        "judged": False,
    }
    end = time.monotonic() + 5
    while os.path.exists(f"/proc/{judges[0]}") and _state(judges[0]) != "Z" and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{judges[0]}") or _state(judges[0]) == "Z"


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def test_a_failure_of_ours_is_tried_again_and_then_told_apart(tmp_path, monkeypatch):
    tries = []

    def fail(*arguments):
        tries.append(1)
        raise WorkerFailed("the disk is full")

    monkeypatch.setattr(callback, "_ask_process", fail)
    with pytest.raises(WorkerFailed):
        callback.judge_file(seed_file("L1/relu"), tmp_path, task="L1/relu")
    assert len(tries) == 2
    found = files(tmp_path)
    assert found["correct.json"]["judged"] is False
    assert "the disk is full" in found["metrics.json"]["private"]["failure"]
    assert found["metrics.json"]["combined_score"] == 0.0


def test_a_deadline_ends_the_judge(tmp_path):
    with pytest.raises(PallasEvoError, match="did not answer within"):
        callback.judge_file(seed_file("L1/relu"), tmp_path, task="L1/relu", target="cpu", deadline_s=0.3)


def test_an_unknown_task_is_the_callers_mistake(tmp_path):
    with pytest.raises(UsageError, match="L1/relu"):
        callback.judge_file(seed_file("L1/relu"), tmp_path, task="L1/reluu", target="cpu")


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PallasEvoError, match="cannot be written"):
        callback.judge_file(seed_file("L1/relu"), tmp_path / "file" / "r", task="L1/relu")


def test_no_key_of_the_environment_reaches_the_judge(monkeypatch):
    for name in ("OPENAI_API_KEY", "JAX_API_KEY", "AWS_SECRET_ACCESS_KEY", "CUDA_TOKEN"):
        monkeypatch.setenv(name, "fake")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    kept = surroundings.judge_environment("root")
    assert "fake" not in kept.values()
    assert kept["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_score_that_is_no_number_is_never_written():
    evaluation = Evaluation(
        task="L1/relu", task_version=1, target="cpu", correct=True, combined_score=float("nan"), status="accepted",
        stage=None, reason=None, message="", gates=(), filters={}, sizes={}, compiled={}, ran_on="cpu",
        compiled_for=(), jail=None, seeds={}, candidate_sha256="", duration_s=0.0,
    )  # fmt: skip
    assert shinka_metrics(get_task("L1/relu"), evaluation)["combined_score"] == 0.0
