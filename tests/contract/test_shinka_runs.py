"""ShinkaEvolve's real runner, offline, on the CPU: whole runs, killed runs, hostile services, failures of ours."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pallas_evo.archive import open_archive
from pallas_evo.config import load_config
from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.evolution.metrics import shinka_metrics
from pallas_evo.evolution.rundir import RunSettings
from pallas_evo.evolution.runs import evolve
from pallas_evo.paths import EVALUATORS
from pallas_evo.tasks import get_task

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shinka")]

FAST = ["judging.small_seeds=1", "judging.variant_seeds=0", "judging.medium_seeds=0", "compile.enabled=false"]
KEY = "fake-key-that-no-candidate-may-see"


def rows(folder):
    with closing(sqlite3.connect(folder / "programs.sqlite")) as connection:
        columns = "generation, island_idx, correct, combined_score, code, public_metrics"
        return connection.execute(f"SELECT {columns} FROM programs ORDER BY generation").fetchall()


def run(folder, archive, **settings):
    return evolve(
        RunSettings(**{"target": "cpu", **settings}), folder=folder, archive=archive, config=load_config(None, FAST),
        say=lambda line: None,
    )  # fmt: skip


def in_group(task):
    return pytest.param(task, marks=pytest.mark.xdist_group(f"shinka {task}"))  # the three spread over the workers


@pytest.mark.parametrize("task", [in_group("L1/relu"), in_group("L1/softmax"), in_group("L2/pwm_scan")])
def test_twelve_programs_from_several_seeds_on_two_islands_with_an_evaluator_killed(
    tmp_path, monkeypatch, capsys, task
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    folder, archive = tmp_path / "run", tmp_path / "archive.sqlite"
    killed = []
    killer = threading.Thread(target=_kill_one_evaluator, args=(str(folder), killed), daemon=True)
    killer.start()
    outcome = run(folder, archive, task=task, generations=9, variants=2)
    killer.join(10)
    assert killed
    stored = rows(folder)
    assert [row[0] for row in stored] == list(range(12))
    assert {row[1] for row in stored} == {0, 1}
    assert len({row[4] for row in stored}) == 12
    assert outcome.programs == 12
    assert outcome.best_score >= outcome.seed_score == 1.0
    assert outcome.best_program.exists()
    with open_archive(archive, read_only=True) as store:
        records = {record.candidate_sha256: record for record in store.evaluations(run_id=outcome.run_id)}
        programs = {program.generation: program for program in store.programs(run_id=outcome.run_id)}
        for generation, _, correct, score, code, public in stored:
            program = programs[generation]
            record = records[program.sha256]
            assert (program.source, record.correct, record.combined_score) == (code, bool(correct), score)
            ours = shinka_metrics(get_task(task), store.evaluation(record.id))
            assert json.loads(public) == json.loads(json.dumps(ours["public"]))
        assert "seed" in {program.origin for program in programs.values() if program.generation == 0}
        child = next(program for program in programs.values() if program.origin == "mutation")
        assert child.diff
        assert store.lineage(child)[1].sha256 == child.parent_sha256
    for file in folder.glob("gen_*/**/*"):
        assert not file.is_file() or KEY not in file.read_text(errors="replace")
    assert capsys.readouterr().out == ""


def _kill_one_evaluator(folder, killed):
    """Kill the first evaluator of the run that is found at work, as the kernel does when memory runs out."""
    end = time.monotonic() + 150
    while time.monotonic() < end:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_text()
                if "evaluate.py" in words and folder in words:
                    os.kill(int(pid), signal.SIGKILL)
                    killed.append(pid)
                    return
            except OSError:
                continue
        time.sleep(0.05)


def test_killed_stopped_by_a_failure_of_ours_and_resumed(tmp_path):
    folder, archive = tmp_path / "run", tmp_path / "archive.sqlite"
    words = ["evolve", "L2/pwm_scan", "--generations", "4", "--run-dir", str(folder), "--archive", str(archive)]
    sets = [word for value in FAST for word in ("--set", value)]
    command = [sys.executable, "-m", "pallas_evo.cli.app", *words, "--target", "cpu", *sets]
    for generation, number in (("gen_2", signal.SIGINT), ("gen_3", signal.SIGKILL)):
        process = subprocess.Popen(command, cwd=EVALUATORS.parent, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while not (folder / generation / "main.py").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(30) == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
        if number == signal.SIGINT:
            assert not _running(str(folder))
    before = {row[0] for row in rows(folder)}
    assert {0, 1} <= before

    good = (folder / "evaluation.yaml").read_text()
    # The configuration of a machine on which no tracer can load JAX.
    (folder / "evaluation.yaml").write_text(re.sub(r"memory_bytes: \d+", "memory_bytes: 100000000", good))
    with pytest.raises(PallasEvoError, match="no score was learnt"):
        run(folder, archive, task="L2/pwm_scan", generations=4)
    assert {row[0] for row in rows(folder)} == before

    (folder / "evaluation.yaml").write_text(good)
    outcome = run(folder, archive, task="L2/pwm_scan", generations=4)
    generations = [row[0] for row in rows(folder)]
    assert len(generations) == len(set(generations)) == outcome.programs == 6
    assert not _running(str(folder))


def _running(text):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if text in words and int(pid) != os.getpid():
            found.append(words)
    return found


def _reply(text):
    message = {"role": "assistant", "content": text}
    return json.dumps({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }).encode()  # fmt: skip


def _code(body):
    return f"<NAME>\nx\n</NAME>\n<DESCRIPTION>\nx\n</DESCRIPTION>\n<CODE>\n```python\n{body}\n```\n</CODE>"


BLOCK = "# EVOLVE-BLOCK-START\n{}\n# EVOLVE-BLOCK-END\n"
HOSTILE = [
    ("garbage", _reply("\x00\ufffd no patch at all <NAME>")),
    ("empty", _reply("")),
    ("backticks", _reply(_code(BLOCK.format('def kernel(x):\n    """```"""\n    return x')))),
    (
        "outside the block",
        _reply(_code("import os\nos.system('true')\n" + BLOCK.format("def kernel(x):\n    return x"))),
    ),
    ("nan bait", _reply(_code(BLOCK.format("def kernel(x):\n    return x * float('nan')\nSCORE = float('nan')")))),
    ("truncated", _reply("x")[:40]),
]


@contextmanager
def hostile_service():
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            _, data = HOSTILE[len(sent) % len(HOSTILE)]
            sent.append(1)
            time.sleep(1.0 if len(sent) == 1 else 0.0)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"local/hostile@http://127.0.0.1:{server.server_address[1]}/v1", sent
    server.shutdown()
    server.server_close()


def test_a_hostile_service_ends_no_run_and_earns_nothing(tmp_path):
    with hostile_service() as (model, sent):
        outcome = run(
            tmp_path / "run", tmp_path / "a.sqlite", task="L1/softmax", generations=4, mutator=model,
            patch_types=("full",), patch_type_probs=(1.0,), islands=1,
        )  # fmt: skip
    assert sent
    stored = rows(tmp_path / "run")
    assert outcome.best_score == outcome.seed_score == 1.0
    assert all(math.isfinite(row[3]) for row in stored)
    assert all(row[3] == 0.0 and not row[2] for row in stored[1:])


def test_a_folder_that_cannot_be_written_or_is_anothers_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can be written"):
        run(tmp_path / "file" / "run", tmp_path / "a.sqlite", task="L1/relu", generations=1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    with pytest.raises(UsageError, match="empty folder"):
        run(tmp_path / "other", tmp_path / "a.sqlite", task="L1/relu", generations=1)
