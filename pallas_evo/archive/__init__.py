"""The archive: tasks, programs, evaluations, raw timing samples and runs, in SQLite or any SQLAlchemy database.

- `open_archive` opens or makes one, and gives an `Archive` with a method for each thing to store or to ask.
- `upgrade` brings an older archive to this schema.
- The records are what its methods return. `ScoreIdentity` says which scores may be compared; `identity_of` finds an
  evaluation's.
"""

from pallas_evo.archive.encoding import new_id, sha256_of_json, sha256_of_text, unified_diff
from pallas_evo.archive.location import DEFAULT_ARCHIVE
from pallas_evo.archive.migrate import upgrade
from pallas_evo.archive.records import (
    ORIGINS,
    CopyReport,
    EvaluationRecord,
    FindingRecord,
    IdentitySummary,
    MeasuredRecord,
    Origin,
    ProgramRecord,
    RunDigest,
    RunRecord,
    SampleRecord,
    ScoreIdentity,
    StepRecord,
    Summary,
    TaskSummary,
    TextRecord,
    VerificationRecord,
    identity_of,
)
from pallas_evo.archive.schema import SCHEMA_REVISION
from pallas_evo.archive.store import Archive, ProgramKey, open_archive

__all__ = [
    "DEFAULT_ARCHIVE",
    "ORIGINS",
    "SCHEMA_REVISION",
    "Archive",
    "CopyReport",
    "EvaluationRecord",
    "FindingRecord",
    "IdentitySummary",
    "MeasuredRecord",
    "Origin",
    "ProgramKey",
    "ProgramRecord",
    "RunDigest",
    "RunRecord",
    "SampleRecord",
    "ScoreIdentity",
    "StepRecord",
    "Summary",
    "TaskSummary",
    "TextRecord",
    "VerificationRecord",
    "identity_of",
    "new_id",
    "open_archive",
    "sha256_of_json",
    "sha256_of_text",
    "unified_diff",
    "upgrade",
]
