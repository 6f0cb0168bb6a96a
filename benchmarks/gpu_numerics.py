"""All 45 seeds on this machine's GPU at small, medium and large: are their numerics those of the judge?

    python benchmarks/gpu_numerics.py --out runs/h200-2026-11-30/seed_numerics.json

Each seed goes the candidate's way: jailed trace, validator, GPU runner, judge. Prints a line a seed and one count.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import time
from pathlib import Path

import numpy as np

from pallas_evo import evaluation, paths, tasks
from pallas_evo.artefact import validate_jailed
from pallas_evo.config import Config
from pallas_evo.jail import level
from pallas_evo.judging.numerics import compare
from pallas_evo.running import DeviceRunner, driver_version
from pallas_evo.tracing import trace
from pallas_evo.types import Rejection, Task

SIZES = ("small", "medium", "large")


def check(task: Task, sizes: tuple[str, ...], config: Config) -> dict[str, object]:
    """One seed's results, by size."""
    start = time.perf_counter()
    row: dict[str, object] = {"task": task.id, "sizes": {}}
    workloads = [tasks.workload(task, tasks.dims_of(task, size), size) for size in sizes]  # type: ignore[arg-type]
    source = paths.seed_file(task.id).read_text()
    traced = trace(source, task, workloads, config.trace, allow_unjailed=config.allow_unjailed)
    if isinstance(traced, Rejection):
        return {**row, "passed": False, **dataclasses.asdict(traced)}
    artefacts = validate_jailed(
        list(zip(traced.modules, workloads, strict=True)), config.artefact, allow_unjailed=config.allow_unjailed
    )
    results: dict[str, dict[str, object]] = {}
    with DeviceRunner(config.run) as runner:
        for index, (workload, artefact) in enumerate(zip(workloads, artefacts, strict=True)):
            if isinstance(artefact, Rejection):
                results[workload.label] = {"passed": False, **dataclasses.asdict(artefact)}
                continue
            inputs = tasks.draw_inputs(task, workload.dims, np.random.default_rng([task.number, index]))
            ran = runner.run(artefact, inputs)
            if isinstance(ran, Rejection):
                results[workload.label] = {"passed": False, **dataclasses.asdict(ran)}
                continue
            output = ran[0]
            reference, yardstick = tasks.reference64(task, inputs), tasks.yardstick(task, inputs)
            found = compare(output, reference, yardstick, task.precision, config.judging.numerics)
            results[workload.label] = {
                "passed": found.reason is None,
                "reason": found.reason,
                "message": found.message,
                "normwise_error": found.normwise_error,
                "bound": found.bound,
            }
        device = runner.device
    return {
        **row,
        "passed": all(bool(result["passed"]) for result in results.values()),
        "sizes": results,
        "device": device,
        "seconds": round(time.perf_counter() - start, 2),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--only", default="", help="task ids, comma-separated")
    parser.add_argument("--jobs", type=int, default=6)
    arguments = parser.parse_args()
    config = Config()
    config.allow_unjailed = True
    config.run.deadline_s = 180.0
    chosen = [task for task in tasks.load_tasks() if not arguments.only or task.id in arguments.only.split(",")]
    sizes = tuple(arguments.sizes.split(","))
    rows = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda task: check(task, sizes, config), chosen):
            rows.append(row)
            print(json.dumps(row)[:700], flush=True)
            record = {
                "what": "seed numerics on a GPU",
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "passed": sum(bool(r["passed"]) for r in rows),
                "of": len(rows),
                "driver": driver_version(),
                "jail": level(),
                "environment": dict(evaluation.environment()),
                "rows": rows,
            }
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{record['passed']}/{record['of']} seeds pass at {', '.join(sizes)}")


if __name__ == "__main__":
    main()
