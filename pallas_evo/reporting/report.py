"""What a page and the plots show: every source's tasks put together, and the shares that sum them up.

Scores of different identity (task, task version, device, timer, timed sizes) are never put side by side as a ranking:
a share is of one device, one timer and the same sizes, and each task enters it at its newest version alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeGuard

from pallas_evo.errors import UsageError
from pallas_evo.reporting.views import Family, ProgramRow, Reader, RunView, Step, TaskDetail, TaskView
from pallas_evo.types import Floor

FACTORS = (0.0, 1.0, 1.5, 2.0)
"""The p of fast_p: the share of the tasks that are correct and more than p times as fast as XLA."""

BEST = 5
"""How many programs of a task are shown under each identity."""

DEPTH = 6
"""How many programs of a lineage are shown at its young end; its first ones (original, seed) are shown beside them."""

_EMPTY = Family(nodes={}, code={}, diffs={}, skipped={})


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """A device's roofs, from its maker's datasheet: memory bandwidth in 1e9 bytes/s, dense TF32 peak in 1e12 FLOP/s."""

    name: str
    bandwidth_gb_s: float
    tf32_tflop_s: float


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a page needs to know beside the archives. The caller passes it in: reporting sees no task and no device.

    `tasks` are the ids that a share is a share of, in their order. `peaks` gives a device's roofs by its name, `work`
    what a task must do at these input shapes; both give None where that is not known. `reasons` says what codes mean.
    """

    tasks: tuple[str, ...]
    peaks: Callable[[str], Peaks | None]
    work: Callable[[str, Sequence[Sequence[int]]], Floor | None]
    reasons: Mapping[str, str]
    version: str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What the scores of one share have in common, beside each task's own id and version."""

    device: str | None
    timer: str | None
    sizes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Share:
    """How far the tasks are under one identity. `fast` maps p to a number of tasks; None where nothing was timed.

    `geometric_mean` is that of the scores of the correct tasks alone, and None where nothing was timed.
    """

    identity: Identity
    timed: bool
    correct: int
    of: int
    fast: Mapping[float, int | None]
    geometric_mean: float | None
    views: tuple[TaskView, ...]


@dataclass(frozen=True, kw_only=True)
class Stair:
    """The best score so far of one run: one (generation, score) for each improvement, and the last generation."""

    run: str
    steps: tuple[tuple[int, float], ...]
    last: int


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """One task of one source under one identity: generations, islands, families, the best so far of each run."""

    detail: TaskDetail
    family: Family
    stairs: tuple[Stair, ...]

    @property
    def view(self) -> TaskView:
        """The task's best programs."""
        return self.detail.view


@dataclass(frozen=True, kw_only=True)
class Attained:
    """One program on the roofline. `flops` and `bytes_read` are what every correct program must do, not what it did."""

    task: str
    row: ProgramRow
    flops: float
    bytes_read: float
    time_us: float
    xla_us: float | None

    @property
    def intensity(self) -> float:
        """FLOP per byte read."""
        return self.flops / self.bytes_read

    def gflop_s(self, time_us: float) -> float:
        """1e9 FLOP/s at a time in us."""
        return self.flops / time_us / 1e3

    def gb_s(self, time_us: float) -> float:
        """1e9 bytes/s at a time in us."""
        return self.bytes_read / time_us / 1e3


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that is shown. Counts are of the sources, each of their tasks once."""

    made_at: datetime
    facts: Facts
    sources: tuple[str, ...]
    problems: tuple[str, ...]
    runs: tuple[RunView, ...]  # oldest first
    shares: tuple[Share, ...]
    pages: tuple[TaskPage, ...]
    rejected: Mapping[str, int]
    programs: int
    evaluations: int
    accepted: int

    @property
    def run_count(self) -> int:
        """How many runs; one that has scores under several identities counts once."""
        return len({(run.source, run.id) for run in self.runs})


def read_report(readers: Sequence[Reader], facts: Facts, *, problems: Sequence[str] = ()) -> Report:
    """Read it all.

    Args:
        readers: the sources, each an archive or a run folder.
        facts: the tasks and the devices.
        problems: sentences on what lay there too and could not be read; the page shows them.
    """
    pages, rejected = [], Counter[str]()
    counted: dict[tuple[str, str], TaskView] = {}
    for reader in readers:
        for view in reader.tasks(best=BEST):
            counted[view.source, view.task] = view
            if view.evaluations:
                detail = reader.detail(view)
                family = reader.family(view, depth=DEPTH) if view.best else _EMPTY
                pages.append(TaskPage(detail=detail, family=family, stairs=stairs(detail.generations)))
    for view in counted.values():
        rejected.update(view.rejected)
    order = {task: place for place, task in enumerate(facts.tasks)}
    pages.sort(key=lambda page: (order.get(page.view.task, len(order)), page.view.task, not page.view.timed))
    return Report(
        made_at=datetime.now(UTC),
        facts=facts,
        sources=tuple(reader.name for reader in readers),
        problems=tuple(problems),
        runs=tuple(sorted((run for reader in readers for run in reader.runs()), key=_began)),
        shares=shares([page.view for page in pages], facts.tasks),
        pages=tuple(pages),
        rejected=dict(rejected.most_common()),
        programs=sum(view.programs for view in counted.values()),
        evaluations=sum(view.evaluations for view in counted.values()),
        accepted=sum(view.accepted for view in counted.values()),
    )


def _began(run: RunView) -> float:
    return run.date.timestamp() if run.date is not None else 0.0


def write_html(report: Report, path: Path) -> None:
    """Write the page, all of it or nothing.

    Raises:
        UsageError: the place cannot be written, or the extra `report` is not installed.
    """
    try:
        from pallas_evo.reporting.html import render
    except ModuleNotFoundError as error:
        raise extra_missing("--html", error) from error
    text = render(report)
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path}: expected a file that can be written ({error.strerror}).") from error


def extra_missing(option: str, error: ModuleNotFoundError) -> UsageError:
    """The sentence for an option whose libraries are not installed."""
    return UsageError(f"{option} needs {error.name}, which is not installed. Run: pip install 'pallas-evo[report]'")


def shares(views: Sequence[TaskView], tasks: Sequence[str]) -> tuple[Share, ...]:
    """One share for each device, timer and sizes; timed ones first, those with the most tasks first.

    Of a task that several sources have, the view with the highest score counts; of several versions, the newest.
    """
    groups: dict[Identity, dict[str, TaskView]] = {}
    for view in views:
        if not view.best or view.task not in tasks:
            continue
        group = groups.setdefault(Identity(device=view.device, timer=view.timer, sizes=view.sizes), {})
        if view.task not in group or _goes_before(view, group[view.task]):
            group[view.task] = view
    found = [_share(identity, group, tasks) for identity, group in groups.items()]
    return tuple(sorted(found, key=lambda share: (not share.timed, -share.correct)))


def _goes_before(view: TaskView, other: TaskView) -> bool:
    return (view.version or 0, view.best[0].score or 0.0) > (other.version or 0, other.best[0].score or 0.0)


def _share(identity: Identity, group: Mapping[str, TaskView], tasks: Sequence[str]) -> Share:
    views = [group[task] for task in tasks if task in group]
    timed = views[0].timed
    scores = [view.best[0].score or 0.0 for view in views]
    return Share(
        identity=identity,
        timed=timed,
        correct=len(views),
        of=len(tasks),
        fast={p: len(views) if not p else sum(score > p for score in scores) if timed else None for p in FACTORS},
        geometric_mean=math.exp(sum(map(math.log, scores)) / len(scores)) if timed and min(scores) > 0 else None,
        views=tuple(views),
    )


def stairs(generations: Sequence[Step]) -> tuple[Stair, ...]:
    """The best so far of each run, the highest run first. Runs without a score, or without generations, have none."""
    runs: dict[str, list[Step]] = {}
    for step in generations:
        if step.step is not None:
            runs.setdefault(step.run, []).append(step)
    found = []
    for run, steps in runs.items():
        steps.sort(key=lambda step: step.step or 0)
        better: list[tuple[int, float]] = []
        for step in steps:
            if plausible(step.best) and (not better or step.best > better[-1][1]):
                better.append((step.step or 0, step.best))
        if better:
            found.append(Stair(run=run, steps=tuple(better), last=steps[-1].step or 0))
    return tuple(sorted(found, key=lambda stair: -stair.steps[-1][1]))


def plausible(number: float | None) -> TypeGuard[float]:
    """Whether a stranger's number can be a time in us or a score, and so may set the scale of a chart."""
    return number is not None and 1e-9 <= number <= 1e9


def attained(share: Share, facts: Facts) -> tuple[Peaks | None, tuple[Attained, ...]]:
    """The device's roofs, and the best program of each task that was timed at one size whose work is known.

    What a task must do is counted at the shapes that were timed. Where the recorded floor says that the drawn inputs
    asked for less (rows that no index names, masks that are not set), less counts: a floor is never below its parts.
    """
    peaks = facts.peaks(share.identity.device or "") if share.timed else None
    if peaks is None:
        return None, ()
    found = []
    for view in share.views:
        row = view.best[0]
        work = facts.work(view.task, row.shape) if row.shape is not None else None
        if work is None or not plausible(row.time_us):
            continue
        floor_us = row.floor_us if plausible(row.floor_us) else math.inf
        found.append(
            Attained(
                task=view.task,
                row=row,
                flops=min(work.flops, floor_us * peaks.tf32_tflop_s * 1e6),
                bytes_read=min(work.bytes_read, floor_us * peaks.bandwidth_gb_s * 1e3),
                time_us=row.time_us,
                xla_us=row.xla_us if plausible(row.xla_us) else None,
            )
        )
    return peaks, tuple(found)
