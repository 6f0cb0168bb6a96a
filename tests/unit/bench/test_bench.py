"""A bench with made-up judges: what it asks for, what it keeps, how it goes on after a kill, what its tables say."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import Future

import pytest
from bench_fakes import TASKS, Fakes, MadeRatio, made_verdict, plan

from pallas_evo import tasks
from pallas_evo.bench import Record, run_bench
from pallas_evo.bench.judges import PoolJudges
from pallas_evo.bench.rows import held_s, percentile, row_of
from pallas_evo.bench.sources import HARM_TASK, HARMS, distinct, harmful, round_of, seed_source, tilings
from pallas_evo.bench.table import SECTIONS, main, markdown, our_failures, seeds_accepted, summary
from pallas_evo.bench.throughput import Job, cost_of_harm, run_round
from pallas_evo.errors import DeviceUnavailable, TimerUnavailable, UsageError, WorkerFailed
from pallas_evo.judging.contract import check_contract
from pallas_evo.tasks import get_task, load_tasks
from pallas_evo.types import Rejection


@pytest.mark.parametrize("task", load_tasks(), ids=lambda task: task.id)
def test_every_seed_has_tilings_enough_that_keep_the_contract(task):
    sources = list(tilings(seed_source(task.id)))
    assert sources[0] == seed_source(task.id)
    assert len(set(sources)) == len(sources) >= 6
    for source in sources:
        assert not isinstance(check_contract(source, task, 1 << 18), Rejection)


def test_no_two_candidates_of_all_rounds_are_alike():
    ids = [task.id for task in load_tasks()]
    made = [source for number in range(5) for _, source in round_of(ids, 90, number, f"round {number}")]
    assert len({hashlib.sha256(source.encode()).hexdigest() for source in made}) == len(made)
    programs = {source.rpartition("# ")[0] for source in made[:450]}
    assert len(programs) > 200, "tilings recur too soon: a cache of programs would answer"


def test_a_distinct_source_is_not_the_seed():
    assert distinct("L1/relu", 0, "x").partition("# x")[0] != seed_source("L1/relu")


@pytest.mark.parametrize("what", HARMS)
def test_harmful_candidates_keep_the_contract(what):
    assert not isinstance(check_contract(harmful(what, "x"), get_task(HARM_TASK), 1 << 18), Rejection)
    assert "{harm}" not in harmful(what, "x")
    dims = tasks.dims_of(get_task(HARM_TASK), "medium")
    assert f"m == {dims['M']} and n == {dims['N']}" in harmful(what, "x")


def test_all_parts_are_in_the_record_and_in_the_tables(tmp_path):
    fakes = Fakes()
    data = run_bench(plan(), Record(tmp_path), fakes.instruments)
    assert data == json.loads((tmp_path / "bench.json").read_text())
    assert set(data["parts"]["suite"]["rows"]) == set(TASKS) == set(fakes.selfs)
    assert data["parts"]["suite"]["seconds"] is not None
    assert seeds_accepted(data) == (3, 3)
    assert set(data["parts"]["throughput"]["rows"]) == {"1", "2"}
    assert fakes.pools == [2] * 5
    page = markdown(data)
    for said in (
        "NVIDIA H200",
        "| seeds through all gates | 3 of 3, ",
        "3 of 3 within 3% of 1.00; farthest 1.005 (L1/relu); 3 in each of both orders |",
        "| copy bandwidth | 4,320 GB/s of the datasheet's 4,800 (90%) |",
        "0 other verdicts changed",
        "| L1/relu | accepted | 8.00 | 10.00 | 1.25 | 75 % | memory | 0.20 | 40 | 0 | 1024 |",
        "| L1/relu | 8.00 | 80.00 | 10.00 | 60.00 | 1.25 | 0.75 |",
        "on the wrong side of 1 for 3",
    ):
        assert said in page, said


def test_the_order_of_callers_never_exceeds_what_was_asked(tmp_path):
    fakes = Fakes()
    jobs = [Job(task="L1/relu", source=f"# {number}") for number in range(40)]
    found = run_round(fakes, jobs, 4)
    assert fakes.most_at_once <= 4
    assert [one["sha256"] for one in found["results"]] == [
        made_verdict(j.source, j.task)["candidate_sha256"] for j in jobs
    ]


def test_a_run_that_was_killed_goes_on_and_asks_for_nothing_twice(tmp_path):
    class Killed(Exception):
        pass

    def dies(source, task):
        if task == "L1/relu" and source == seed_source(task):
            raise Killed
        return made_verdict(source, task)

    with pytest.raises(Killed):
        run_bench(plan(), Record(tmp_path), Fakes(dies).instruments)
    half = json.loads((tmp_path / "bench.json").read_text())
    done = set(half["parts"].get("suite", {}).get("rows", {}))
    assert "L1/relu" not in done
    fakes = Fakes()
    data = run_bench(plan(), Record(tmp_path, resume=True), fakes.instruments)
    assert {task for task, source in fakes.judged if source == seed_source(task)} == set(TASKS) - done
    assert seeds_accepted(data) == (3, 3)
    if done:
        assert data["parts"]["suite"]["seconds"] is None, "seconds from cold of half a suite"
    again = Fakes()
    run_bench(plan(), Record(tmp_path, resume=True), again.instruments)
    assert not again.judged
    assert not again.selfs


def test_a_record_is_not_written_over_nor_mixed_with_another(tmp_path):
    run_bench(plan(), Record(tmp_path), Fakes().instruments)
    with pytest.raises(UsageError, match="--resume"):
        Record(tmp_path)
    with pytest.raises(UsageError, match="another tasks"):
        run_bench(plan(tasks=("L1/relu",)), Record(tmp_path, resume=True), Fakes().instruments)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 9, "parts": {}}', "\0"])
def test_what_is_no_record_is_a_sentence(text, tmp_path, capsys):
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(UsageError, match="expected a record"):
        Record(tmp_path, resume=True)
    assert main([str(tmp_path / "bench.json")]) == 2
    assert "expected a record" in capsys.readouterr().err


def test_our_failures_are_kept_named_and_taken_again(tmp_path):
    def drifts(source, task):
        if task == "L1/softmax":
            raise DeviceUnavailable("The XLA baseline drifted.")
        return made_verdict(source, task)

    data = run_bench(plan(), Record(tmp_path), Fakes(drifts).instruments)
    assert seeds_accepted(data) == (2, 3)
    assert any("suite: L1/softmax: DeviceUnavailable: The XLA baseline drifted." in line for line in our_failures(data))
    assert data["parts"]["throughput"]["rows"]["1"]["our_failures"] == 2
    assert data["parts"]["throughput"]["rows"]["1"]["judged"] == 4
    assert "ours failed" in markdown(data)
    fakes = Fakes()
    data = run_bench(plan(parts=("suite",)), Record(tmp_path, resume=True), fakes.instruments)
    assert [task for task, _ in fakes.judged] == ["L1/softmax"]
    assert seeds_accepted(data) == (3, 3)


def test_on_the_cpu_only_what_runs_there_is_run(tmp_path):
    fakes = Fakes(lambda source, task: made_verdict(source, task, timer="untimed", environment={}, sizes={}))
    data = run_bench(plan(target="cpu", parts=("suite", "throughput")), Record(tmp_path), fakes.instruments)
    page = markdown(data)
    assert "untimed" in page
    assert "bandwidth" not in page
    assert "harm" not in data["parts"]["throughput"]
    with pytest.raises(UsageError, match="--only suite,throughput"):
        run_bench(plan(target="cpu"), Record(tmp_path / "other"), fakes.instruments)


def test_the_wall_alone_runs_the_suite_that_it_rests_on(tmp_path):
    fakes = Fakes()
    data = run_bench(plan(parts=("wall",)), Record(tmp_path), fakes.instruments)
    assert "Wall clock" in SECTIONS["wall"](data)
    assert len(fakes.judged) == 3


def test_a_pools_records_become_verdicts_or_our_failures():
    class MadePool:
        def __init__(self, record):
            self.record = record

        def submit(self, source, task):
            future = Future()
            future.set_result(self.record)
            return future

    judged = {"kind": "judged", "evaluation": {"correct": True}}
    assert PoolJudges(MadePool(judged)).submit("", "L1/relu").result() == {"correct": True}
    with pytest.raises(WorkerFailed, match="closed"):
        PoolJudges(MadePool({"kind": "failure", "message": "The pool was closed."})).submit("", "L1/relu").result()
    with pytest.raises(UsageError, match="no task"):
        PoolJudges(MadePool({"kind": "usage", "message": "no task"})).submit("", "L1/relu").result()


def test_harm_counts_every_verdict_that_is_another():
    honest = [{"task": "L1/relu", "harm": None, "correct": True, "reason": None, "ended_s": at} for at in (1.0, 2.0)]
    harm = {"task": "L1/relu", "harm": "endless kernel", "correct": False, "reason": "endless", "latency_s": 4.0}
    spoiled = {**honest[1], "correct": False, "reason": "device_fault", "ended_s": 9.0}
    found = cost_of_harm(
        {"seconds": 2.0, "results": honest}, {"seconds": 9.0, "results": [honest[0], harm | {"ended_s": 5}, spoiled]}
    )
    assert found["extra_s_each"] == 7.0
    assert found["changed_verdicts"] == [{"task": "L1/relu", "was": None, "is": "device_fault"}]
    assert found["longest_gap_s"] == {"without": 1.0, "with": 8.0}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3.0], 0.95, 3.0), ([1, 2, 3, 4], 0.5, 2), (list(range(1, 101)), 0.95, 95), ([2, 1], 0.95, 2)],
)
def test_percentiles_are_nearest_rank(values, share, expected):
    assert percentile(values, share) == expected


def test_a_row_of_a_refused_candidate_has_no_times():
    row = row_of(made_verdict("", "L1/relu", correct=False, reason="numerics", sizes={}, environment={}), "medium")
    assert row["median_us"] is row["binds"] is row["wall_us"] is row["held_s"] is None
    assert held_s({"environment": {"timing": {"medium": {"held_s": 0.1}, "large": {"held_s": 0.2}}}}) == pytest.approx(
        0.3
    )


def test_without_cupti_the_bandwidth_alone_is_missing(tmp_path):
    class Blind(Fakes):
        def bandwidth(self, config):
            raise TimerUnavailable("CUPTI is not there.")

    data = run_bench(plan(parts=("suite",)), Record(tmp_path), Blind().instruments)
    assert data["bandwidth_failed"] == "CUPTI is not there."
    assert markdown(data).startswith("# pallas_evo bench on NVIDIA H200, ")
    assert "copy bandwidth" not in markdown(data)


def test_self_ratios_that_are_off_are_counted(tmp_path):
    class Off(Fakes):
        def self_ratio(self, source, task):
            return MadeRatio(ratio=1.04 if task.id == "L1/relu" else 0.98)

    data = run_bench(plan(parts=("self",)), Record(tmp_path), Off().instruments)
    assert "2 of 3 within 3% of 1.00; farthest 1.040 (L1/relu)" in summary(data)


def test_a_part_of_the_tables_by_itself(tmp_path, capsys):
    run_bench(plan(parts=("suite",)), Record(tmp_path), Fakes().instruments)
    assert main([str(tmp_path / "bench.json"), "--part", "summary"]) == 0
    said = capsys.readouterr().out
    assert "seeds through all gates" in said
    assert "## " not in said
