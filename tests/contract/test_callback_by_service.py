"""`pallas_evo serve` with real judges on the CPU: the same verdict whichever way it is asked for, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pallas_evo.archive import open_archive
from pallas_evo.paths import EVALUATORS, SEEDS, seed_file

pytestmark = pytest.mark.slow

FAST = ["--set", "judging.small_seeds=1", "--set", "judging.variant_seeds=0", "--set", "compile.enabled=false"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SEEDS.parent)}
PALLAS_EVO = [sys.executable, "-m", "pallas_evo"]
# Its modules are not edited while these tests run, or client and service would be strangers by their build.


@pytest.fixture(scope="module")
def service():
    with tempfile.TemporaryDirectory(prefix="pe") as folder:
        path, temporary = Path(folder) / "judge.sock", Path(folder) / "t"
        temporary.mkdir()
        line = [*PALLAS_EVO, "serve", "--socket", str(path), "--judges", "1", "--target", "cpu", "--json", *FAST]
        environment = {**ENVIRONMENT, "TMPDIR": str(temporary)}
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as one:
            try:
                assert one.stdout is not None
                ready = json.loads(one.stdout.readline())
                assert (ready["socket"], ready["target"], ready["judges"]) == (str(path), "cpu", 1)
                yield path
            finally:
                family = descendants(one.pid)
                one.send_signal(signal.SIGTERM)
                _, err = one.communicate(timeout=30)
        assert one.returncode == 0
        assert "Traceback" not in err
        assert not [pid for pid in family if running(pid)]
        assert not path.exists()
        assert list(temporary.iterdir()) == []


def descendants(pid):
    found, left = [], [pid]
    while left:
        one = left.pop()
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except OSError:
                continue
            found += children
            left += children
    return found


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def judged(path):
    done = subprocess.run(
        [*PALLAS_EVO, "serve", "--status", "--socket", str(path), "--json"],
        capture_output=True, text=True, env=ENVIRONMENT, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)["judged"]


def shape(value):
    """What a value is made of, without what changes from one evaluation to the next."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


def test_evaluate_says_the_same_with_and_without_it(service, tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(seed_file("L1/relu").read_text().replace("jnp.maximum(x, 0.0)", "x"))
    names, archive = [str(seed_file("L1/relu")), str(bad)], tmp_path / "a.sqlite"
    line = [*PALLAS_EVO, "evaluate", *names, "--task", "L1/relu", "--target", "cpu", "--json", *FAST]
    line += ["--archive", str(archive)]
    before = judged(service)
    said = {}
    for way in (str(service), "off"):
        done = subprocess.run([*line, "--service", way], capture_output=True, text=True, env=ENVIRONMENT)
        assert (done.returncode, done.stderr) == (1, "")
        said[way] = [json.loads(one) for one in done.stdout.splitlines()]
    assert judged(service) == before + 2
    for with_it, without in zip(said[str(service)], said["off"], strict=True):
        assert shape(with_it) == shape(without)
        for key in ("status", "reason", "combined_score", "candidate_sha256", "ran_on", "jail", "timer", "environment"):
            assert with_it[key] == without[key]
    assert [one["status"] for one in said[str(service)]] == ["accepted", "rejected"]
    with open_archive(archive) as store:
        assert store.summary().evaluations == 4


def test_shinkas_callback_is_served(service, tmp_path):
    words = ["--program_path", str(seed_file("L1/relu")), "--task", "L1/relu", "--target", "cpu", *FAST]
    found = {}
    before = judged(service)
    for way in (str(service), "off"):
        results = tmp_path / way.strip("/").replace("/", "-")
        line = [sys.executable, str(EVALUATORS / "evaluate.py"), *words, "--results_dir", str(results)]
        done = subprocess.run([*line, "--service", way], capture_output=True, text=True, env=ENVIRONMENT)
        assert (done.returncode, done.stderr, done.stdout) == (0, "", "accepted 1.0000\n")
        found[way] = {one.name: json.loads(one.read_text()) for one in sorted(results.iterdir())}
    assert judged(service) == before + 1
    assert shape(found[str(service)]) == shape(found["off"])
    assert found[str(service)]["correct.json"] == {"correct": True, "error": None, "judged": True}
