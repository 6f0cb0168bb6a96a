"""The GPU's lease: one holder at a time between unrelated processes, and free when its holder is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pallas_evo.errors import DeviceUnavailable
from pallas_evo.running import lease

HOLD = """
import sys, time
from pathlib import Path
from pallas_evo.running import lease
with lease(sys.argv[1], folder=Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, "GPU-1", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_process_waits_and_says_so(holder, tmp_path):
    with pytest.raises(DeviceUnavailable, match="another process"), lease("GPU-1", deadline_s=0.2, folder=tmp_path):
        pass


def test_another_gpu_is_free(holder, tmp_path):
    with lease("GPU-2", deadline_s=0.2, folder=tmp_path) as waited_s:
        assert waited_s >= 0


def test_a_killed_holder_leaves_the_gpu_free(holder, tmp_path):
    holder.kill()
    holder.wait()
    with lease("GPU-1", deadline_s=5, folder=tmp_path):
        pass


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path):
    with pytest.raises(DeviceUnavailable, match="lock file"), lease("GPU-1", folder=tmp_path / "missing"):
        pass


SHARE = """
import sys
from pathlib import Path
from pallas_evo.running import lease
print("started", flush=True)
while True:
    with lease(sys.argv[1], shared=True, folder=Path(sys.argv[2])):
        pass
"""


@pytest.fixture
def sharers(tmp_path):
    """Processes that share the GPU again and again, so that some of them nearly always hold it."""
    line = [sys.executable, "-c", SHARE, "GPU-1", str(tmp_path)]
    processes = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_stream_of_sharers_does_not_keep_the_one_who_times_waiting_for_ever(sharers, tmp_path):
    for _ in range(5):
        with lease("GPU-1", deadline_s=20, folder=tmp_path):
            pass
    assert all(process.poll() is None for process in sharers)


def test_sharers_hold_it_together_and_keep_the_one_who_times_out(tmp_path):
    with lease("GPU-1", shared=True, folder=tmp_path), lease("GPU-1", shared=True, deadline_s=0.2, folder=tmp_path):
        with pytest.raises(DeviceUnavailable), lease("GPU-1", deadline_s=0.1, folder=tmp_path):
            pass
        with lease("GPU-1", shared=True, deadline_s=0.5, folder=tmp_path):  # the turnstile is open again
            pass


def test_the_one_who_times_keeps_sharers_out(holder, tmp_path):
    with pytest.raises(DeviceUnavailable), lease("GPU-1", shared=True, deadline_s=0.2, folder=tmp_path):
        pass
