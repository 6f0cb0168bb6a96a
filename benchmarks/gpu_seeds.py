"""Every seed through all gates on this machine's GPU, timed at medium against XLA.

    python benchmarks/gpu_seeds.py --out runs/h200-2026-12-01/seeds_timed.json

Prints a line a seed: verdict, ratio by device time and by wall clock, share of the roofline; then a count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from pallas_evo import paths, tasks
from pallas_evo.config import load_config
from pallas_evo.errors import PallasEvoError
from pallas_evo.evaluation import Evaluator


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="task ids, comma-separated")
    parser.add_argument("--set", action="append", default=[], help="configuration overrides")
    arguments = parser.parse_args()
    chosen = [task for task in tasks.load_tasks() if not arguments.only or task.id in arguments.only.split(",")]
    rows = []
    start = time.perf_counter()
    with Evaluator(load_config(overrides=arguments.set), target="cuda") as evaluator:
        for index, task in enumerate(chosen):
            try:
                verdict = evaluator.evaluate(paths.seed_file(task.id).read_text(), task, more=index + 1 < len(chosen))
            except PallasEvoError as error:
                rows.append({"task": task.id, "failed": f"{type(error).__name__}: {error}"})
                print(task.id, "OUR FAILURE", str(error)[:300], flush=True)
                continue
            size = verdict.sizes.get("medium")
            timing = verdict.environment.get("timing", {}).get("medium", {})
            wall = None
            if timing:
                wall = statistics.median(timing["wall_baseline_us"]) / statistics.median(timing["wall_candidate_us"])
            rows.append(
                {
                    "task": task.id,
                    "correct": verdict.correct,
                    "reason": verdict.reason,
                    "message": verdict.message,
                    "score": verdict.combined_score,
                    "wall_score": wall,
                    "median_us": size.median_us if size else None,
                    "xla_us": size.xla_us if size else None,
                    "roofline_percent": size.roofline_percent if size else None,
                    "gates_s": {gate.name: gate.seconds for gate in verdict.gates},
                    "duration_s": verdict.duration_s,
                    "timing": timing,
                    "samples_us": size.samples_us if size else None,
                    "device": verdict.ran_on,
                }
            )
            record = {
                "what": "every seed through all gates on a GPU",
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "correct": sum(bool(row.get("correct")) for row in rows),
                "of": len(rows),
                "seconds": round(time.perf_counter() - start, 1),
                "environment": {k: v for k, v in verdict.environment.items() if k != "timing"},
                "rows": rows,
            }
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(record) + "\n")
            shown = {
                k: round(v, 3) if isinstance(v, float) else v
                for k, v in rows[-1].items()
                if k not in ("timing", "samples_us")
            }
            print(json.dumps(shown)[:600], flush=True)
    print(f"{record['correct']}/{record['of']} seeds accepted in {record['seconds']} s")


if __name__ == "__main__":
    main()
