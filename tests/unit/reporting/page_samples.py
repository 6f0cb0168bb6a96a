"""Readers made of plain values, for the page, the plots and the browser: nothing in them was measured."""

from __future__ import annotations

import difflib
import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pallas_evo.cli.facts import facts
from pallas_evo.paths import original_file, seed_file
from pallas_evo.reporting.views import Family, ProgramDetail, ProgramRow, RunView, Step, TaskDetail, TaskView
from pallas_evo.tasks import dims_of, get_task, load_tasks, workload

H200 = "NVIDIA H200"
FACTS = facts()
THRESHOLDS = {
    "output_range": 0.02,
    "output_std": 0.02,
    "axes_variation": 0.02,
    "input_impact": 0.05,
    "source_analysis": 0.0,
}


@dataclass
class Made:
    """A reader of views that are given."""

    name: str
    views: Sequence[TaskView]
    details: dict[int, TaskDetail] = field(default_factory=dict)
    families: dict[int, Family] = field(default_factory=dict)
    run_views: Sequence[RunView] = ()

    def runs(self) -> tuple[RunView, ...]:
        return tuple(self.run_views)

    def tasks(self, *, best: int, only: str | None = None) -> tuple[TaskView, ...]:
        return tuple(view for view in self.views if only in (None, view.task))

    def detail(self, view: TaskView) -> TaskDetail:
        return self.details.get(id(view), TaskDetail(view=view, generations=(), islands=()))

    def family(self, view: TaskView, *, depth: int) -> Family:
        return self.families.get(id(view), Family(nodes={}, code={}, diffs={}, skipped={}))

    def find(self, prefix: str, task: str | None, *, limit: int = 8) -> tuple[tuple[str, str], ...]:
        raise NotImplementedError

    def program(self, task: str, id: str) -> ProgramDetail:
        raise NotImplementedError


def view(task: str, *scores: float, **other: Any) -> TaskView:
    """A view whose best programs have these scores."""
    fields: dict[str, Any] = {
        "source": "made.sqlite",
        "version": 1,
        "device": H200,
        "timer": "cupti",
        "sizes": ("medium",),
        "programs": len(scores),
        "evaluations": len(scores),
        "accepted": len(scores),
        "rejected": {},
        "seed": None,
        "original": None,
    } | other
    same = {"device": fields["device"], "timer": fields["timer"], "correct": True}
    rows = [ProgramRow(task=task, id=f"{number:064x}", score=score, **same) for number, score in enumerate(scores)]
    return TaskView(task=task, best=tuple(rows), **fields)


def run_view(view: TaskView, id: str, **other: Any) -> RunView:
    """A run of the view's task, under its identity."""
    fields: dict[str, Any] = {
        "kind": "evolve",
        "name": id,
        "status": "finished",
        "message": "",
        "date": datetime(2026, 1, 1, tzinfo=UTC),
        "seed": None,
        "gain": None,
        "best": view.best[0].score if view.best else None,
    } | other
    same = {name: getattr(view, name) for name in ("source", "task", "version", "device", "timer", "sizes")}
    return RunView(id=id, programs=view.programs, evaluations=view.evaluations, correct=view.accepted, **same, **fields)


def evolved(task: str, *, generations: int = 30, seed: int = 0, device: str = H200, timer: str = "cupti") -> Made:
    """A run of one task as it might have gone: a seed, mutants, refusals, lineages."""
    chance = random.Random(f"{task} {seed}")
    definition = get_task(task)
    shape = [list(array.shape) for array in workload(definition, dims_of(definition, "medium"), "medium").inputs]
    timed = timer != "untimed"
    xla_us, original, source = chance.uniform(3, 60), original_file(task).read_text(), seed_file(task).read_text()
    work, peaks = FACTS.work(task, shape), FACTS.peaks(device)
    floor_us = (
        max(work.bytes_read / peaks.bandwidth_gb_s / 1e3, work.flops / peaks.tf32_tflop_s / 1e6) if peaks else None
    )
    if floor_us is not None:
        xla_us = max(xla_us, floor_us * 1.6)
    best_possible = xla_us / floor_us / 1.05 if floor_us else 1.5
    codes = {_sha(original): original, _sha(source): source}
    diffs: dict[str, str | None] = {_sha(original): None, _sha(source): _diff(original, source)}

    def row(id: str, score: float, **other: Any) -> ProgramRow:
        measured: dict[str, Any] = {}
        if timed:
            time_us = xla_us / score
            percent = 100 * floor_us / time_us if floor_us is not None else None
            measured = {
                "size": "medium",
                "shape": shape,
                "time_us": time_us,
                "xla_us": xla_us,
                "floor_us": floor_us,
                "roofline_percent": percent,
            }
        filters = {
            name: {
                "passed": True,
                "threshold": most,
                "value": most and most * 10 ** chance.uniform(-6, -0.3),
                "message": "",
            }
            for name, most in THRESHOLDS.items()
        }
        return ProgramRow(
            task=task,
            id=id,
            correct=True,
            score=score if timed else 1.0,
            device=device,
            timer=timer,
            filters=filters,
            registers=chance.randrange(24, 200, 2),
            spill_bytes=0,
            shared_bytes=chance.randrange(0, 65536, 1024),
            run="run-1",
            **measured,
            **other,
        )

    first = row(
        _sha(source),
        min(chance.lognormvariate(-0.4, 0.5), best_possible * 0.7),
        origin="seed",
        name="seed",
        parent=_sha(original),
        generation=0,
    )
    programs, steps, refused = [first], [Step(run="run-1", step=0, evaluations=1, correct=1, best=first.score)], {}
    for generation in range(1, generations + 1):
        parent = max(chance.sample(programs, min(3, len(programs))), key=lambda one: one.score or 0)
        if chance.random() < 0.3:
            reason = chance.choice(
                ["numerics", "trace_error", "lowering_error", "out_of_bounds", "timeout", "not_pallas"]
            )
            refused[reason] = refused.get(reason, 0) + 1
            steps.append(Step(run="run-1", step=generation, evaluations=1, correct=0, best=None))
            continue
        text = codes[parent.id].replace("# EVOLVE-BLOCK-START", f"# EVOLVE-BLOCK-START\n# step {generation}", 1)
        score = min((parent.score or 1.0) * chance.lognormvariate(0.02, 0.12), best_possible)
        made = row(
            _sha(text),
            score,
            origin="mutation",
            name=f"block sizes, step {generation}",
            parent=parent.id,
            generation=generation,
            island=generation % 2,
        )
        codes[made.id], diffs[made.id] = text, _diff(codes[parent.id], text)
        programs.append(made)
        steps.append(Step(run="run-1", step=generation, evaluations=1, correct=1, best=made.score))
    best = sorted(programs, key=lambda one: -(one.score or 0))[:5]
    nodes = {
        _sha(original): ProgramRow(
            task=task,
            id=_sha(original),
            origin="tpu_original",
            correct=False,
            reason="not_pallas",
            message="It is written for a TPU.",
        )
    }
    by_id = {one.id: one for one in programs}
    for one in best:
        at: ProgramRow | None = one
        while at is not None:
            nodes[at.id] = at
            at = by_id.get(at.parent or "")
    judged = generations + 1
    found = TaskView(
        source=f"runs/{task.replace('/', '-')}/archive.sqlite",
        task=task,
        version=1,
        device=device,
        timer=timer,
        sizes=("medium",) if timed else (),
        programs=judged + 1,
        evaluations=judged,
        accepted=len(programs),
        rejected=refused,
        seed=first,
        original=_sha(original),
        best=tuple(best),
    )
    islands = tuple(
        Step(run="run-1", step=n, evaluations=judged // 2, correct=len(programs) // 2, best=best[-1 - n].score)
        for n in range(min(2, len(best)))
    )
    seed_score = first.score or math.nan
    made_run = run_view(found, f"{task} {seed}", seed=seed_score, gain=(best[0].score or 0) / seed_score)
    return Made(
        name=found.source,
        views=[found],
        details={id(found): TaskDetail(view=found, generations=tuple(steps), islands=islands)},
        families={
            id(found): Family(
                nodes=nodes,
                code={key: codes[key] for key in nodes},
                diffs={key: diffs[key] for key in nodes},
                skipped={},
            )
        },
        run_views=[made_run],
    )


def everything() -> list[Made]:
    """All 45 tasks on one GPU, most of them on a CPU as well."""
    tasks = [task.id for task in load_tasks()]
    timed = [evolved(task, generations=12 + 3 * (number % 9)) for number, task in enumerate(tasks[:43])]
    return timed + [evolved(task, generations=3, device="cpu", timer="untimed", seed=1) for task in tasks]


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _diff(parent: str, child: str) -> str:
    return (
        "\n".join(difflib.unified_diff(parent.splitlines(), child.splitlines(), "parent", "child", lineterm="")) + "\n"
    )


def with_text(made: Made, text: str) -> Made:
    """The reader with a stranger's text in every field that a candidate, a run's maker or a result file fills."""
    old = made.views[0]
    renamed: dict[str, str] = {}

    def id_of(id: str) -> str:
        return renamed.setdefault(id, f"{text}{len(renamed)}")

    def row(one: ProgramRow) -> ProgramRow:
        return replace(
            one,
            task=text,
            id=id_of(one.id),
            parent=one.parent and id_of(one.parent),
            name=text,
            origin=text,
            run=text,
            reason=text,
            message=text,
            device=text,
            timer=text,
            size=text,
            filters={text: {"passed": False, "value": text, "threshold": text, "message": text}}
            | {name: verdict | {"message": text} for name, verdict in one.filters.items()},
        )

    new = replace(
        old,
        source=text,
        task=text,
        device=text,
        timer=text,
        sizes=(text,),
        rejected={text: 3},
        seed=old.seed and row(old.seed),
        original=old.original and id_of(old.original),
        best=tuple(map(row, old.best)),
    )
    detail, family = made.details[id(old)], made.families[id(old)]
    refused = [replace(row(one), correct=False) if n % 2 else row(one) for n, one in enumerate(family.nodes.values())]
    return Made(
        name=text,
        views=[new],
        details={
            id(new): TaskDetail(
                view=new,
                generations=tuple(replace(step, run=text) for step in detail.generations),
                islands=tuple(replace(step, run=text) for step in detail.islands),
            )
        },
        families={
            id(new): Family(
                nodes={one.id: one for one in refused},
                code={id_of(id): f"# {text}\n'''{text}'''\n{code}" for id, code in family.code.items()},
                diffs={id_of(id): f"+{text}\n-{text}\n@@{text}" for id in family.diffs},
                skipped={id_of(id): 3 for id in family.nodes},
            )
        },
        run_views=[
            replace(
                run,
                source=text,
                id=text,
                name=text,
                kind=text,
                status=text,
                message=text,
                task=text,
                device=text,
                timer=text,
            )
            for run in made.run_views
        ],
    )
