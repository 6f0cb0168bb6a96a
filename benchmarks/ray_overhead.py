"""What Ray costs a candidate, and what more CPU actors give on this machine.

    python benchmarks/ray_overhead.py [--requests 300] [--judged 24] [--part overhead|throughput]

`overhead`: milliseconds from asking to the record, with judges that judge nothing: the local pool, then the same judges
in an actor of a Ray cluster on this machine. `throughput`: candidates a minute that 1, 2 and 4 actors with one judge
each judge in the executor, all gates, every source distinct. docs/ray.md quotes both. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAND_INS = ROOT / "tests" / "unit" / "pool"
sys.path[:0] = [str(ROOT), str(STAND_INS)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(STAND_INS)])  # Ray's processes inherit it
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from stand_ins import FACTORY, pool  # noqa: E402

from pallas_evo.paths import seed_file  # noqa: E402
from pallas_evo.pool.ray_cluster import Cluster  # noqa: E402
from pallas_evo.pool.ray_pool import RayPool  # noqa: E402

WARM = 20
TASK = "L3/transformer_block"
JUDGED = ("L1/relu", "L1/softmax", "L2/matmul_relu")


def main() -> int:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--judged", type=int, default=24)
    parser.add_argument("--part", choices=("overhead", "throughput", "all"), default="all")
    given = parser.parse_args()
    with _cluster() as address:
        if given.part != "throughput":
            _overhead(address, given.requests)
        if given.part != "overhead":
            for actors in (1, 2, 4):
                _throughput(address, actors, given.judged)
    return 0


def _overhead(address: str, count: int) -> None:
    source = seed_file(TASK).read_text()

    def request(n: int) -> dict[str, Any]:
        return {"source": f"{source}# {n}\n", "task": TASK, "target": "cpu"}

    with pool(judges=1) as local:
        local.wait_ready()
        here = _median_ms("local pool, 1 judge", lambda n: local.submit_request(request(n)), count)
    with RayPool(Cluster(address), target="cpu", actors=1, judges=1, _factory=FACTORY) as spread:
        spread.wait_ready()
        there = _median_ms("Ray, 1 actor of 1 judge", lambda n: spread.submit_request(request(n)), count)
    with RayPool(Cluster(address), target="cpu", actors=2, judges=2, most_queued=count, _factory=FACTORY) as spread:
        spread.wait_ready(every=True)
        for _ in range(2):  # the first round warms
            start = time.perf_counter()
            for future in [spread.submit_request(request(n)) for n in range(count)]:
                assert future.result()["kind"] == "judged"
            took_s = time.perf_counter() - start
    print(f"Ray, 2 actors of 2 judges, {count} requests at once: {count / took_s:.0f} a second", flush=True)
    print(f"Ray adds {there - here:.2f} ms a candidate in the median", flush=True)


def _median_ms(what: str, ask: Callable[[int], Any], count: int) -> float:
    taken = []
    for n in range(count + WARM):
        start = time.perf_counter()
        assert ask(n).result()["kind"] == "judged"
        taken.append(1e3 * (time.perf_counter() - start))
    taken = sorted(taken[WARM:])
    median = taken[len(taken) // 2]
    print(f"{what}: median {median:.2f} ms, 95th percentile {taken[int(0.95 * len(taken))]:.2f} ms", flush=True)
    return median


def _throughput(address: str, actors: int, count: int) -> None:
    sources = {task: seed_file(task).read_text() for task in JUDGED}

    def submit(n: int) -> Any:
        task = JUDGED[n % len(JUDGED)]
        return spread.submit_request({"source": f"{sources[task]}# {actors} {n}\n", "task": task, "target": "cpu"})

    with RayPool(Cluster(address), target="cpu", actors=actors, judges=1) as spread:
        spread.wait_ready(every=True)
        for future in [submit(-1 - n) for n in range(actors)]:
            assert future.result()["kind"] == "judged"
        start = time.perf_counter()
        records = [future.result() for future in [submit(n) for n in range(count)]]
        took_s = time.perf_counter() - start
    good = sum(record["kind"] == "judged" and record["correct"] for record in records)
    print(
        f"{actors} actors: {60 * count / took_s:.1f} a minute ({good} of {count} correct, {took_s:.1f} s)", flush=True
    )


@contextlib.contextmanager
def _cluster() -> Iterator[str]:
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    sys.exit(main())
