"""Shared by all tests: GPU tests skip by themselves where there is no GPU."""

from __future__ import annotations

import os
import signal

import pytest

from pallas_evo.running import gpu_present

os.environ["PALLAS_EVO_SOCKET"] = ""  # a service that runs on this machine judges no test

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every command that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` on a machine without one."""
    if gpu_present():
        return
    skip = pytest.mark.skip(reason="no NVIDIA GPU on this machine")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
