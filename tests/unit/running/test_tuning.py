"""The folder of XLA's choices: one for a user, a GPU, a driver and an XLA, and nobody else's."""

from __future__ import annotations

import os

import pytest

from pallas_evo import tasks
from pallas_evo.running import tuning

TASK = tasks.get_task("L1/matmul")


def workload(size: str):
    return tasks.workload(TASK, tasks.dims_of(TASK, size), size)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.folder.cache_clear()
    yield tmp_path
    tuning.folder.cache_clear()


def test_each_shape_is_noted_on_its_own(home):
    assert not tuning.tuned(workload("small"))
    tuning.note_tuned(workload("small"))
    assert tuning.tuned(workload("small"))
    assert not tuning.tuned(workload("medium"))
    assert tuning.folder().is_relative_to(home)
    assert os.stat(tuning.folder()).st_mode & 0o077 == 0


def test_a_folder_that_others_may_write_is_not_used(home):
    first = tuning.folder()
    first.chmod(0o777)
    tuning.folder.cache_clear()
    assert not tuning.folder().is_relative_to(home)


def test_without_a_home_each_process_has_a_folder_of_its_own(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert tuning.folder().is_dir()


def test_another_gpu_is_another_folder(monkeypatch, home):
    first = tuning.folder()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-another-kind")
    tuning.folder.cache_clear()
    assert tuning.folder() != first
