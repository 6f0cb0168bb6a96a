"""What the archive hands out: frozen records of plain values. No SQLAlchemy type leaves the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from pallas_evo.types import Evaluation

Origin = Literal["seed", "tpu_original", "mutation", "candidate"]
"""Where a program comes from. `candidate` is a file that somebody had judged, of which nothing more is known."""

ORIGINS: tuple[str, ...] = get_args(Origin)

UNTIMED = "untimed"


@dataclass(frozen=True, kw_only=True)
class ScoreIdentity:
    """What two scores must share to be compared: task, its version, device, timer and the timed sizes (sorted)."""

    task: str
    task_version: int
    device: str
    timer: str
    sizes: tuple[str, ...]

    @property
    def timed(self) -> bool:
        """Whether the score is a speed. An untimed one says correct, and ranks below any timed one."""
        return self.timer != UNTIMED


def identity_of(evaluation: Evaluation) -> ScoreIdentity:
    """The identity of an evaluation's score."""
    timed = evaluation.timer != UNTIMED
    return ScoreIdentity(
        task=evaluation.task,
        task_version=evaluation.task_version,
        device=evaluation.ran_on or "",
        timer=evaluation.timer,
        sizes=tuple(sorted(name for name, size in evaluation.sizes.items() if timed and size.median_us is not None)),
    )


@dataclass(frozen=True, kw_only=True)
class ProgramRecord:
    """One program: `task` and `sha256` (of its source) are its identity.

    `source` and `diff` are None where a listing was asked to leave them out. `run_id`, `generation` and `island` are
    set where the program was added to a run or listed by one; then `parent_sha256` and `metadata` are that run's.
    """

    task: str
    sha256: str
    origin: str
    name: str | None
    parent_sha256: str | None
    created_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    diff: str | None = None
    run_id: str | None = None
    generation: int | None = None
    island: int | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """One evaluation in a listing. `Archive.evaluation(id)` gives the whole."""

    id: str
    candidate_sha256: str
    run_id: str | None
    created_at: datetime
    identity: ScoreIdentity
    target: str
    correct: bool
    combined_score: float
    status: str
    stage: str | None
    reason: str | None
    message: str
    jail: str | None
    duration_s: float


def standing(records: Sequence[EvaluationRecord], identity: ScoreIdentity) -> EvaluationRecord | None:
    """Of one program's evaluations, oldest first, the one that ranks under the identity.

    The newest correct one of that identity; none where the program was found wrong on the same device since.
    """
    found = None
    for record in records:
        mine = record.identity
        if record.correct and mine == identity:
            found = record
        elif (
            found is not None
            and not record.correct
            and (mine.task_version, mine.device) == (identity.task_version, identity.device)
            and record.created_at > found.created_at
        ):
            found = None
    return found


@dataclass(frozen=True, kw_only=True)
class SampleRecord:
    """Raw timing samples of one program at one size; `slot` says which (`candidate`, `xla`)."""

    size: str
    slot: str
    samples_us: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TextRecord:
    """What an evaluated program was on the way, at one size; `kind` is jaxpr, stablehlo, triton_ir or ptx_sm_80."""

    kind: str
    size: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run of ours. `status` is running, finished or failed; a killed run stays `running`."""

    id: str
    kind: str
    task: str | None
    name: str | None
    status: str
    message: str
    config_yaml: str | None
    environment: Mapping[str, Any]
    metadata: Mapping[str, Any]
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class VerificationRecord:
    """One rung of verification that a program reached, or failed at, in one environment."""

    task: str
    sha256: str
    rung: str
    passed: bool
    message: str
    details: Mapping[str, Any]
    environment: Mapping[str, Any]
    environment_sha256: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class FindingRecord:
    """What a gate says to a program that is kept because it is wrong, and the label of what mends it."""

    task: str
    sha256: str
    reason: str
    message: str
    fix: str | None
    details: Mapping[str, Any]
    environment: Mapping[str, Any]
    environment_sha256: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class IdentitySummary:
    """One identity that a task has scores of: how many evaluations, how many correct, the best score."""

    identity: ScoreIdentity
    evaluations: int
    correct: int
    best_score: float | None


@dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """Counts for one task. `rejected` maps reason code to number of evaluations."""

    task: str
    programs: int
    evaluations: int
    accepted: int
    rejected: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts of a whole archive; `tasks` in task number order."""

    tasks: tuple[TaskSummary, ...]
    programs: int
    evaluations: int
    accepted: int
    timing_samples: int
    runs: int
    verifications: int
    findings: int


@dataclass(frozen=True, kw_only=True)
class RunDigest:
    """What one run came to under one identity (None where nothing was judged in it).

    `programs` and `evaluations` are the whole run's, `correct` its programs that were once found correct under the
    identity; `first_score` is the best of its earliest generation.
    """

    run: RunRecord
    programs: int
    evaluations: int
    identity: ScoreIdentity | None
    correct: int
    best_score: float | None
    first_score: float | None


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One generation on one island of one run: programs judged, how many correct, the best score among them."""

    run_id: str
    generation: int | None
    island: int | None
    evaluations: int
    correct: int
    best_score: float | None


@dataclass(frozen=True, kw_only=True)
class MeasuredRecord:
    """What one evaluation measured, as plain values: each mapping as the dataclass of that name has its fields."""

    gates: Sequence[Mapping[str, Any]]
    filters: Mapping[str, Mapping[str, Any]]
    sizes: Mapping[str, Mapping[str, Any]]
    compiled: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, Any]
    samples: tuple[SampleRecord, ...]


@dataclass(frozen=True, kw_only=True)
class CopyReport:
    """Rows that a copy added (or renewed), by table; what was there already is not counted."""

    added: Mapping[str, int]

    @property
    def total(self) -> int:
        """All rows added."""
        return sum(self.added.values())
