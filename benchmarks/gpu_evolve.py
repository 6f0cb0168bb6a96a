"""Evolution with the offline mutator, and random search with the same budget, side by side on one GPU.

    python benchmarks/gpu_evolve.py --out runs/h200-evolve --seconds 420

Every run is a `pallas_evo evolve` process of its own; the GPU's lease keeps them from timing at the same time. Guided
runs start first, a lane that is free takes a random search. At the end, or when --seconds are over, the best program
and the seed of each run are judged again, with new inputs: the best of many measurements is a little too good. Writes
evolve.json (the summary), evolve.sqlite (one archive of all runs) and state.tar.gz, which --resume takes to go on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pallas_evo.archive import Archive, open_archive
from pallas_evo.config import load_config
from pallas_evo.errors import PallasEvoError
from pallas_evo.evaluation import Evaluator, environment
from pallas_evo.paths import seed_file
from pallas_evo.tasks import get_task

ROOT = Path(__file__).resolve().parents[1]
TASKS = ("L2/pwm_scan", "L1/matmul", "L3/flash_attention", "L1/softmax", "L1/layernorm")
SEARCHES = ("guided", "random")
STOP_S = 30.0  # for a run that was told to stop, to put its programs into its archive
FAILURES = 2  # times that a run which failed is resumed


@dataclass
class Run:
    """One evolution: its folder and archive lie in the work folder under its name."""

    task: str
    search: str
    seconds: float = 0.0
    ended: str = "not started"
    said: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.task.replace('/', '_')}-{self.search}"


def main() -> int:
    """Run the command. Exit code 0: every run came to its end; 1: some did not, --resume goes on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the three files")
    parser.add_argument("--only", default="", help="task ids, comma-separated; default: five tasks")
    parser.add_argument("--searches", default=",".join(SEARCHES), help="guided, random or both")
    parser.add_argument("--generations", type=int, default=40)
    parser.add_argument("--lanes", type=int, default=5, help="evolve processes at a time")
    parser.add_argument("--jobs", type=int, default=3, help="candidates that each judges at a time")
    parser.add_argument("--seconds", type=float, default=420.0, help="after which the runs are stopped")
    parser.add_argument("--confirm", type=int, default=3, help="judgements of each best program and seed at the end")
    parser.add_argument("--confirm-seconds", type=float, default=70.0)
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="where the runs lie; a fresh folder where it is not given")
    parser.add_argument("--resume", type=Path, help="a state.tar.gz of before")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="configuration overrides")
    options = parser.parse_args()
    work = (options.work or Path(tempfile.mkdtemp(prefix="gpu_evolve-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.resume:
        with tarfile.open(options.resume) as file:
            file.extractall(work, filter="data")
    tasks = options.only.split(",") if options.only else list(TASKS)
    runs = [Run(task, search) for search in options.searches.split(",") for task in tasks]
    before = _read(work / "lanes.json")
    for run in runs:
        run.seconds = before.get(run.name, 0.0)

    start = time.monotonic()
    stopping = threading.Event()
    with ThreadPoolExecutor(options.lanes) as lanes:
        waiting = [lanes.submit(_evolve, run, work, options, stopping) for run in runs]
        shown = start
        while not all(job.done() for job in waiting):
            time.sleep(0.2)
            now = time.monotonic()
            if now - start > options.seconds:
                stopping.set()
            if now - shown > 30:
                shown = now
                _show(runs, work, now - start)
    for job in waiting:
        job.result()
    _show(runs, work, time.monotonic() - start)
    (work / "lanes.json").write_text(json.dumps({run.name: round(run.seconds, 1) for run in runs}))

    rows = [_row(run, work) for run in runs]
    _confirm(rows, work, options)
    _merge(rows, options.out / "evolve.sqlite", work)
    with tarfile.open(options.out / "state.tar.gz", "w:gz", compresslevel=6) as file:
        for path in sorted(work.iterdir()):
            file.add(path, path.name)
    summary = {
        "what": "evolution by the offline mutator, beside random search with the same budget",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "environment": dict(environment()),
        "device": next((row["device"] for row in rows if row.get("device")), None),
        "options": {k: v for k, v in vars(options).items() if k in ("generations", "lanes", "jobs", "seed", "set")},
        "seconds": round(time.monotonic() - start, 1),
        "tasks": [_pair(task, rows) for task in tasks],
        "runs": [{k: v for k, v in row.items() if k != "best_source"} for row in rows],
    }
    (options.out / "evolve.json").write_text(json.dumps(summary, indent=1) + "\n")
    for line in _table(summary["tasks"]):
        print(line, flush=True)
    return 0 if all(run.ended == "done" for run in runs) else 1


# ---- the runs --------------------------------------------------------------------------------------------------


def _evolve(run: Run, work: Path, options: argparse.Namespace, stopping: threading.Event) -> None:
    """One run to its end, to the end of time, or to its last failure."""
    # fmt: off
    command = [
        sys.executable, "-m", "pallas_evo.cli.app", "evolve", run.task, "--generations", str(options.generations),
        "--run-dir", str(work / run.name), "--archive", str(work / f"{run.name}.sqlite"), "--target", options.target,
        "--jobs", str(options.jobs), "--seed", str(options.seed), "--json",
        *(["--random-search"] if run.search == "random" else []),
        *[word for value in options.set for word in ("--set", value)],
    ]
    # fmt: on
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]),
    }
    for _ in range(1 + FAILURES):
        if stopping.is_set():
            return
        start, run.ended = time.monotonic(), "running"
        with (work / f"{run.name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            while process.poll() is None:
                if stopping.wait(0.2):
                    _stop(process)
        run.seconds += time.monotonic() - start
        run.said = _tail(work / f"{run.name}.log", 3)
        run.ended = "done" if process.returncode == 0 else "stopped" if stopping.is_set() else "failed"
        if run.ended != "failed":
            return
        print(f"{run.name} failed: {' | '.join(run.said)[:600]}", flush=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _show(runs: Sequence[Run], work: Path, seconds: float) -> None:
    print(f"-- {seconds:.0f} s", flush=True)
    for run in runs:
        last = [line for line in _tail(work / f"{run.name}.log", 4) if line.startswith("generation")]
        print(f"{run.name:28} {run.ended:12} {last[-1][:120] if last else ''}", flush=True)


def _tail(path: Path, lines: int) -> list[str]:
    if not path.exists():
        return []
    return path.read_text(errors="replace").splitlines()[-lines:]


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


# ---- what came of them -----------------------------------------------------------------------------------------


def _row(run: Run, work: Path) -> dict[str, Any]:
    """One run's figures, from its archive."""
    row: dict[str, Any] = {"task": run.task, "search": run.search, "ended": run.ended, "seconds": round(run.seconds, 1)}
    path = work / f"{run.name}.sqlite"
    if not path.exists():
        return {**row, "evaluations": 0, "log": run.said}
    with open_archive(path, read_only=True) as store:
        verdicts = [record for record in store.evaluations() if record.run_id]
        programs = {record.sha256: record for record in _programs(store, verdicts)}
        found = sorted(
            ((programs[one.candidate_sha256].generation or 0, one) for one in verdicts), key=lambda pair: pair[0]
        )
        correct = [(generation, one) for generation, one in found if one.correct]
        row |= {
            "evaluations": len(found),
            "refused": dict(Counter(one.reason or "" for _, one in found if not one.correct).most_common()),
            "scores": [[generation, round(one.combined_score, 4)] for generation, one in found],
            "judged_s": round(statistics.median(one.duration_s for _, one in found), 2) if found else None,
        }
        if not correct:
            return row
        seed = correct[0][1]
        generation, best = max(correct, key=lambda pair: pair[1].combined_score)
        return {
            **row,
            "device": best.identity.device,
            "timer": best.identity.timer,
            "seed_score": seed.combined_score,
            "best_score": best.combined_score,
            "gain": best.combined_score / seed.combined_score,
            "best_generation": generation,
            "best_sha256": best.candidate_sha256,
            "best_source": programs[best.candidate_sha256].source,
        }


def _programs(store: Archive, verdicts: Sequence[Any]) -> list[Any]:
    return [program for run_id in {one.run_id for one in verdicts} for program in store.programs(run_id=run_id)]


def _confirm(rows: Sequence[dict[str, Any]], work: Path, options: argparse.Namespace) -> None:
    """Judge each best program and each seed again, in turn; what time does not allow stays unconfirmed."""
    config = load_config(overrides=options.set)
    end = time.monotonic() + options.confirm_seconds
    wanted = {(row["task"], "seed"): seed_file(row["task"]).read_text(encoding="utf-8") for row in rows}
    for row in rows:
        if row.get("best_source"):
            wanted[row["task"], row["search"]] = row["best_source"]
    order = sorted(wanted, key=lambda key: ("guided", "seed", "random").index(key[1]))
    scores: dict[tuple[str, str], list[float]] = {key: [] for key in wanted}

    def judge(key: tuple[str, str]) -> None:
        if time.monotonic() > end:
            return
        try:
            with Evaluator(config, target=options.target) as evaluator:
                verdict = evaluator.evaluate(wanted[key], get_task(key[0]))
            scores[key].append(verdict.combined_score if verdict.correct else 0.0)
        except PallasEvoError as error:
            print(f"{key}: {error}"[:300], flush=True)

    with ThreadPoolExecutor(4 if options.target == "cuda" else 1) as pool:
        list(pool.map(judge, [key for _ in range(options.confirm) for key in order]))
    for row in rows:
        again, seed = scores.get((row["task"], row["search"]), []), scores[row["task"], "seed"]
        if again and seed and statistics.median(seed) > 0:
            row["confirmed"] = {
                "best_scores": [round(score, 4) for score in again],
                "seed_scores": [round(score, 4) for score in seed],
                "gain": statistics.median(again) / statistics.median(seed),
            }


def _merge(rows: Sequence[dict[str, Any]], path: Path, work: Path) -> None:
    for old in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        old.unlink(missing_ok=True)
    with open_archive(path) as target:
        for row in rows:
            source = work / f"{Run(row['task'], row['search']).name}.sqlite"
            if source.exists():
                with open_archive(source, read_only=True) as one:
                    one.copy_into(target)
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=DELETE")  # one file, without its log
    connection.execute("VACUUM")
    connection.close()


def _pair(task: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A task's guided run and its random search in one line."""
    found = {row["search"]: row for row in rows if row["task"] == task}
    line: dict[str, Any] = {"task": task}
    for search, row in found.items():
        line |= {
            f"{search}_evaluations": row["evaluations"],
            f"{search}_refused": row.get("refused", {}),
            f"{search}_seed": row.get("seed_score"),
            f"{search}_best": row.get("best_score"),
            f"{search}_gain": row.get("gain"),
            f"{search}_confirmed_gain": row.get("confirmed", {}).get("gain"),
            f"{search}_seconds": row["seconds"],
        }
    return line


def _table(lines: Sequence[dict[str, Any]]) -> list[str]:
    def shown(value: Any) -> str:
        return f"{value:8.3f}" if isinstance(value, float) else f"{'-' if value is None else value!s:>8}"

    head = f"{'task':22}{'search':8}" + "".join(
        f"{name:>10}" for name in ("programs", "refused", "seed", "best", "gain")
    )
    said = [head + f"{'confirmed':>10}{'seconds':>10}"]
    for line in lines:
        for search in SEARCHES:
            if f"{search}_evaluations" not in line:
                continue
            values = [line[f"{search}_evaluations"], sum(line[f"{search}_refused"].values())]
            values += [line[f"{search}_{name}"] for name in ("seed", "best", "gain", "confirmed_gain", "seconds")]
            said.append(f"{line['task']:22}{search:8}" + "".join(f"  {shown(value)}" for value in values))
    return said


def markdown(summary: dict[str, Any]) -> str:
    """The table of a recorded summary (`evolve.json`), as docs/evolution.md has it.

    Ratios to XLA's time: of the seed and of the best program, as first measured; their quotient, of the judgements
    taken again at the end.
    """
    said = [
        "| task | search | programs | refused | seed | best | gain, confirmed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task in summary["tasks"]:
        for search in SEARCHES:
            cells = [
                task["task"],
                search,
                str(task[f"{search}_evaluations"]),
                str(sum(task[f"{search}_refused"].values())),
                f"{task[f'{search}_seed']:.2f}",
                f"{task[f'{search}_best']:.2f}",
                f"{task[f'{search}_confirmed_gain']:.2f}x",
            ]
            said.append(f"| {' | '.join(cells)} |")
    return "\n".join(said)


if __name__ == "__main__":
    sys.exit(main())
