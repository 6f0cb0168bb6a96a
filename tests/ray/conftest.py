"""A Ray cluster of several nodes on this machine, with pretended GPUs, and judges that judge nothing."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

STAND_INS = str(Path(__file__).resolve().parents[1] / "unit" / "pool")
sys.path.insert(0, STAND_INS)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here `ray`, and skip it with a line where Ray is not installed."""
    found = importlib.util.find_spec("ray")
    missing = found is None or found.origin is None  # without Ray this folder itself is found under that name
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.ray)
            if missing:
                item.add_marker(pytest.mark.skip(reason="Ray is not installed here: pip install 'pallas-evo[ray]'"))


@pytest.fixture
def cluster(monkeypatch):
    """A head that judges nothing; `add_node` gives it nodes."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", STAND_INS)
    monkeypatch.setenv("SOME_API_KEY", "s3cret")  # in the raylets' environment: actors must not have it
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()
