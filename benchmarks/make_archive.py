"""Make a large archive of made-up results, and time inspect, the report and the export on it.

    python benchmarks/make_archive.py big.sqlite --programs 100000 --samples 10
    python benchmarks/make_archive.py big.sqlite --measure

The programs are the 45 seeds with one line added, the scores are drawn: nothing in it was measured. Its device is
called "made up" so that nobody takes it for a record.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

DEVICE = "made up"
RUNS = 5
ISLANDS = 4
REASONS = ("trace_error", "numerics", "out_of_bounds", "timeout", "not_pallas", "unwritten")
FILTERS = ("output_range", "output_std", "axes_variation", "input_impact", "source_analysis")


def make(path: Path, programs: int, samples: int, most: int) -> None:
    """Write the archive: as many programs, each judged once, and as many samples for each (half of them XLA's), spread
    over at most so many tasks."""
    from sqlalchemy import create_engine, insert

    from pallas_evo.archive import open_archive, schema
    from pallas_evo.paths import original_file, seed_file
    from pallas_evo.tasks import load_tasks

    tasks = load_tasks()[:most]
    with open_archive(path) as archive, archive.batch():
        archive.add_tasks(tasks)
        for task in tasks:
            root = archive.add_program(task.id, original_file(task.id).read_text(), origin="tpu_original")
            archive.add_program(task.id, seed_file(task.id).read_text(), origin="seed", parent_sha256=root.sha256)
            for number in range(RUNS):
                archive.add_run("evolve", run_id=f"{task.id}-{number}", task=task.id, name=f"{task.id} {number}")
    engine = create_engine(f"sqlite:///{path}")
    random = np.random.default_rng(0)
    started = datetime(2026, 1, 1, tzinfo=UTC)
    with engine.begin() as connection:
        environment = {"sha256": "0" * 64, "content": {"jax": "0.10.2", "device": DEVICE}}
        connection.execute(insert(schema.environments), [environment])
        for place, task in enumerate(tasks):
            mine = programs // len(tasks) + (place < programs % len(tasks))
            tables = _rows(task.id, seed_file(task.id).read_text(), mine, samples, random, started)
            for name in ("programs", "program_texts", "run_programs", "evaluations", "evaluation_details"):
                connection.execute(insert(schema.metadata.tables[name]), tables[name])
            if tables["timing_samples"]:
                connection.execute(insert(schema.timing_samples), tables["timing_samples"])
            sys.stderr.write(f"\r{place + 1} of {len(tasks)} tasks")
    sys.stderr.write("\n")
    engine.dispose()


def _rows(
    task: str, seed: str, programs: int, samples: int, random: np.random.Generator, started: datetime
) -> dict[str, list[dict[str, Any]]]:
    from pallas_evo.archive import sha256_of_text
    from pallas_evo.archive.encoding import new_id, pack_samples, unified_diff

    names = ("programs", "program_texts", "run_programs", "evaluations", "evaluation_details", "timing_samples")
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    line = "# EVOLVE-BLOCK-START\n"
    diff = unified_diff(seed, seed.replace(line, f"{line}# made up NUMBER\n"))
    newest = {number: sha256_of_text(seed) for number in range(RUNS)}
    for number in range(programs):
        source = seed.replace(line, f"{line}# made up {number}\n")
        sha256, run = sha256_of_text(source), number % RUNS
        key = {"task_id": task, "sha256": sha256}
        at = started + timedelta(seconds=number)
        correct = bool(random.random() < 0.6)
        score = float(random.lognormal(-0.5 + 0.4 * number / programs, 0.2)) if correct else 0.0
        tables["programs"].append(
            {**key, "origin": "mutation", "name": f"mutant {number}", "parent_sha256": newest[run], "metadata": {}}
            | {"created_at": at}
        )
        tables["program_texts"].append({**key, "source": source, "diff": diff.replace("NUMBER", str(number))})
        tables["run_programs"].append(
            {**key, "run_id": f"{task}-{run}", "generation": number // RUNS, "island": number % ISLANDS}
            | {"parent_sha256": newest[run], "metadata": {}, "created_at": at}
        )
        evaluation_id = new_id()
        _judge(tables, evaluation_id, task, sha256, f"{task}-{run}", at, score, random)
        if correct:
            newest[run] = sha256
            half = samples // 2
            for slot, middle, count in (("candidate", 50 / score, samples - half), ("xla", 50.0, half)):
                taken = (middle * random.normal(1, 0.01, count)).tolist()
                tables["timing_samples"].append(
                    {"evaluation_id": evaluation_id, "size": "medium", "slot": slot, "count": count}
                    | {"samples_us": pack_samples(taken)}
                )
    return tables


def _judge(
    tables: dict[str, list[dict[str, Any]]],
    evaluation_id: str,
    task: str,
    sha256: str,
    run: str,
    at: datetime,
    score: float,
    random: np.random.Generator,
) -> None:
    from pallas_evo.reasons import GATES
    from pallas_evo.reasons import REASONS as KNOWN

    reason = None if score else REASONS[int(random.integers(len(REASONS)))]
    gate = KNOWN[reason][0] if reason else None
    passed = GATES if gate is None else GATES[: GATES.index(gate)]
    gates = [{"name": name, "passed": True, "reason": None, "message": "", "seconds": 0.01} for name in passed]
    if gate:
        gates.append({"name": gate, "passed": False, "reason": reason, "message": "made up", "seconds": 0.01})
    shape = [[4096, 4096]]
    size: dict[str, Any] = {"shape": shape, "correct": bool(score), "normwise_error": 1e-7, "bound": 2e-6}
    timed = {"median_us": 50 / score, "xla_us": 50.0, "floor_us": 20.0, "roofline_percent": 40 * score} if score else {}
    none = dict.fromkeys(("median_us", "xla_us", "floor_us", "roofline_percent"))
    made = {"sm": "sm_80", "registers": int(random.integers(16, 255)), "spill_bytes": 0, "shared_bytes": 16384}
    made |= {"occupancy": 0.5, "ptx_bytes": 9000, "seconds": 0.3}
    verdict = {"passed": True, "value": 0.5, "threshold": 0.02, "message": "made up"}
    tables["evaluations"].append(
        {
            "id": evaluation_id, "task_id": task, "candidate_sha256": sha256, "run_id": run, "created_at": at,
            "task_version": 1, "ran_on": DEVICE if score else None, "device": DEVICE if score else "",
            "timer": "cupti" if score else "untimed", "timed_sizes": "medium" if score else "",
            "correct": bool(score), "combined_score": score, "status": "accepted" if score else "rejected",
            "stage": gate, "reason": reason, "message": "made up" if reason else "", "target": "cuda",
            "jail": "landlock+seccomp", "duration_s": 0.5, "environment_sha256": "0" * 64, "config_sha256": None,
        }
    )  # fmt: skip
    tables["evaluation_details"].append(
        {
            "evaluation_id": evaluation_id, "gates": gates, "filters": dict.fromkeys(FILTERS, verdict) if score else {},
            "sizes": {"small": size | none, "medium": size | none | timed} if score else {},
            "compiled": {"sm_80": made} if score else {}, "compiled_for": ["sm_80"] if score else [],
            "seeds": {"small": 1}, "text_feedback": "made up", "output_text": "",
        }
    )  # fmt: skip


def measure(path: Path) -> dict[str, Any]:
    """Seconds and peak memory of the three commands, each a process of its own."""
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        out = Path(made)
        commands = {
            "inspect": ["inspect", str(path)],
            "inspect --task": ["inspect", str(path), "--task", "L1/relu"],
            "inspect --json": ["inspect", str(path), "--json"],
            "inspect --html": ["inspect", str(path), "--html", str(out / "report.html")],
            "export": ["export", str(path), "--out", str(out / "data")],
        }
        return {name: dict(_timed(words)) for name, words in commands.items()}


def _timed(words: list[str]) -> Iterator[tuple[str, float]]:
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "pallas_evo", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"pallas_evo {' '.join(words)}: it failed")
    yield "seconds", round(time.perf_counter() - started, 2)
    yield "peak_mb", round(used.ru_maxrss / 1024)


def main() -> None:
    """Make, or measure."""
    parser = argparse.ArgumentParser(description="Make a large archive of made-up results, or measure on one.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=17, help="for each correct program (six in ten are)")
    parser.add_argument("--tasks", type=int, default=45, help="spread them over so many; 1 is the hardest to rank")
    parser.add_argument("--measure", action="store_true", help="time the commands on an archive that is there")
    chosen = parser.parse_args()
    if chosen.measure:
        sys.stdout.write(json.dumps(measure(chosen.path), indent=1) + "\n")
        return
    if chosen.path.exists():
        parser.error(f"{chosen.path}: expected a new file. Remove it, or give another.")
    if shutil.disk_usage(chosen.path.absolute().parent).free < 2 << 30:
        parser.error("expected 2 GB of free disk")
    make(chosen.path, chosen.programs, chosen.samples, chosen.tasks)


if __name__ == "__main__":
    main()
