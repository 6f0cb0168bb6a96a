"""Shared by all tests: GPU tests skip by themselves where there is no GPU."""

from __future__ import annotations

import os

import pytest

from pallas_evo.running import gpu_present

os.environ["PALLAS_EVO_SOCKET"] = ""  # a service that runs on this machine judges no test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` on a machine without one."""
    if gpu_present():
        return
    skip = pytest.mark.skip(reason="no NVIDIA GPU on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
