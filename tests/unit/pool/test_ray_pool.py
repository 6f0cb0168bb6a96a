"""A pool on a cluster, decided without one: places, back-pressure, retries, late answers, foreign nodes, sentences."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from stand_ins import until

from pallas_evo.cli.app import main
from pallas_evo.cli.serve import lines
from pallas_evo.errors import DeviceUnavailable, UsageError, WorkerFailed
from pallas_evo.pool import ray_actor, ray_cluster, ray_pool
from pallas_evo.pool.ray_cluster import Node, choose_target, hidden, places
from pallas_evo.pool.ray_pool import TRIES, RayPool
from pallas_evo.pool.server import Server

RELU = "L1/relu"
A, B = Node("a", "first", 1, 4, "A100"), Node("b", "second", 1, 4, "A100")


class Actor:
    """Answers nothing by itself: a test does."""

    def __init__(self, place, settings):
        self.place, self.settings = place, settings
        self.ready, self.asked, self.killed = Future(), [], False

    def answer(self, index=0, **record):
        future, request = self.asked[index]
        sha256 = hashlib.sha256(request["source"].encode()).hexdigest()
        verdict = {"task": request["task"], "candidate_sha256": sha256}
        future.set_result(json.dumps({"kind": "judged", "evaluation": verdict, **record}).encode())


class Engine:
    """A cluster that is a list of nodes."""

    def __init__(self, *nodes, about=None):
        self.there, self.actors, self.closed, self.about = list(nodes), [], False, about or (lambda place: {})

    def nodes(self):
        return list(self.there)

    def start(self, place, name, settings):
        self.actors.append(Actor(place, settings))
        return self.actors[-1]

    def call(self, actor, method, *arguments):
        done = Future()
        if method == "judge":
            actor.asked.append((done, json.loads(arguments[0][4:])))
            return done
        if method == "ready":
            done = actor.ready
        told = {**ray_actor.identity(), "gpu": f"GPU-{actor.place.node.id}", "device": "A100", "gpu_percent": 7}
        done.set_result(json.dumps({**told, "pool": {"judges": []}, **self.about(actor.place)}).encode())
        return done

    def kill(self, actor):
        actor.killed = True

    def close(self):
        self.closed = True

    def living(self):
        return [actor for actor in self.actors if not actor.killed]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ray_pool, "TURN_S", 0.02)
    monkeypatch.setattr(ray_pool, "SCAN_S", 0.05)


def ask(pool, source="# one", deadline_s=None):
    return pool.submit_request({"source": source, "task": RELU, "target": "cuda"}, deadline_s)


def asked_of(engine):
    return [actor for actor in engine.living() if actor.asked]


def test_an_actor_for_each_gpu_with_no_more_requests_than_judges():
    engine = Engine(A, B)
    with RayPool(engine, judges=1, most_queued=1) as pool:
        pool.wait_ready(10, every=True)
        assert pool.gpus == ("GPU-a", "GPU-b")
        futures = []
        for n in range(2):
            futures.append(ask(pool, f"# {n}"))
            until(lambda n=n: len(asked_of(engine)) == n + 1)
        futures.append(ask(pool, "# 2"))
        assert ask(pool).result(1)["message"].startswith("busy: 1 candidates")
        assert [len(actor.asked) for actor in engine.actors] == [1, 1]
        engine.actors[0].answer()
        until(lambda: len(engine.actors[0].asked) == 2)
        engine.actors[0].answer(1)
        engine.actors[1].answer()
        assert [future.result(5)["service"]["tries"] for future in futures] == [1, 1, 1]
        status = pool.status()
        assert (status["judged"], status["busy"], status["failures"]) == (3, 0, 1)
        assert all(actor["utilisation"] > 0 for actor in status["actors"])
        told = "\n".join(lines({**status, "pid": 1, "socket": "s", "version": "0"}))
        assert "GPU at 7 %" in told
    assert engine.closed
    assert not engine.living()


def test_a_lost_actor_costs_a_retry_elsewhere_and_its_late_answer_is_discarded():
    engine = Engine(A, B)
    with RayPool(engine, judges=1) as pool:
        pool.wait_ready(10, every=True)
        future = ask(pool)
        until(lambda: asked_of(engine))
        first = asked_of(engine)[0]
        engine.there.remove(first.place.node)  # it cannot be seen any more, and goes on judging
        until(lambda: [actor for actor in asked_of(engine) if actor is not first])
        second = next(actor for actor in asked_of(engine) if actor is not first)
        assert first.killed
        assert second.place.node is not first.place.node
        first.answer(correct=False)
        until(lambda: pool.status()["late"] == 1)
        assert not future.done()
        second.answer(correct=True)
        record = future.result(5)
        assert record["correct"] is True
        assert record["service"]["tries"] == 2
        assert pool.status()["judged"] == 1


def test_a_candidate_whose_every_actor_dies_gets_a_failure_and_no_verdict():
    engine = Engine(A, B)
    with RayPool(engine, judges=1) as pool:
        future = ask(pool)
        for n in range(TRIES + 1):
            until(lambda: [actor for actor in asked_of(engine) if not actor.asked[-1][0].done()])
            at_work = next(actor for actor in asked_of(engine) if not actor.asked[-1][0].done())
            at_work.asked[-1][0].set_exception(RuntimeError("the node died"))
            assert n == TRIES or not future.done()
        record = future.result(5)
        assert record["kind"] == "failure"
        assert f"No verdict after {TRIES + 1} tries" in record["message"]
        assert pool.status()["judged"] == 0


def test_a_failure_of_a_judge_is_final_and_one_of_all_its_judges_goes_elsewhere():
    engine = Engine(A, B)
    with RayPool(engine, judges=1) as pool:
        pool.wait_ready(10, every=True)
        future = ask(pool, "# full disk")
        until(lambda: asked_of(engine))
        asked_of(engine)[0].answer(kind="failure", message="the disk is full")
        assert future.result(5)["message"] == "the disk is full"
        assert pool.status()["retries"] == 0
        future = ask(pool, "# two")
        until(lambda: sum(len(actor.asked) for actor in engine.actors) == 2)
        sick = next(actor for actor in engine.actors if actor.asked and not actor.asked[-1][0].done())
        sick.answer(-1, kind="unable", message="no way to confine a candidate")
        until(lambda: [actor for actor in asked_of(engine) if not actor.asked[-1][0].done()])
        assert sick.killed
        asked_of(engine)[-1].answer(-1)
        assert future.result(5)["kind"] == "judged"


def test_a_verdict_on_another_candidate_is_none():
    engine = Engine(A)
    with RayPool(engine, judges=1) as pool:
        future = ask(pool)
        until(lambda: asked_of(engine))
        engine.actors[0].answer(evaluation={"task": RELU, "candidate_sha256": "0"})
        assert "verdict on another candidate" in future.result(5)["message"]


@pytest.mark.parametrize(
    ("about", "said"),
    [({"code": "other"}, "runs another code of pallas_evo"), ({"jax": "0.0"}, "runs another version of JAX")],
)
def test_a_node_with_other_code_is_refused(about, said):
    with RayPool(Engine(A, about=lambda place: about), judges=1) as pool:
        with pytest.raises(WorkerFailed, match=said):
            pool.wait_ready(10)
        assert said in ask(pool).result(5)["message"]


def test_another_card_of_the_same_type_is_refused():
    engine = Engine(A, B, about=lambda place: {"device": f"A100 {place.node.id}"})
    with RayPool(engine, judges=1) as pool:
        until(lambda: {actor["state"] for actor in pool.status()["actors"]} == {"up", "failed"})
        why = next(actor["why"] for actor in pool.status()["actors"] if actor["why"])
        assert "times from different cards never meet" in why


def test_nodes_that_come_are_used_and_other_cards_left_alone():
    engine, said = Engine(A), []
    with RayPool(engine, judges=1, say=said.append) as pool:
        engine.there += [B, Node("c", "third", 8, 64, "H100")]
        until(lambda: len(pool.gpus) == 2)
        until(lambda: any("third: its H100 is left alone" in line for line in said))
        assert len(pool.status()["actors"]) == 2


def test_a_cluster_that_lost_all_its_nodes_fails_what_waits(monkeypatch):
    monkeypatch.setattr(ray_pool, "EMPTY_S", 0.1)
    engine = Engine(A)
    with RayPool(engine, judges=1) as pool:
        pool.wait_ready(10)
        engine.there.clear()
        until(lambda: not pool.status()["actors"])
        assert "no node to judge on" in ask(pool).result(10)["message"]


def test_deadlines(monkeypatch):
    monkeypatch.setattr(ray_pool, "LATE_S", 0.05)
    engine = Engine(A)
    with RayPool(engine, judges=1) as pool:
        pool.wait_ready(10)
        hanging, waiting = ask(pool, "# 1", 0.2), ask(pool, "# 2", 0.05)
        assert waiting.result(10)["message"] == "No judge was free before the deadline."
        assert "did not answer within" in hanging.result(10)["message"]
        assert engine.actors[0].killed


def test_what_waits_or_runs_when_the_pool_ends_gets_a_failure():
    pool = RayPool(Engine(A), judges=1)
    pool.wait_ready(10)
    futures = [ask(pool, f"# {n}") for n in range(2)]
    pool.close()
    assert [future.result(1)["kind"] for future in futures] == ["failure", "failure"]
    with pytest.raises(WorkerFailed, match="closed"):
        ask(pool)


def test_where_actors_go():
    four = Node("d", "big", 4, 64, "A100")
    nodes = [A, four, Node("e", "head", 0, 0, None), Node("f", "other", 8, 8, "H100")]
    assert [str(place) for place in places(nodes, "cuda", "A100", None)] == ["first:a/0"] + [
        f"big:d/{n}" for n in range(4)
    ]
    assert len(places(nodes, "cuda", "A100", 2)) == 2
    assert {place.cpus for place in places([four], "cuda", "A100", None)} == {16}
    cores = [Node("a", "x", 0, 8, None), Node("b", "y", 0, 2, None), Node("c", "head", 0, 0, None)]
    assert [str(place) for place in places(cores, "cpu", None, None)] == ["x:a/0", "y:b/0"]
    assert [place.cpus for place in places(cores, "cpu", None, 3)] == [4, 4, 2]


def test_which_card():
    both = [A, Node("f", "other", 8, 8, "H100")]
    assert choose_target(both, "auto", "H100") == ("cuda", "H100")
    assert choose_target([A], "auto", None) == ("cuda", "A100")
    assert choose_target([Node("c", "x", 0, 2, None)], "auto", None) == ("cpu", None)
    assert choose_target(both, "cpu", None) == ("cpu", None)
    for nodes, target, accelerator, kind, said in (
        (both, "auto", None, UsageError, r"several accelerators \(A100, H100\)"),
        (both, "cuda", "T4", UsageError, "the Ray cluster has A100, H100"),
        (both, "cpu", "A100", UsageError, "needs GPUs"),
        ([Node("c", "x", 0, 2, None)], "cuda", None, DeviceUnavailable, "No node of the Ray cluster has a GPU"),
        ([Node("c", "x", 0, 2, None)], "auto", "A100", UsageError, "the Ray cluster has no GPU"),
    ):
        with pytest.raises(kind, match=said):
            choose_target(nodes, target, accelerator)


def test_no_secret_reaches_an_actor(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "s")
    monkeypatch.setenv("DATABASE_PASSWORD", "s")
    monkeypatch.setenv("RAY_SOMETHING", "1")
    assert {"OPENAI_API_KEY": "", "DATABASE_PASSWORD": ""}.items() <= hidden().items()
    code = (
        "import os; from pallas_evo.pool.ray_actor import leave_only_ours; leave_only_ours();"
        "print(sorted(n for n in os.environ if n in ('OPENAI_API_KEY', 'DATABASE_PASSWORD', 'RAY_SOMETHING', 'PATH')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['PATH', 'RAY_SOMETHING']"


def test_the_service_answers_clients_that_see_no_gpu(tmp_path):
    folder = tmp_path / "run"
    with RayPool(Engine(A), judges=1) as pool:
        server = Server(pool, folder / "s")
        try:
            asked = {"cuda_visible_devices": None}
            assert server._unsuitable({**asked, "target": "auto"}) is None
            assert server._unsuitable({**asked, "target": "cuda"}) is None
            assert server._unsuitable({**asked, "target": "cpu"}) == "it judges on cuda, not on cpu"
        finally:
            server.close()


def test_without_ray_a_sentence_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("PALLAS_EVO_SOCKET", str(tmp_path / "run" / "s"))
    for command in (["serve", "--ray", "auto"], ["doctor", "--ray", "auto"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "pip install 'pallas-evo[ray]'" in said
        assert "Traceback" not in said
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "expected auto, or the head's HOST:PORT"),
        ("head", "expected auto, or the head's HOST:PORT"),
        ("127.0.0.1:99999", "nothing answers there"),
        ("127.0.0.1:1", r"nothing answers there \(Connection refused\)"),
    ],
)
def test_an_address_that_is_none(address, said):
    with pytest.raises(UsageError, match=said):
        ray_cluster._check(address)


@pytest.mark.parametrize(
    ("error", "address", "said"),
    [
        (RuntimeError("Version mismatch: Ray: 2.9"), "127.0.0.1:{port}", "is of another version"),
        (ConnectionError("Could not find any running Ray instance."), "auto", "No Ray cluster runs on this machine"),
        (RuntimeError("no\n  raylet"), "127.0.0.1:{port}", r"no Ray cluster can be joined there .*no raylet"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_said_in_a_sentence(error, address, said, monkeypatch):
    def init(**settings):
        assert settings["log_to_driver"] is False
        raise error

    ray = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = address.format(port=listener.getsockname()[1])
        with pytest.raises(UsageError, match=said):
            ray_cluster.Cluster(where)


def test_options_that_need_a_cluster(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PALLAS_EVO_SOCKET", str(tmp_path / "run" / "s"))
    assert main(["serve", "--accelerator", "A100"]) == 2
    assert "give its address by --ray" in capsys.readouterr().err
    assert main(["serve", "--ray", "auto", "--actors", "0"]) == 2
    assert "--actors 0: expected auto, or a number from 1 to 1024" in capsys.readouterr().err


def test_nothing_imports_ray_unasked():
    code = "import sys, pallas_evo.cli.app, pallas_evo.pool.ray_pool; print('ray' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
