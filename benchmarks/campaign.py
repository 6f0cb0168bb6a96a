"""The campaign: every task evolved from its seed on one GPU, and each champion judged by every gate at every size.

    python benchmarks/campaign.py --out runs/h200-2026-12-02 --seconds 540
    python benchmarks/campaign.py --out "$OUT" --resume runs/h200-2026-12-02 --seconds 540 --phases finals

It goes in pieces: each does what is left and stops after --seconds, or at SIGTERM. campaign.json (what was done, and
every final verdict: docs/results.md is made from it), campaign.sqlite (the archive) and config.yaml are all that the
next piece needs; --resume takes them from another folder. docs/campaign.md says what a piece does, in which order.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from campaign_machine import Machine
from campaign_record import (
    ARCHIVE,
    State,
    close_file,
    elite_of,
    facts,
    files_of,
    large_bytes,
    origin_of,
    refused_because,
    small_row,
    take_over,
)

from pallas_evo import tasks
from pallas_evo.archive import Archive, EvaluationRecord, ScoreIdentity, open_archive
from pallas_evo.archive.encoding import build, restore, sha256_of_text
from pallas_evo.config import load_config, to_yaml
from pallas_evo.errors import DeviceUnavailable, PallasEvoError, UsageError
from pallas_evo.paths import seed_file
from pallas_evo.running import gpu_present
from pallas_evo.types import Evaluation

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = ROOT / "benchmarks" / "variants"
PHASES = ("entries", "evolve", "finals")
TIMED = ("medium", "large")  # by a final verdict
FACTORS = ((0.7, 3), (0.95, 2))  # a task whose best is below: so many times the budget
BETTER = 1.02  # a new best has to be so much better than the champion to be judged in its place
DEPTH = 6  # programs of a task that may follow each other as champion
TRIES = 2  # of a final verdict that failed by a fault of ours; the second without the large size
FINAL_S = 240.0  # of one final verdict
FIRST_S, GB_S = 10.0, 20.0  # what one takes, and more for each GB at large; for the plan only
AGAIN = 0.33
HEAVY_BYTES = 1 << 28  # at large: from here on fewer are judged at once
ROUND_S = 45.0  # less is not worth starting another run


class Judging(Protocol):
    """What the campaign has done for it; a test puts in its own."""

    def judge(self, source: str, task: str) -> dict[str, Any]: ...
    def evolve(self, task: str, programs: int, seed: int, stopping: threading.Event) -> None: ...
    def final(
        self, source: str, task: str, sizes: Sequence[str], heavy: bool, limit_s: float, stopping: threading.Event
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a campaign is made of. `budget` is the programs of a task that needs no more than the usual."""

    only: tuple[str, ...]
    seconds: float = 540.0
    budget: int = 20
    round: int = 30
    lanes: int = 5
    judges: int = 8
    phases: tuple[str, ...] = PHASES
    variants: Path = VARIANTS


class Campaign:
    """One piece of a campaign: what is left, in order, until it is done, time is up, or `stopping` is set."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        archive: Archive,
        judging: Judging,
        stopping: threading.Event,
        *,
        began: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.plan, self.state, self.archive, self.judging = plan, state, archive, judging
        self.stopping, self.say = stopping, say
        self._start = time.monotonic() if began is None else began
        self._lock = threading.Lock()

    # ---- the whole ---------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Whether every task has what it needs: entries judged, its budget spent, a final verdict on its champion."""
        self.archive.add_tasks([tasks.get_task(task) for task in self.plan.only])
        for task in self.plan.only:
            self.state.task(task).update(facts(task))
        done: dict[str, int] = {}
        with self._timer():
            for phase in self.order():
                if not self.stopping.is_set():
                    done[phase] = {"entries": self.entries, "evolve": self.evolve, "finals": self.finals}[phase]()
        self.state.data["pieces"].append({"seconds": round(self.elapsed(), 1), "done": done, **_today()})
        self.state.save()
        return not self.entries_left() and not self.pending() and not any(map(self.wanted, self.plan.only))

    def order(self) -> list[str]:
        """The phases of this piece: champions come before more evolution where time for both is short."""
        phases = [phase for phase in PHASES if phase in self.plan.phases]
        if "finals" in phases and self.pending() and self.left() < self.finals_s() + 4 * ROUND_S:
            phases.sort(key="finals".__ne__)
        return phases

    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def left(self) -> float:
        return self.plan.seconds - self.elapsed()

    @contextmanager
    def _timer(self) -> Iterator[None]:
        """Sets `stopping` when time is up."""
        timer = threading.Timer(max(0.0, self.left()), self.stopping.set)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    # ---- seeds and variants ------------------------------------------------------------------------------------

    def entries_left(self) -> list[tuple[str, str, str, str]]:
        """(task, name, origin, source) of every seed, then every variant, that has no verdict yet."""
        found = []
        for task in self.plan.only:
            seen = {record.candidate_sha256 for record in self.archive.evaluations(task=task)}
            for name, origin, file in files_of(task, self.plan.variants):
                source = file.read_text(encoding="utf-8")
                if sha256_of_text(source) not in seen:
                    found.append((task, name, origin, source))
        return sorted(found, key=lambda entry: entry[2] != "seed")

    def entries(self) -> int:
        """Judge them all; how many were."""
        waiting = self.entries_left()

        def judge(entry: tuple[str, str, str, str]) -> bool:
            task, name, origin, source = entry
            if self.stopping.is_set():
                return False
            verdict = self._tried(f"{task} {name}", lambda: self.judging.judge(source, task))
            if verdict is None:
                return False
            self._store(task, source, verdict, origin=origin, name=name, kind="entries")
            said = f"{verdict['combined_score']:.4f}" if verdict["correct"] else f"refused ({verdict['reason']})"
            self.say(f"{task} {name}: {said}")
            if origin == "seed":
                with self.state.lock:
                    self.state.task(task)["seed"] = small_row(verdict, "medium")
                    self.state.save()
            return True

        with ThreadPoolExecutor(self.plan.judges) as threads:
            return sum(threads.map(judge, waiting))

    # ---- evolution ---------------------------------------------------------------------------------------------

    def identity(self, task: str) -> ScoreIdentity | None:
        """Of the scores that this campaign ranks: the task's newest version, medium alone, the most evaluations."""
        version = tasks.get_task(task).version
        found = [
            one for one in self.archive.identities(task)
            if one.identity.timed and one.identity.sizes == ("medium",) and one.identity.task_version == version
        ]  # fmt: skip
        return max(found, key=lambda one: one.evaluations).identity if found else None

    def best(self, task: str) -> Sequence[EvaluationRecord]:
        """The task's best programs, best first."""
        identity = self.identity(task)
        return self.archive.best(task, identity, limit=DEPTH) if identity else ()

    def spent(self, task: str) -> int:
        """Programs that evolution has had judged."""
        runs = {run.id for run in self.archive.runs(task=task, kind="evolve")}
        return sum(record.run_id in runs for record in self.archive.evaluations(task=task))

    def wanted(self, task: str) -> int:
        """Programs that are still to come: more where there is more to gain."""
        best = self.best(task)
        if not best:
            return 0
        factor = next((factor for below, factor in FACTORS if best[0].combined_score < below), 1)
        return max(0, factor * self.plan.budget - self.spent(task))

    def evolve(self) -> int:
        """Runs on several lanes, the least served task next; how many runs there were."""
        busy: set[str] = set()
        dead: set[str] = set()
        until = self.plan.seconds - (self.finals_s() if "finals" in self.plan.phases else 0.0)
        stop = threading.Event()

        def next_task() -> tuple[str, int] | None:
            with self._lock:
                left = {task: self.wanted(task) for task in self.plan.only if task not in busy | dead}
                open_tasks = {task: count for task, count in left.items() if count > 0}
                if not open_tasks:
                    return None
                task = min(
                    open_tasks, key=lambda task: (self.spent(task) / (self.spent(task) + left[task]), -left[task])
                )
                busy.add(task)
                return task, min(self.plan.round, open_tasks[task])

        def lane(index: int) -> int:
            runs = 0
            while not self.stopping.is_set() and self.elapsed() < until - ROUND_S:
                chosen = next_task()
                if chosen is None:
                    break
                task, programs = chosen
                seed = len(self.archive.runs(task=task, kind="evolve"))
                try:
                    self.judging.evolve(task, programs, seed, stop)
                    runs += 1
                except PallasEvoError as error:
                    dead.add(task)
                    self.say(f"{task}: its run failed and is left to the next piece: {error}"[:500])
                finally:
                    busy.discard(task)
                    best = self.best(task)
                    said = f"{best[0].combined_score:.4f}" if best else "nothing correct"
                    self.say(f"{self.elapsed():5.0f} s  {task}: {self.spent(task)} programs, best {said}")
            return runs

        with ThreadPoolExecutor(self.plan.lanes) as threads:
            lanes = [threads.submit(lane, index) for index in range(self.plan.lanes)]
            while not all(one.done() for one in lanes):
                if self.stopping.is_set() or self.elapsed() > until:
                    stop.set()
                time.sleep(0.05)
        return sum(one.result() for one in lanes)

    # ---- final verdicts ----------------------------------------------------------------------------------------

    def champion(self, task: str) -> EvaluationRecord | None:
        """The program that needs a final verdict: the best that was not refused; None where that one has it."""
        finals = self.state.task(task)["finals"]
        accepted = [final["medium_score"] for final in finals.values() if final["accepted"]]
        for record in self.best(task):
            final = finals.get(record.candidate_sha256)
            if final is not None and final["accepted"]:
                return None
            if final is not None and (not final["failed"] or final["tries"] >= TRIES):
                continue
            if accepted and record.combined_score < BETTER * max(accepted):
                return None
            return record
        return None

    def pending(self) -> list[str]:
        """Tasks whose champion waits for a final verdict: those that have none at all first, then the quick ones."""
        waiting = [task for task in self.plan.only if self.champion(task) is not None]

        return sorted(waiting, key=lambda task: (self._accepted(task), large_bytes(task)))

    def finals_s(self) -> float:
        """What final verdicts will take, roughly: two heavy ones at once, half the judges in all.

        Of the tasks that have one, a third will need another.
        """
        each = {task: final_s(task) * (AGAIN if self._accepted(task) else 1.0) for task in self.plan.only}
        heavy = sum(seconds for task, seconds in each.items() if large_bytes(task) >= HEAVY_BYTES)
        return max(heavy / 2, sum(each.values()) / max(1, self.plan.judges // 2))

    def _accepted(self, task: str) -> bool:
        return any(final["accepted"] for final in self.state.task(task)["finals"].values())

    def finals(self) -> int:
        """Judge champions, and where one fails the next best; how many verdicts there were."""
        room = Room(self.plan.judges)
        queue = self.pending()

        def judge(task: str) -> int:
            verdicts = 0
            with room.taken(large_bytes(task) / HEAVY_BYTES):
                while not self.stopping.is_set() and self.left() > final_s(task):
                    record = self.champion(task)
                    if record is None:
                        break
                    self._final(task, record)
                    verdicts += 1
            return verdicts

        with ThreadPoolExecutor(self.plan.judges) as threads:
            return sum(threads.map(judge, queue))

    def _final(self, task: str, record: EvaluationRecord) -> None:
        sha256 = record.candidate_sha256
        program = self.archive.program(task, sha256)
        before = self.state.task(task)["finals"].get(sha256, {})
        tries = before.get("tries", 0)
        sizes = TIMED if tries == 0 else ("medium",)
        assert program.source is not None
        row: dict[str, Any] = {
            "accepted": False, "failed": None, "tries": tries + 1, "why": None, "medium_score": None,
            "score": record.combined_score, "name": program.name, "origin": origin_of(self.archive.lineage(program)),
            "generation": program.generation,
        }  # fmt: skip
        try:
            limit_s = min(FINAL_S, max(1.0, self.left()))
            heavy = large_bytes(task) >= HEAVY_BYTES
            verdict = self.judging.final(program.source, task, sizes, heavy, limit_s, self.stopping)
        except PallasEvoError as error:
            if self.stopping.is_set() or self.left() < 1:
                return  # it was cut off, and that says nothing
            row["failed"] = str(error)[:500]
        else:
            medium = verdict["sizes"].get("medium") or {}
            timed = medium.get("median_us") and medium.get("xla_us")
            why = refused_because(verdict) or (None if timed else "it was not timed at medium")
            row |= {
                "accepted": why is None,
                "why": why,
                "sizes": {size: small_row(verdict, size) for size in sizes if verdict["correct"]},
                "compiled": verdict["compiled"],
                "elite": elite_of(verdict),
                "seeds": verdict["seeds"],
            }
            if timed:
                row["medium_score"] = medium["xla_us"] / medium["median_us"]
            self._store(task, program.source, verdict, origin="candidate", name=program.name, kind="finals")
        with self.state.lock:
            self.state.task(task)["finals"][sha256] = row
            self.state.save()
        said = f"{row['medium_score']:.4f}" if row["accepted"] else row["why"] or f"failed: {row['failed']}"
        self.say(f"{self.elapsed():5.0f} s  final {task} {sha256[:10]}: {said}")

    # ---- storing -----------------------------------------------------------------------------------------------

    def _tried(self, what: str, judge: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """A verdict, or None where we failed: the next piece tries again."""
        try:
            return judge()
        except PallasEvoError as error:
            self.say(f"{what}: failed by a fault of ours: {error}"[:500])
            return None

    def _store(
        self, task: str, source: str, verdict: Mapping[str, Any], *, origin: str, name: str | None, kind: str
    ) -> None:
        evaluation: Evaluation = build(Evaluation, restore(verdict))
        seed = seed_file(task).read_text(encoding="utf-8")
        with self._lock:
            run = self.archive.add_run(kind, run_id=f"campaign-{kind}-{task.replace('/', '-')}", task=task)
            if origin == "hand":  # what the archive calls a candidate; the run's own metadata would not say it
                parent = self.archive.add_program(task, seed, origin="seed", name="seed").sha256
                by_hand = {"written_by": "hand"}
                self.archive.add_program(
                    task, source, origin="candidate", name=name, parent_sha256=parent, metadata=by_hand
                )
            kept = "candidate" if origin == "hand" else origin
            program = self.archive.add_program(task, source, origin=kept, name=name, run_id=run.id)
            timing = evaluation.environment.get("timing", {})
            self.archive.add_evaluation(
                program, evaluation, run_id=run.id,
                other_samples_us={s: {"xla": one["baseline_us"]} for s, one in timing.items() if "baseline_us" in one},
            )  # fmt: skip


def final_s(task: str) -> float:
    """Seconds that a final verdict takes, roughly."""
    return FIRST_S + GB_S * large_bytes(task) / 1e9


class Room:
    """So many judgements at once, where a heavy one takes the place of several."""

    def __init__(self, places: int) -> None:
        self.places = self._free = places
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, weight: float) -> Iterator[None]:
        """`weight` places, at least one and at most three of eight: two of the largest at once fit into the memory."""
        count = max(1, min(int(weight), 3 * self.places // 8))
        with self._changed:
            self._changed.wait_for(lambda: self._free >= count)
            self._free -= count
        try:
            yield
        finally:
            with self._changed:
                self._free += count
                self._changed.notify_all()


# ---- the command -----------------------------------------------------------------------------------------------


def chosen_tasks(only: str) -> tuple[str, ...]:
    """Task ids from a list with commas; all without one."""
    if not only:
        return tuple(task.id for task in tasks.load_tasks())
    return tuple(tasks.get_task(name.strip()).id for name in only.split(","))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit code 0: nothing is left; 1: the next piece goes on; 2: used wrongly; 3: we failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the campaign's folder")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="an earlier piece's folder, where --out is new")
    parser.add_argument("--seconds", type=float, default=540.0, help="after which it stops (default 540)")
    parser.add_argument("--phases", default=",".join(PHASES), help="entries, evolve, finals; all by default")
    parser.add_argument("--only", default="", metavar="IDS", help="task ids, comma-separated; all by default")
    parser.add_argument(
        "--budget", type=int, default=20, help="programs of a task; 2 times it below 0.95 of XLA, 3 below 0.7"
    )
    parser.add_argument("--round", type=int, default=30, help="programs of one run at most (default 30)")
    parser.add_argument("--lanes", type=int, default=5, help="evolve processes at a time (default 5)")
    parser.add_argument("--jobs", type=int, default=3, help="candidates that each has judged at a time (default 3)")
    parser.add_argument(
        "--judges", type=int, default=8, help="of the service, and final verdicts at a time (default 8)"
    )
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--variants", type=Path, default=VARIANTS)
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="configuration overrides")
    options = parser.parse_args(arguments)
    if options.out is None:
        parser.error("--out DIR is needed")
    try:
        return _piece(options)
    except PallasEvoError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _piece(options: argparse.Namespace) -> int:
    began = time.monotonic()
    phases = tuple(options.phases.split(","))
    if wrong := set(phases) - set(PHASES):
        raise UsageError(f"--phases {options.phases}: {', '.join(sorted(wrong))} is none of {', '.join(PHASES)}.")
    if options.target == "cuda" and not gpu_present():
        raise DeviceUnavailable("A campaign times kernels on an NVIDIA GPU, and none was found here.")
    take_over(options.out, options.resume)
    state = State.load(options.out / "campaign.json")
    overrides = ["texts.keep=none", *options.set]  # of evolution; final verdicts keep theirs
    config = to_yaml(load_config(overrides=overrides))
    if (options.out / "config.yaml").exists() and (options.out / "config.yaml").read_text() != config:
        raise UsageError(
            f"{options.out / 'config.yaml'}: expected the configuration of the first piece; --set differs."
        )
    (options.out / "config.yaml").write_text(config)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    signal.signal(signal.SIGINT, lambda number, frame: stopping.set())
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    archive = (options.out / ARCHIVE).absolute()
    plan = Plan(
        only=chosen_tasks(options.only), seconds=options.seconds, budget=options.budget, round=options.round,
        lanes=options.lanes, judges=options.judges, phases=phases, variants=options.variants,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="campaign-") as work:
        machine = Machine(Path(work), archive, options.target, options.judges, options.jobs, overrides)
        try:
            _note_machine(state, machine)
            with open_archive(archive) as store:
                campaign = Campaign(
                    plan, state, store, machine, stopping, began=began, say=lambda line: print(line, flush=True)
                )
                done = campaign.run()
        finally:
            machine.rest()
            kept = close_file(archive) if archive.exists() else archive
    said = "done" if done else "more is left"
    print(f"{said}; {campaign.elapsed():.0f} s; {kept.name} {kept.stat().st_size / 1e6:.1f} MB", flush=True)
    return 0 if done else 1


def _note_machine(state: State, machine: Machine) -> None:
    from pallas_evo.evaluation import environment
    from pallas_evo.running import driver_version

    here = {**environment(), "driver": driver_version() if machine.target == "cuda" else None}
    state.data.setdefault("environment", here)
    state.data["target"] = machine.target
    if state.data.get("bandwidth") is None:
        state.data["bandwidth"] = machine.bandwidth()
    state.save()


def _today() -> dict[str, str]:
    return {"ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


if __name__ == "__main__":
    sys.exit(main())
