"""The loopback service is reached past a proxy, and leaves the environment as it was."""

from __future__ import annotations

import os

import httpx
import pytest

from pallas_evo.evolution.mutator import OfflineMutator
from pallas_evo.evolution.service import offline_service


@pytest.mark.parametrize("before", [None, "intranet.example"])
def test_a_proxy_in_the_environment_is_passed_by(before, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        if before:
            monkeypatch.setenv(name, before)
    with offline_service(OfflineMutator()) as model:
        answer = httpx.get(model.partition("@")[2] + "/models", timeout=10)
        assert answer.status_code == 501, "the service itself says that it takes no GET"
    assert os.environ.get("NO_PROXY") == before
