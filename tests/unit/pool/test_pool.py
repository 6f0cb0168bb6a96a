"""A pool of judges: order, back-pressure, deaths, configurations, recycling, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import CancelledError

import pytest
from stand_ins import BROKEN, HERE, alive, below, pool, until

from pallas_evo.config import Config, to_yaml
from pallas_evo.errors import DeviceUnavailable, UsageError, WorkerFailed
from pallas_evo.paths import SEEDS
from pallas_evo.pool import Pool
from pallas_evo.pool.pool import default_judges
from pallas_evo.pool.process import JudgeProcess
from pallas_evo.running import gpu_present, gpus

RELU = "L1/relu"


def judged(future, seconds=30):
    record = future.result(seconds)
    assert record["kind"] == "judged", record
    return record


def test_candidates_are_judged_by_several_processes_at_once():
    with pool(judges=2) as judges:
        judges.wait_ready(every=True)
        records = [judged(one) for one in [judges.submit(f"# {n}\nsleep 0.2", RELU) for n in range(4)]]
        assert len({record["evaluation"]["environment"]["judge"] for record in records}) == 2
        assert all(record["service"]["judge"] == record["evaluation"]["environment"]["judge"] for record in records)
        status = judges.status()
        assert (status["judged"], status["queued"], status["busy"], status["failures"]) == (4, 0, 0, 0)
        pids = {judge["pid"] for judge in status["judges"]}
    assert not any(alive(pid) for pid in pids)


def test_first_come_first_served(tmp_path):
    with pool() as judges:
        notes = [tmp_path / f"{n}" for n in range(6)]
        done = []
        for n, note in enumerate(notes):
            future = judges.submit(f"note {note}\nsleep 0.02", RELU)
            future.add_done_callback(lambda _, n=n: done.append(n))
        judged(future)
        until(lambda: len(done) == 6)
        assert done == list(range(6))


def test_a_request_that_is_given_up_in_the_queue_is_dropped(tmp_path):
    with pool() as judges:
        first = judges.submit(f"note {tmp_path / 'first'}\nsleep 0.5", RELU)
        until((tmp_path / "first").exists)
        second = judges.submit(f"note {tmp_path / 'second'}", RELU)
        third = judges.submit("", RELU)
        assert judges.ahead_of(third) == 1
        assert second.cancel()
        assert judges.ahead_of(third) == 0
        judged(first)
        judged(third)
        assert not (tmp_path / "second").exists()
        assert judges.status()["dropped"] == 1
        with pytest.raises(CancelledError):
            second.result(1)


def test_beyond_the_cap_a_request_is_told_that_we_are_busy(tmp_path):
    with pool(most_queued=2) as judges:
        running = judges.submit(f"note {tmp_path / 'first'}\nsleep 0.5", RELU)
        until((tmp_path / "first").exists)
        queued = [judges.submit("", RELU) for _ in range(2)]
        refused = judges.submit("", RELU).result(1)
        assert refused["kind"] == "failure"
        assert refused["message"].startswith("busy: 2 candidates")
        assert all(judged(one) for one in (running, *queued))


def test_a_judge_that_is_killed_costs_a_retry(tmp_path):
    with pool(judges=2) as judges:
        judges.wait_ready(every=True)
        record = judged(judges.submit(f"die once {tmp_path / 'died'}", RELU))
        assert record["service"]["tries"] == 2
        assert judges.status()["retries"] == 1
        until(lambda: judges.status()["ready"] == 2)


def test_a_candidate_that_kills_every_judge_gets_a_failure_and_no_verdict():
    with pool(judges=2) as judges:
        record = judges.submit("die", RELU).result(60)
        assert record["kind"] == "failure"
        assert "the judge ended (code -9)" in record["message"]
        assert judges.status()["judged"] == 0
        judged(judges.submit("", RELU))  # and the next one is judged


def test_a_judge_that_dies_while_it_waits_is_replaced_and_nobody_notices():
    with pool() as judges:
        first = judged(judges.submit("", RELU))["service"]["judge"]
        os.kill(first, signal.SIGKILL)
        until(lambda: not alive(first))
        record = judged(judges.submit("", RELU))
        assert record["service"]["judge"] != first
        assert record["service"]["tries"] == 1
        assert judges.status()["failures"] == judges.status()["retries"] == 0


def test_what_a_killed_judge_leaves_on_the_disk_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pool() as judges:
        judges.wait_ready()
        assert len(list(tmp_path.glob("*/*"))) == 1
        judges.submit("die", RELU).result(30)
        judged(judges.submit("", RELU))
        assert len(list(tmp_path.glob("*/*"))) == 1
    assert list(tmp_path.iterdir()) == []


def test_failures_of_ours_and_mistakes_of_the_callers_are_told_apart():
    with pool() as judges:
        ours = judges.submit("ours", RELU).result(30)
        assert (ours["kind"], ours["message"]) == ("failure", "WorkerFailed: the disk is full")
        bug = judges.submit("bug", RELU).result(30)
        assert (bug["kind"], bug["message"]) == ("failure", "ZeroDivisionError: nobody thought of this")
        task = judges.submit("", "L1/reluu").result(30)
        assert task["kind"] == "usage"
        assert "L1/relu" in task["message"]
        key = judges.submit("", RELU, overrides=["judging.small_sedes=1"]).result(30)
        assert key["kind"] == "usage"
        file = judges.submit("", RELU, config_text="a: [", config_name="mine.yaml").result(30)
        assert file["kind"] == "usage"
        assert "mine.yaml" in file["message"]
        judged(judges.submit("", RELU))


def test_another_configuration_makes_another_judge():
    def made_and_seeds(record):
        return record["evaluation"]["environment"]["made"], record["evaluation"]["seeds"]["small"]

    config = Config()
    config.judging.small_seeds = 2
    with Pool(config, "cpu", judges=1, _factory="stand_ins:StandIn") as judges:
        assert made_and_seeds(judged(judges.submit("", RELU))) == (1, 2)
        assert made_and_seeds(judged(judges.submit("", RELU, config_text=to_yaml(config)))) == (1, 2)
        assert made_and_seeds(judged(judges.submit("", RELU, overrides=["judging.small_seeds=2"]))) == (1, 2)
        assert made_and_seeds(judged(judges.submit("", RELU, overrides=["judging.small_seeds=5"]))) == (2, 5)
        assert made_and_seeds(judged(judges.submit("", RELU, config_text="judging: {small_seeds: 7}"))) == (3, 7)
        assert made_and_seeds(judged(judges.submit("", RELU))) == (4, 2)


@pytest.mark.parametrize("limit", [{"recycle_after": 2}, {"recycle_bytes": 1}])
def test_a_judge_that_has_grown_old_is_replaced(limit):
    with pool(**limit) as judges:
        pids = [judged(judges.submit("", RELU))["service"]["judge"] for _ in range(4)]
    assert len(set(pids)) == (2 if "recycle_after" in limit else 4)


def test_a_judge_that_hangs_is_ended_by_the_deadline():
    with pool() as judges:
        judges.wait_ready()
        record = judges.submit("sleep 60", RELU, deadline_s=0.5).result(30)
        assert record["kind"] == "failure"
        assert "did not answer" in record["message"]
        judged(judges.submit("", RELU))


def test_what_waited_past_its_deadline_is_not_judged(tmp_path):
    with pool() as judges:
        first = judges.submit(f"note {tmp_path / 'first'}\nsleep 0.6", RELU)
        until((tmp_path / "first").exists)
        late = judges.submit(f"note {tmp_path / 'late'}", RELU, deadline_s=0.1).result(30)
        assert (late["kind"], late["message"]) == ("failure", "No judge was free before the deadline.")
        judged(first)
        assert not (tmp_path / "late").exists()


def test_where_no_judge_can_start_each_request_is_told_why():
    with pool(_factory=BROKEN) as judges:
        with pytest.raises(WorkerFailed, match="this machine has none"):
            judges.wait_ready(60)
        record = judges.submit("", RELU).result(5)
        assert record["kind"] == "failure"
        assert "this machine has none" in record["message"]


def test_what_is_too_large_for_a_candidate_is_refused_at_once():
    with pool() as judges:
        with pytest.raises(UsageError, match="too large"):
            judges.submit("#" * (9 << 20), RELU)
        judged(judges.submit("#" * (1 << 20), RELU))
        assert judges.status()["retries"] == 0


def test_a_fault_of_the_pool_itself_leaves_nobody_waiting(monkeypatch):
    with pool() as judges:
        judges.wait_ready()
        ask = JudgeProcess.ask

        def fail(self, request, seconds):
            monkeypatch.setattr(JudgeProcess, "ask", ask)
            raise RuntimeError("nobody thought of this")

        monkeypatch.setattr(JudgeProcess, "ask", fail)
        record = judges.submit("", RELU).result(30)
        assert (record["kind"], record["message"]) == ("failure", "RuntimeError: nobody thought of this")
        judged(judges.submit("", RELU))


def test_closing_ends_what_runs_and_what_waits(tmp_path):
    judges = pool()
    running = judges.submit(f"note {tmp_path / 'first'}\nsleep 60", RELU)
    until((tmp_path / "first").exists)
    waiting = judges.submit("", RELU)
    (judge,) = judges.status()["judges"]
    family = {judge["pid"], *below(judge["pid"])}
    assert len(family) == 2
    judges.close()
    assert running.result(0)["kind"] == waiting.result(0)["kind"] == "failure"
    until(lambda: not any(alive(pid) for pid in family))
    with pytest.raises(WorkerFailed, match="closed"):
        judges.submit("", RELU)
    judges.close()


def test_judges_die_with_the_process_that_has_the_pool():
    code = (
        f"import sys; sys.path.insert(0, {HERE!r}); import time\n"
        "from stand_ins import pool\n"
        "judges = pool(judges=2); judges.wait_ready(every=True)\n"
        "print(*[judge['pid'] for judge in judges.status()['judges']], flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        owner.kill()
        owner.wait()
        until(lambda: not any(alive(pid) for pid in pids))


def test_several_gpus_are_shared_out(monkeypatch):
    monkeypatch.setattr(gpus, "_all", lambda: ("GPU-a", "GPU-b", "GPU-c"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    with Pool(judges=3, _factory="stand_ins:StandIn") as judges:
        judges.wait_ready(every=True)
        assert judges.target == "cuda"
        futures = [judges.submit(f"# {n}\nsleep 0.3", RELU) for n in range(3)]
        seen = sorted(judged(one)["evaluation"]["environment"]["gpu"] for one in futures)
        assert seen == ["GPU-a", "GPU-c", "GPU-c"]
        assert [judge["gpu"] for judge in judges.status()["judges"]] == ["GPU-c", "GPU-a", "GPU-c"]


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        (None, ("GPU-a", "GPU-b")),
        ("1", ("GPU-b",)),
        ("1,0", ("GPU-b", "GPU-a")),
        ("GPU-b", ("GPU-b",)),
        ("0,7,1", ("GPU-a",)),
        ("", ()),
        ("-1", ()),
        ("MIG-1", ("MIG-1",)),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(chosen, seen, monkeypatch):
    monkeypatch.setattr(gpus, "_all", lambda: ("GPU-a", "GPU-b"))
    assert gpus.visible(chosen) == seen


def test_how_many_judges_there_are_by_default(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert [default_judges(gpu_count) for gpu_count in (0, 1, 2, 12)] == [8, 8, 8, 12]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert [default_judges(gpu_count) for gpu_count in (0, 1, 4)] == [1, 1, 4]


def test_no_judge_is_no_pool():
    with pytest.raises(UsageError, match="at least one"):
        Pool(target="cpu", judges=0)


@pytest.mark.skipif(gpu_present(), reason="there is a GPU here")
def test_without_a_gpu_cuda_is_our_failure():
    with pytest.raises(DeviceUnavailable):
        Pool(target="cuda")
