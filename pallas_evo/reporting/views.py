"""What a report shows, as plain values: runs, tasks, programs, one program in full. What was not measured is None."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

UNTIMED = "untimed"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run under one score identity. `seed` is the best score of its first generation, `gain` best over seed."""

    source: str
    id: str
    kind: str
    name: str | None
    status: str
    message: str
    date: datetime | None
    task: str | None
    version: int | None = None
    device: str | None
    timer: str | None
    sizes: tuple[str, ...] = ()
    programs: int
    evaluations: int
    correct: int
    best: float | None
    seed: float | None
    gain: float | None


@dataclass(frozen=True, kw_only=True)
class ProgramRow:
    """One program in a list, with what its deciding evaluation said of it.

    `shape` (of each input) and the times are those at `size`. `filters` maps a filter's name to `passed`, `value`,
    `threshold` and `message`. Of several GPUs compiled for, the most registers, spills and shared memory and the least
    occupancy are shown.
    """

    task: str
    id: str
    parent: str | None = None
    name: str | None = None
    origin: str | None = None
    run: str | None = None
    generation: int | None = None
    island: int | None = None
    correct: bool | None = None
    score: float | None = None
    reason: str | None = None
    message: str = ""
    device: str | None = None
    timer: str | None = None
    size: str | None = None
    shape: Sequence[Sequence[int]] | None = None
    time_us: float | None = None
    xla_us: float | None = None
    floor_us: float | None = None
    roofline_percent: float | None = None
    filters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    evaluation_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One task under one score identity: scores of different identity are never put in one list.

    `original` is the id of the TPU-sized original that the seed was made of.
    """

    source: str
    task: str
    version: int | None
    device: str | None
    timer: str | None
    sizes: tuple[str, ...]
    programs: int
    evaluations: int
    accepted: int
    rejected: Mapping[str, int]
    seed: ProgramRow | None
    original: str | None
    best: tuple[ProgramRow, ...]

    @property
    def timed(self) -> bool:
        """Whether its scores are speeds."""
        return self.timer not in (None, "", UNTIMED)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One generation, or one island, of one run."""

    run: str
    step: int | None
    evaluations: int
    correct: int
    best: float | None


@dataclass(frozen=True, kw_only=True)
class TaskDetail:
    """A task over its generations and islands; `generations` and `islands` score under `view`'s identity."""

    view: TaskView
    generations: tuple[Step, ...]
    islands: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class ProgramDetail:
    """Everything about one program. `measured` holds gates, filters, sizes, compiled, environment as plain values;
    `samples_us` maps size and slot (candidate, xla) to raw samples; `lineage` runs from its parent to the first."""

    source: str
    row: ProgramRow
    code: str
    diff: str | None
    lineage: tuple[ProgramRow, ...]
    lineage_code: Mapping[str, str]
    measured: Mapping[str, Any]
    samples_us: Mapping[str, Mapping[str, Sequence[float]]]
    findings: tuple[Mapping[str, Any], ...] = ()
    verifications: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Family:
    """The best programs of a task with their ancestors, back to the first: `nodes` by id.

    A node's `parent` and its diff are to the ancestor that is shown next, which may not be its parent: `skipped` says
    how many lie between.
    """

    nodes: Mapping[str, ProgramRow]
    code: Mapping[str, str]
    diffs: Mapping[str, str | None]
    skipped: Mapping[str, int]


class Reader(Protocol):
    """One archive, or one run folder, that reports read."""

    name: str

    def runs(self) -> tuple[RunView, ...]:
        """Its runs, oldest first."""

    def tasks(self, *, best: int, only: str | None = None) -> tuple[TaskView, ...]:
        """Its tasks, each with its best programs, timed identities first."""

    def detail(self, view: TaskView) -> TaskDetail:
        """Generations and islands of one of its tasks."""

    def family(self, view: TaskView, *, depth: int) -> Family:
        """The view's best programs and their ancestors, at most `depth` between a best one and the first."""

    def find(self, prefix: str, task: str | None, *, limit: int = 8) -> tuple[tuple[str, str], ...]:
        """(task, id) of the programs whose id begins so."""

    def program(self, task: str, id: str) -> ProgramDetail:
        """One program in full."""


def verdict_first(verdicts: Sequence[Any]) -> Any | None:
    """Of a program's evaluation records, oldest first, the one that speaks for it, None of none.

    The newest timed one that no later evaluation contradicts; else the newest.
    """
    for number in range(len(verdicts) - 1, -1, -1):
        if not verdicts[number].correct:
            break
        if verdicts[number].identity.timed:
            return verdicts[number]
    return verdicts[-1] if verdicts else None


def shown_size(sizes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The size whose times are shown: medium where it was timed, else the first that was."""
    timed = [name for name, size in sizes.items() if size.get("median_us") is not None]
    return "medium" if "medium" in timed else timed[0] if timed else None


def measured_fields(measured: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `ProgramRow` that come from what an evaluation measured."""
    sizes, compiled = measured.get("sizes") or {}, measured.get("compiled") or {}
    name = shown_size(sizes)
    size = sizes.get(name, {}) if name else {}
    return {
        "size": name,
        "shape": size.get("shape"),
        "time_us": size.get("median_us"),
        "xla_us": size.get("xla_us"),
        "floor_us": size.get("floor_us"),
        "roofline_percent": size.get("roofline_percent"),
        "filters": measured.get("filters") or {},
        "registers": max((made["registers"] for made in compiled.values()), default=None),
        "spill_bytes": max((made["spill_bytes"] for made in compiled.values()), default=None),
        "shared_bytes": max((made["shared_bytes"] for made in compiled.values()), default=None),
        "occupancy": min((made["occupancy"] for made in compiled.values()), default=None),
    }


def diff_of(parent: str, child: str) -> str:
    """The unified diff from parent to child."""
    lines = difflib.unified_diff(parent.splitlines(), child.splitlines(), "parent", "child", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def kept_ancestors(chains: Sequence[Sequence[str]], depth: int) -> tuple[dict[str, str | None], dict[str, int]]:
    """Of each chain the youngest and the two first; what lies between is counted, unless another chain shows it.

    Returns each kept program's shown parent, and how many were left out between the two.
    """
    shown = {key for chain in chains for key in (chain if len(chain) <= depth + 2 else [*chain[:depth], *chain[-2:]])}
    parents: dict[str, str | None] = {}
    skipped: dict[str, int] = {}
    for chain in chains:
        places = [place for place, key in enumerate(chain) if key in shown]
        for place, following in zip(places, [*places[1:], None], strict=True):
            parents[chain[place]] = chain[following] if following is not None else None
            if following is not None and following > place + 1:
                skipped[chain[place]] = following - place - 1
    return parents, skipped


def gain(best: float | None, seed: float | None) -> float | None:
    """How many times the seed's score the best one is."""
    return best / seed if best and seed else None
