"""What the service and its pool cost a candidate: their own time, with judges that judge nothing.

    python benchmarks/pool_overhead.py [--requests 300]

Prints milliseconds from asking to the record: through the socket with one client and one judge, with eight clients and
two judges, and by the pool alone. docs/serve.md quotes them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "pool")]

from stand_ins import pool, serving  # noqa: E402

from pallas_evo.paths import seed_file  # noqa: E402
from pallas_evo.pool import client, protocol  # noqa: E402

WARM = 20  # requests that are not counted
TASK = "L3/transformer_block"
SOURCE = "".join(f"# {line}\n" for line in seed_file(TASK).read_text().splitlines())


def main() -> int:
    """Measure all three and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=300)
    count = parser.parse_args().requests
    protocol.build = lambda: "test"  # as the stand-ins' service has it
    with tempfile.TemporaryDirectory(prefix="pe") as folder, _quiet():
        path = Path(folder) / "judge.sock"

        def through_the_socket(n: int) -> None:
            request = {"source": f"{SOURCE}# {n}\n", "task": TASK, "target": "cpu"}
            record = client.ask(request, service=str(path))
            assert record is not None
            assert record["kind"] == "judged"

        with serving(path, judges=1):
            _report("socket, 1 client, 1 judge", map(_timed(through_the_socket), range(count + WARM)))
        with serving(path, judges=2), ThreadPoolExecutor(8) as threads:
            _report("socket, 8 clients, 2 judges", threads.map(_timed(through_the_socket), range(count + WARM)))
        with pool(judges=1) as judges:
            judges.wait_ready()
            ask = _timed(lambda n: judges.submit(f"{SOURCE}# {n}\n", TASK).result())
            _report("pool alone, 1 judge", map(ask, range(count + WARM)))
    return 0


def _timed(call: Callable[[int], object]) -> Callable[[int], float]:
    def timed(n: int) -> float:
        start = time.perf_counter()
        call(n)
        return time.perf_counter() - start

    return timed


def _report(what: str, took_s: Iterable[float]) -> None:
    taken = sorted(list(took_s)[WARM:])
    median, high = taken[len(taken) // 2], taken[int(0.95 * len(taken))]
    print(f"{what}: median {1e3 * median:.2f} ms, 95th percentile {1e3 * high:.2f} ms", flush=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send stderr, where the service says each verdict, to nowhere."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
