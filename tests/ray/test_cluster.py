"""Judges on a Ray cluster of three nodes: nodes that are killed, the card's type, the way there, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pretended import gpu_node
from stand_ins import FACTORY, alive, below, until

from pallas_evo.cli.app import main
from pallas_evo.errors import UsageError
from pallas_evo.paths import seed_file
from pallas_evo.pool import client, protocol
from pallas_evo.pool.ray_cluster import Cluster
from pallas_evo.pool.ray_pool import RayPool
from pallas_evo.pool.server import Server

RELU = "L1/relu"


def on_ray(cluster, **settings):
    return RayPool(Cluster(cluster.address), say=lambda line: print(line, file=sys.stderr), **settings)


def judge_pids(pool):
    return {judge["pid"] for judge in pool.status()["judges"]}


def kill_node(pool, node):
    """As a machine that loses its power while a candidate is at work there: all of it goes at once, without a word."""
    until(lambda: any(actor["running"] and node.node_id[:6] in actor["place"] for actor in pool.status()["actors"]))
    raylet = node.all_processes["raylet"][0].process.pid
    for pid in (raylet, *below(raylet)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_sixty_candidates_and_a_node_killed_twice(cluster):
    nodes = [gpu_node(cluster) for _ in range(3)]
    with on_ray(cluster, judges=1, _factory=FACTORY) as pool:
        pool.wait_ready(120, every=True)
        assert (pool.target, len(pool.status()["actors"])) == ("cuda", 3)
        for pid in judge_pids(pool) | {actor["pid"] for actor in pool.status()["actors"]}:
            assert b"s3cret" not in Path(f"/proc/{pid}/environ").read_bytes()
        answers = Counter()
        futures = []
        for n in range(60):
            source = f"# {n}\nsleep 0.7\n"
            future = pool.submit_request({"source": source, "task": RELU, "target": "cuda"})
            future.add_done_callback(lambda _, n=n: answers.update([n]))
            futures.append(future)
        until(lambda: len(answers) >= 10)
        kill_node(pool, nodes[0])
        gpu_node(cluster)  # another comes for it
        until(lambda: len(answers) >= 25)
        kill_node(pool, nodes[1])
        assert len(answers) < 60
        records = [future.result(120) for future in futures]
        assert [record["kind"] for record in records] == ["judged"] * 60
        assert len({record["evaluation"]["candidate_sha256"] for record in records}) == 60
        until(lambda: len(answers) == 60)
        assert set(answers.values()) == {1}
        status = pool.status()
        assert (status["judged"], status["failures"], status["queued"], status["busy"]) == (60, 0, 0, 0)
        assert status["retries"] >= 2  # each node died with a candidate at work
        assert max(record["service"]["tries"] for record in records) >= 2


def test_an_actor_has_no_more_than_its_judges_and_the_queue_is_bounded(cluster):
    gpu_node(cluster)
    with on_ray(cluster, judges=2, most_queued=3, _factory=FACTORY) as pool:
        pool.wait_ready(120)
        futures = []
        for n in range(5):
            futures.append(pool.submit_request({"source": f"# {n}\nsleep 1\n", "task": RELU, "target": "auto"}))
            until(lambda n=n: pool.status()["busy"] == min(n + 1, 2))
        status = pool.status()
        assert (status["busy"], status["queued"]) == (2, 3)
        assert pool.ahead_of(futures[4]) == 2
        refused = pool.submit_request({"source": "", "task": RELU, "target": "auto"}).result(1)
        assert refused["message"].startswith("busy: 3 candidates")
        assert [future.result(60)["kind"] for future in futures] == ["judged"] * 5


def test_times_of_different_cards_never_meet(cluster):
    gpu_node(cluster, "A100")
    gpu_node(cluster, "H100")
    engine = Cluster(cluster.address)
    with pytest.raises(UsageError, match=r"several accelerators \(A100, H100\).*Choose one by --accelerator"):
        RayPool(engine)
    with pytest.raises(UsageError, match=r"--accelerator T4: the Ray cluster has A100, H100"):
        RayPool(engine, accelerator="T4")
    with RayPool(engine, accelerator="H100", judges=1, _factory=FACTORY) as pool:
        pool.wait_ready(120, every=True)
        assert [actor["accelerator"] for actor in pool.status()["actors"]] == ["H100"]
        record = pool.submit_request({"source": "", "task": RELU, "target": "cuda"}).result(60)
        assert record["kind"] == "judged"


def test_without_gpus_it_judges_on_cores_behind_the_same_socket_and_leaves_nothing(cluster, tmp_path, monkeypatch):
    cluster.add_node(num_cpus=2)
    cluster.add_node(num_cpus=2)
    monkeypatch.setattr(protocol, "build", lambda: "test")
    before = below(os.getpid())
    path = tmp_path / "run" / "judge.sock"
    with on_ray(cluster, actors=3, judges=1, _factory=FACTORY) as pool:
        server = Server(pool, path)
        serving = threading.Thread(target=lambda: server.serve(signals=False))
        serving.start()
        try:
            pool.wait_ready(120, every=True)
            assert (pool.target, len(pool.status()["actors"])) == ("cpu", 3)
            record = client.ask({"source": "# one", "task": RELU, "target": "auto"}, service=str(path))
            assert record["correct"] is True
            assert record["service"]["place"].endswith(("/0", "/1"))
            status = client.status(str(path))
            assert (status["judged"], len(status["actors"])) == (1, 3)
            examined = subprocess.run(
                [sys.executable, "-m", "pallas_evo", "doctor", "--ray", cluster.address, "--json"],
                capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert examined.returncode == 0, examined.stderr
            told = json.loads(examined.stdout)["ray"]
            assert sum(actor["about"]["pool"]["judged"] for actor in told["actors"]) == 1
            until(lambda: len(judge_pids(pool)) == 3)
            judges = judge_pids(pool)
        finally:
            server.stop()
            serving.join()
    assert not [pid for pid in judges if alive(pid)]
    until(lambda: not [pid for pid in below(os.getpid()) - before if "Host" in name(pid)])


def name(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_seed_is_judged_by_the_command_and_ctrl_c_leaves_nothing(cluster, tmp_path):
    cluster.add_node(num_cpus=2)
    path = str(tmp_path / "run" / "judge.sock")
    command = [sys.executable, "-m", "pallas_evo"]
    with subprocess.Popen(
        [*command, "serve", "--ray", cluster.address, "--judges", "1", "--socket", path, "--json"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "RAY_ADDRESS": ""},
    ) as service:  # fmt: skip
        try:
            assert json.loads(service.stdout.readline())["target"] == "cpu"
            done = subprocess.run(
                [*command, "evaluate", str(seed_file(RELU)), "--task", RELU, "--service", path, "--json",
                 "--archive", f"sqlite:///{tmp_path}/archive.sqlite"],
                capture_output=True, text=True, timeout=200,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["correct"] is True
            assert "judging here" not in done.stderr
            status = client.status(path)
            assert status["judged"] == 1
            judges = {judge["pid"] for judge in status["judges"]}
        finally:
            service.send_signal(signal.SIGINT)
            assert service.wait(60) == 0
    until(lambda: not [pid for pid in judges if alive(pid)])
    assert not Path(path).exists()


def test_what_is_no_cluster_is_said_in_a_sentence(capsys, tmp_path):
    assert main(["serve", "--ray", "127.0.0.1:1", "--socket", str(tmp_path / "run" / "s")]) == 2
    assert "--ray 127.0.0.1:1: nothing answers there (Connection refused)" in capsys.readouterr().err
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pallas_evo", "doctor", "--ray", "auto"], capture_output=True, text=True, timeout=120,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
    )  # fmt: skip
    assert done.returncode == 2, f"{done.stderr} after {time.monotonic() - began:.0f} s"
    assert "No Ray cluster runs on this machine. Start one by: ray start --head" in done.stderr
    assert "Traceback" not in done.stderr
