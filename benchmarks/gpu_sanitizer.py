"""compute-sanitizer on this machine's GPU: is every seed clean, are kernels that leave their buffers found, how long?

    python benchmarks/gpu_sanitizer.py --out runs/h200-2026-12-01/sanitizer.json [--only L1/relu,...] [--tools memcheck]

The kernels that leave their buffers are not judged, or the executor would refuse them first.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pallas_evo import paths, tasks
from pallas_evo.artefact import validate_jailed
from pallas_evo.config import Config
from pallas_evo.errors import PallasEvoError
from pallas_evo.evaluation import environment
from pallas_evo.running import driver_version
from pallas_evo.running.sanitizer import find_sanitizer, sanitize
from pallas_evo.tracing import trace
from pallas_evo.types import Artefact, Rejection

LOAD = "x = plgpu.load(x_ref.at[rows, cols], mask=inside, other=0.0)"
STORE = "plgpu.store(o_ref.at[rows, cols], jnp.maximum(x, 0.0), mask=inside)"
BAD = {  # what -> (old, new) in the seed of L1/relu
    "reads past the input": (LOAD, f"{LOAD} + 0.0 * plgpu.load(x_ref.at[rows + x_ref.shape[0], cols])"),
    "writes past the output": (STORE, f"{STORE}; plgpu.store(o_ref.at[rows + o_ref.shape[0], cols], x, mask=inside)"),
}


def artefact_of(source: str, task_id: str) -> Artefact:
    """The validated program of a source at small."""
    task, config = tasks.get_task(task_id), Config()
    workload = tasks.workload(task, tasks.dims_of(task, "small"), "small")
    traced = trace(source, task, [workload], config.trace)
    if isinstance(traced, Rejection):
        raise SystemExit(f"{task_id}: {traced.message}")
    (found,) = validate_jailed([(traced.modules[0], workload)], config.artefact)
    if isinstance(found, Rejection):
        raise SystemExit(f"{task_id}: {found.message}")
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="task ids, comma-separated")
    parser.add_argument("--tools", default="memcheck")
    parser.add_argument("--jobs", type=int, default=4)
    arguments = parser.parse_args()
    chosen = [task.id for task in tasks.load_tasks() if not arguments.only or task.id in arguments.only.split(",")]
    relu = paths.seed_file("L1/relu").read_text()
    for what, (old, _) in BAD.items():
        assert relu.count(old) == 1, what
    work = [(task, "seed", paths.seed_file(task).read_text()) for task in chosen]
    work += [("L1/relu", what, relu.replace(old, new)) for what, (old, new) in BAD.items()]

    def one(item: tuple[str, str, str]) -> dict[str, object]:
        task, what, source = item
        row: dict[str, object] = {"task": task, "what": what}
        try:
            artefact = artefact_of(source, task)
            inputs = tasks.draw_inputs(tasks.get_task(task), artefact.workload.dims, np.random.default_rng(1))
            reports = sanitize(artefact, inputs, tools=arguments.tools.split(","))
            row["reports"] = [dataclasses.asdict(report) for report in reports or ()]
        except PallasEvoError as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:600]
        print(json.dumps(row)[:500], flush=True)
        return row

    start = time.perf_counter()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(one, work))
    record = {
        "what": "compute-sanitizer on every seed and on kernels that leave their buffers",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": round(time.perf_counter() - start, 1),
        "sanitizer": find_sanitizer() is not None,
        "driver": driver_version(),
        "environment": dict(environment()),
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
