"""`pallas_evo evaluate` and ShinkaEvolve's callback with a service of stand-ins: one verdict each, kept before it is
told, whatever becomes of the service."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from stand_ins import BROKEN, alive, below, pool, until

from pallas_evo.archive import open_archive
from pallas_evo.cli.app import main
from pallas_evo.errors import UsageError, WorkerFailed
from pallas_evo.evaluation import Evaluator
from pallas_evo.evolution import callback
from pallas_evo.paths import SEEDS
from pallas_evo.pool import Pool, client, protocol
from pallas_evo.pool.server import Server
from pallas_evo.types import Evaluation


@pytest.fixture(autouse=True)
def one_build(monkeypatch):
    monkeypatch.setattr(protocol, "build", lambda: "test")


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory(prefix="pe") as name:
        yield Path(name) / "judge.sock"


@contextmanager
def served(path, **settings):
    with pool(**settings) as judges:
        server = Server(judges, path)
        thread = threading.Thread(target=server.serve, kwargs={"signals": False})
        thread.start()
        try:
            judges.wait_ready(every=True)
            yield server
        finally:
            server.stop()
            thread.join(20)


def candidates(folder, *texts):
    names = []
    for index, text in enumerate(texts):
        names.append(str(folder / f"{index}.py"))
        Path(names[-1]).write_text(text)
    return names


def by_ourselves(calls):
    """In place of a judge of our own: a verdict that says so."""

    def evaluate(self, source, task, *, more=False):
        calls.append(source)
        return Evaluation(
            task=task.id, task_version=1, target="cpu", correct=True, combined_score=1.0, status="accepted",
            stage=None, reason=None, message="", gates=(), filters={}, sizes={}, compiled={}, ran_on="cpu",
            compiled_for=(), jail=None, seeds={}, candidate_sha256=hashlib.sha256(source.encode()).hexdigest(),
            duration_s=0.0, environment={"judge": "ourselves"},
        )  # fmt: skip

    return evaluate


def command(names, path, archive, *more):
    words = ["evaluate", *names, "--task", "L1/relu", "--target", "cpu", "--json", "--archive", str(archive)]
    return [*words, "--service", str(path), *more]


def test_files_are_judged_by_the_service_at_once_and_told_in_order(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Evaluator, "evaluate", None)  # nobody else judges
    names = candidates(tmp_path, "sleep 0.4", *(f"# {n}\nsleep 0.01" for n in range(7)))
    archive = tmp_path / "a.sqlite"
    with served(path, judges=2):
        assert main(command(names, path, archive, "--set", "judging.small_seeds=2")) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert [line["file"] for line in lines] == names
    assert {line["seeds"]["small"] for line in lines} == {2}
    assert len({line["environment"]["judge"] for line in lines}) == 2
    with open_archive(archive) as store:
        assert store.summary().evaluations == 8
        for line in lines:
            kept = store.evaluation(line["evaluation_id"])
            assert kept.candidate_sha256 == line["candidate_sha256"]
            assert "small_seeds: 2" in (store.evaluation_config(line["evaluation_id"]) or "")


def test_a_verdict_of_the_service_is_in_the_archive_before_it_is_printed(path, tmp_path, monkeypatch):
    from pallas_evo.cli import rendering

    seen = []

    def look(name: str, _: object) -> None:
        with open_archive(tmp_path / "a.sqlite") as store:
            seen.append((name, store.summary().evaluations))

    monkeypatch.setattr(rendering, "print_evaluation", look)
    names = candidates(tmp_path, "# 1", "# 2")
    words = [word for word in command(names, path, tmp_path / "a.sqlite") if word != "--json"]
    with served(path):
        assert main(words) == 0
    assert seen == [(names[0], 1), (names[1], 2)]


def test_when_the_service_vanishes_the_rest_is_judged_here_and_nothing_twice(path, tmp_path, capsys, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(Evaluator, "evaluate", by_ourselves(calls))
    names = candidates(tmp_path, "# first", f"note {tmp_path / 'began'}\nsleep 60", "# third")
    with served(path) as server:

        def stop():
            until((tmp_path / "began").exists)
            server.stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        assert main(command(names, path, tmp_path / "a.sqlite")) == 0
        stopper.join()
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    judges = [line["environment"]["judge"] for line in lines]  # the others may have been judged before it, or not
    assert [line["file"] for line in lines] == names
    assert judges[1] == "ourselves"
    assert judges.count("ourselves") == len(calls)
    assert len(err.splitlines()) == 1
    with open_archive(tmp_path / "a.sqlite") as store:
        assert store.summary().evaluations == 3


@pytest.mark.parametrize(("text", "code", "words"), [("ours", 3, "the disk is full"), ("die", 3, "the judge ended")])
def test_a_failure_of_the_service_is_a_failure_of_ours(path, tmp_path, capsys, text, code, words):
    with served(path):
        assert main(command(candidates(tmp_path, text), path, tmp_path / "a.sqlite")) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    with open_archive(tmp_path / "a.sqlite") as store:
        assert store.summary().evaluations == 0


def test_off_asks_nobody(path, tmp_path, capsys, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(Evaluator, "evaluate", by_ourselves(calls))
    with served(path):
        monkeypatch.setenv("PALLAS_EVO_SOCKET", str(path))
        words = command(candidates(tmp_path, "# 1"), "off", tmp_path / "a.sqlite")
        assert main(words) == 0
        assert calls == ["# 1"]
        words[words.index("off")] = "auto"
        assert main(words) == 0
        assert calls == ["# 1"]
    assert capsys.readouterr().err == ""


CLI = """
import sys
from pallas_evo.pool import protocol
protocol.build = lambda: "test"
from pallas_evo.cli.app import main
code = main({words!r})
print(*sorted({{"jax", "jaxlib", "scipy", "triton", "shinka"}} & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def test_with_a_service_the_command_loads_no_jax(path, tmp_path):
    words = command(candidates(tmp_path, "# 1"), path, tmp_path / "a.sqlite")
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
    with served(path):
        done = subprocess.run(
            [sys.executable, "-c", CLI.format(words=words)], capture_output=True, text=True, env=environment
        )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert json.loads(done.stdout)["status"] == "accepted"


# ---- the callback


def judge(folder, text, path, **more):
    program = folder / "main.py"
    program.write_text(text)
    return callback.judge_file(program, folder / "r", task="L1/relu", target="cpu", service=str(path), **more)


def files(folder):
    return {path.name: json.loads(path.read_text()) for path in sorted((folder / "r").iterdir())}


def no_process(*arguments):
    raise AssertionError("a process of its own")


def test_the_callback_takes_the_services_record(path, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_ask_process", no_process)
    (tmp_path / "c.yaml").write_text("judging: {small_seeds: 2}\n")
    with served(path):
        metrics = judge(tmp_path, "# mine", path, config=tmp_path / "c.yaml")
    found = files(tmp_path)
    assert list(found) == ["correct.json", "evaluation.json", "metrics.json"]
    assert found["correct.json"] == {"correct": True, "error": None, "judged": True}
    assert found["metrics.json"] == metrics
    assert found["evaluation.json"]["seeds"]["small"] == 2
    assert found["evaluation.json"]["candidate_sha256"] == hashlib.sha256(b"# mine").hexdigest()


def test_where_the_service_fails_the_callback_tries_a_process_of_its_own(path, tmp_path, monkeypatch):
    def fail(*arguments):
        raise WorkerFailed("and here too")

    monkeypatch.setattr(callback, "_ask_process", fail)
    with served(path), pytest.raises(WorkerFailed, match="and here too"):
        judge(tmp_path, "ours", path)
    assert files(tmp_path)["correct.json"]["judged"] is False
    with served(path), pytest.raises(WorkerFailed, match="the disk is full"):
        judge(tmp_path, "ours", path, retries=0)
    assert "the disk is full" in files(tmp_path)["metrics.json"]["private"]["failure"]


def test_what_the_service_calls_a_mistake_of_the_callers_is_not_tried_again(path, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_ask_process", no_process)
    with served(path), pytest.raises(UsageError, match="KEY=VALUE"):
        judge(tmp_path, "# mine", path, overrides=["nonsense"])
    assert files(tmp_path)["correct.json"]["judged"] is False


def test_a_service_that_vanishes_costs_the_callback_no_verdict(path, tmp_path, monkeypatch, capsys):
    asked = []

    def by_a_process(request, *more):
        asked.append(request["source"])
        return {"kind": "judged", "correct": True, "error": None, "metrics": {"who": "process"}, "evaluation": {}}

    monkeypatch.setattr(callback, "_ask_process", by_a_process)
    with served(path) as server:

        def stop():
            until((tmp_path / "began").exists)
            server.stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        text = f"note {tmp_path / 'began'}\nsleep 60"
        assert judge(tmp_path, text, path) == {"who": "process"}
        stopper.join()
    assert asked == [text]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_callbacks_deadline_holds_for_the_service_too(path, tmp_path):
    with served(path), pytest.raises(WorkerFailed, match="did not answer"):
        judge(tmp_path, "sleep 60", path, deadline_s=0.5, retries=0)
    assert files(tmp_path)["correct.json"]["judged"] is False


def test_the_callback_notices_with_a_service_too_that_shinka_is_gone(path, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_ask_process", no_process)
    parents = iter([1, *[2] * 1000])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    with served(path), pytest.raises(WorkerFailed, match="ShinkaEvolve is gone"):
        judge(tmp_path, "sleep 60", path)


def test_a_status_is_printed_for_people_and_for_programs(path, capsys):
    with served(path, judges=2):
        client.ask({"source": "", "task": "L1/relu", "target": "cpu"}, service=str(path))
        assert main(["serve", "--status", "--socket", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (len(found["judges"]), found["judged"], found["gpus"]) == (2, 1, [])
        assert main(["serve", "--status", "--socket", str(path)]) == 0
        out = capsys.readouterr().out
        assert "2, 2 ready, 0 busy" in out
        assert "on the CPU" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--judges", "0"], "a number from 1"),
        (["--judges", "many"], "auto, or a number"),
        (["--target", "tpu"], "tpu"),
        (["--set", "judging.small_sedes=1"], "small_sedes"),
        (["--config", "missing.yaml"], "missing.yaml"),
        (["--status", "--socket", "missing.sock"], "no judging service answers there"),
        (["--socket", "x" * 200], "at most 107 bytes"),
        ([], "PALLAS_EVO_SOCKET is empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_in_serve_is_a_sentence_and_exit_code_2(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if words and "--socket" not in words:
        words = [*words, "--socket", str(tmp_path / "judge.sock")]
    assert main(["serve", *words]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_where_no_judge_can_start_serve_ends_with_3_and_leaves_nothing(path, capsys, monkeypatch):
    from pallas_evo.pool import pool as module

    monkeypatch.setattr(module, "Pool", lambda *args, **options: Pool(*args, **options, _factory=BROKEN))
    assert main(["serve", "--socket", str(path), "--target", "cpu", "--judges", "2", "--json"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "this machine has none" in err
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("pause_s", [0.0, 0.2])
def test_a_signal_while_the_judges_come_up_ends_it_too(path, pause_s):
    line = [sys.executable, "-m", "pallas_evo", "serve", "--socket", str(path), "--target", "cpu", "--judges", "1"]
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment) as service:
        until(lambda: path.exists())
        time.sleep(pause_s)
        family = below(service.pid)
        service.terminate()
        _, err = service.communicate(timeout=30)
    assert service.returncode == 0, err
    assert "Traceback" not in err
    assert list(path.parent.iterdir()) == []
    until(lambda: not any(alive(pid) for pid in family))


def test_ctrl_c_ends_a_command_that_waits_for_the_service(path, tmp_path):
    names = candidates(tmp_path, f"note {tmp_path / 'began'}\nsleep 3", "# second", "# third")
    words = command(names, path, tmp_path / "a.sqlite")
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
    with served(path) as server:
        started = subprocess.Popen(
            [sys.executable, "-c", CLI.format(words=words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        until((tmp_path / "began").exists)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
        assert (started.returncode, out) == (130, "")
        assert "Traceback" not in err
        until(lambda: server.pool.status()["queued"] == 0)


def test_a_second_service_is_refused(path, capsys):
    with served(path):
        assert main(["serve", "--socket", str(path), "--target", "cpu", "--judges", "1"]) == 2
        assert "there already" in capsys.readouterr().err
        assert client.status(str(path))["ready"] == 1
