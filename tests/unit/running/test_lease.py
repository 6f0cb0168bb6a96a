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
