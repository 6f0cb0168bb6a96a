"""The attack corpus on this machine's GPU: is every attack refused, every honest variant accepted, the GPU still there?

    python benchmarks/gpu_corpus.py --out runs/h200-2026-12-01/attacks.json

Walks tests/attacks/corpus, tests/attacks/honest and tests/gpu/corpus with `--target cuda`. The last are taken twice: as
a user would have them judged, and with the executor's look at the timed size switched off, so that it is the GPU that
meets them. After each of those an honest seed is judged in the same evaluator and must be accepted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import threading
import time
from pathlib import Path

from pallas_evo import paths, tasks
from pallas_evo.config import Config, load_config
from pallas_evo.errors import PallasEvoError
from pallas_evo.evaluation import Evaluator, environment
from pallas_evo.running import driver_version

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = (
    "trace.deadline_s=6",
    "timer.repeats=6",
    "timer.baseline_inputs=1",
    "judging.medium_seeds=1",
    "compile.architectures=[sm_90]",
)
BLIND = "run.executor_timed_size_s=0.001"
HONEST_TASK = "L2/pwm_scan"


def header(source: str, name: str) -> str:
    """A line of a corpus file's header, or nothing."""
    found = re.search(rf"^# {name}: (.*)$", source, re.MULTILINE)
    return found.group(1).strip() if found else ""


def judge(path: Path, kind: str, config: Config, *, then_honest: bool) -> dict[str, object]:
    """One file's row."""
    source = path.read_text()
    wanted = [reason.strip() for reason in header(source, "reason").split(",") if reason.strip()]
    row: dict[str, object] = {"file": path.name, "kind": kind, "expected": wanted or ["accepted"]}
    start = time.perf_counter()
    try:
        with Evaluator(config, target="cuda") as evaluator:
            verdict = evaluator.evaluate(source, tasks.get_task(header(source, "task")), more=then_honest)
            row |= {
                "correct": verdict.correct,
                "reason": verdict.reason,
                "message": verdict.message.replace(f"{ROOT}/", "")[:300],
            }
            row["score"] = verdict.combined_score
            if then_honest:
                after = evaluator.evaluate(paths.seed_file(HONEST_TASK).read_text(), tasks.get_task(HONEST_TASK))
                row["next_accepted"] = after.correct
    except PallasEvoError as error:
        row["our_failure"] = f"{type(error).__name__}: {error}"[:600]
    honest = not wanted
    row["as_expected"] = row.get("correct") is True if honest else row.get("reason") in wanted
    row["safe"] = (row.get("correct") is True) == honest and row.get("next_accepted", True) is True
    row["seconds"] = round(time.perf_counter() - start, 2)
    return row


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--resume", type=Path, help="a record of before: what came out as expected is not run again")
    parser.add_argument("--only", default="", help="part of a file's name")
    arguments = parser.parse_args()
    config, blind = load_config(overrides=SETTINGS), load_config(overrides=[*SETTINGS, BLIND])
    work: list[tuple[Path, str, Config, bool]] = []
    for path in sorted((ROOT / "tests/gpu/corpus").glob("*.py")):
        work += [(path, "gpu", config, True), (path, "gpu, executor blind at the timed size", blind, True)]
    work += [(path, "honest", config, False) for path in sorted((ROOT / "tests/attacks/honest").glob("*.py"))]
    work += [(path, "attack", config, False) for path in sorted((ROOT / "tests/attacks/corpus").glob("*.*"))]
    work = [item for item in work if arguments.only in item[0].name]
    rows: list[dict[str, object]] = []
    if arguments.resume:
        rows = [row for row in json.loads(arguments.resume.read_text())["rows"] if row["as_expected"] and row["safe"]]
        done = {(row["kind"], row["file"]) for row in rows}
        work = [item for item in work if (item[1], item[0].name) not in done]
    of = len(rows) + len(work)
    lock = threading.Lock()
    start = time.perf_counter()

    def one(item: tuple[Path, str, Config, bool]) -> None:
        row = judge(item[0], item[1], item[2], then_honest=item[3])
        with lock:
            rows.append(row)
            if not (row["safe"] and row["as_expected"]):
                print(json.dumps(row)[:420], flush=True)
            attacks = [r for r in rows if r["kind"] != "honest"]
            record = {
                "what": "attack corpus on a GPU",
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "attacks": len(attacks),
                "attacks_accepted": sum(r.get("correct") is True for r in attacks),
                "honest": len(rows) - len(attacks),
                "honest_rejected": sum(r.get("correct") is not True for r in rows if r["kind"] == "honest"),
                "our_failures": sum("our_failure" in r for r in rows),
                "as_expected": sum(bool(r["as_expected"]) for r in rows),
                "of": of,
                "seconds": round(time.perf_counter() - start, 1),
                "driver": driver_version(),
                "environment": dict(environment()),
                "rows": sorted(rows, key=lambda r: (str(r["kind"]), str(r["file"]))),
            }
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, work))
    summary = json.loads(arguments.out.read_text())
    del summary["rows"]
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
