"""The tables. What is large (sources, gates, logs) lies in tables of its own, so that lists and rankings of 100,000
programs read small rows only. All keys are natural (task and sha256, ids unique across machines, content hashes), so
that rows move between databases unchanged and adding one twice changes nothing.

Only portable types: the same tables serve SQLite and PostgreSQL.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

from pallas_evo.archive.encoding import plain, restore

SCHEMA_REVISION = "0003"
"""The newest migration under migrations/versions: what a new archive is stamped with, and what an open one must say."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, in and out with its zone, stored as UTC (SQLite keeps no zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class AnyText(TypeDecorator[str]):
    """Text that may hold anything a candidate prints. PostgreSQL refuses NUL and no database takes a lone surrogate,
    so a text with either is stored as ASCII JSON behind a mark; every other text is stored as it is."""

    impl = Text
    cache_ok = True
    _MARK = "\ue000json:"

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if "\0" in value or value.startswith(self._MARK) or not _is_utf8(value):
            return self._MARK + json.dumps(value)
        return value

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is not None and value.startswith(self._MARK):
            return str(json.loads(value[len(self._MARK) :]))
        return value


class Json(TypeDecorator[Any]):
    """JSON whose floats may be NaN or infinite."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return plain(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return restore(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_SHA256 = String(64)
_ID = String(32)
_WORD = String(200)
_RUN_ID = String(32).with_variant(String(200), "postgresql")
"""Whoever begins a run may name it, and `evolve` takes 39 characters. SQLite keeps to no length."""


def _program_key(*, sha256: str = "sha256", name: str | None = None) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["task_id", sha256], ["programs.task_id", "programs.sha256"], name=name)


tasks = Table(
    "tasks",
    metadata,
    Column("id", _WORD, primary_key=True),  # "L1/relu"
    Column("number", Integer, nullable=False),
    Column("level", Integer, nullable=False),
    Column("category", _WORD, nullable=False),
)

task_versions = Table(
    "task_versions",
    metadata,
    Column("task_id", _WORD, ForeignKey("tasks.id"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("definition", Json, nullable=False),  # the whole pallas_evo.types.Task
)

environments = Table(  # JAX, jaxlib, triton, driver, device, jail, ...: stored once for all that ran in it
    "environments",
    metadata,
    Column("sha256", _SHA256, primary_key=True),
    Column("content", Json, nullable=False),
)

configs = Table(  # resolved configurations, likewise
    "configs",
    metadata,
    Column("sha256", _SHA256, primary_key=True),
    Column("yaml", AnyText, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", _RUN_ID, primary_key=True),
    Column("kind", _WORD, nullable=False),  # seed, evaluate, evolve, ...
    Column("task_id", _WORD, ForeignKey("tasks.id")),
    Column("name", AnyText),
    Column("status", _WORD, nullable=False),  # running, finished, failed
    Column("message", AnyText, nullable=False),
    Column("config_sha256", _SHA256, ForeignKey("configs.sha256")),
    Column("environment_sha256", _SHA256, ForeignKey("environments.sha256")),
    Column("metadata", Json, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
)

programs = Table(
    "programs",
    metadata,
    Column("task_id", _WORD, ForeignKey("tasks.id"), primary_key=True),
    Column("sha256", _SHA256, primary_key=True),  # of the source's UTF-8 bytes
    Column("origin", _WORD, nullable=False),
    Column("name", AnyText),
    Column("parent_sha256", _SHA256),  # a program of the same task
    Column("metadata", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    _program_key(sha256="parent_sha256"),
    Index(None, "task_id", "origin"),
    Index(None, "task_id", "parent_sha256"),
)

program_texts = Table(
    "program_texts",
    metadata,
    Column("task_id", _WORD, primary_key=True),
    Column("sha256", _SHA256, primary_key=True),
    Column("source", AnyText, nullable=False),
    Column("diff", AnyText),  # unified, from the parent
    _program_key(),
)

run_programs = Table(  # one program may appear in many runs: the seed, in each as generation 0
    "run_programs",
    metadata,
    Column("run_id", _RUN_ID, ForeignKey("runs.id"), primary_key=True),
    Column("task_id", _WORD, primary_key=True),
    Column("sha256", _SHA256, primary_key=True),
    Column("generation", Integer),
    Column("island", Integer),
    Column("parent_sha256", _SHA256),
    Column("metadata", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    _program_key(),
    Index(None, "task_id", "sha256"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("task_id", _WORD, nullable=False),
    Column("candidate_sha256", _SHA256, nullable=False),
    Column("run_id", _RUN_ID, ForeignKey("runs.id")),
    Column("created_at", UtcDateTime, nullable=False),
    Column("task_version", Integer, nullable=False),
    Column("ran_on", _WORD),
    Column("device", _WORD, nullable=False),  # ran_on, or empty: a score's identity has no unknowns
    Column("timer", _WORD, nullable=False),
    Column("timed_sizes", _WORD, nullable=False),  # "large,medium": sorted, comma between; empty when untimed
    Column("correct", Boolean, nullable=False),
    Column("combined_score", Double, nullable=False),
    Column("status", _WORD, nullable=False),
    Column("stage", _WORD),
    Column("reason", _WORD),
    Column("message", AnyText, nullable=False),
    Column("target", _WORD, nullable=False),
    Column("jail", _WORD),
    Column("duration_s", Double, nullable=False),
    Column("environment_sha256", _SHA256, ForeignKey("environments.sha256"), nullable=False),
    Column("config_sha256", _SHA256, ForeignKey("configs.sha256")),
    _program_key(sha256="candidate_sha256"),
    ForeignKeyConstraint(["task_id", "task_version"], ["task_versions.task_id", "task_versions.version"]),
    Index("ix_evaluations_program", "task_id", "candidate_sha256", "created_at"),
    Index(
        "ix_evaluations_ranking",
        *("task_id", "task_version", "device", "timer", "timed_sizes", "correct", "combined_score"),
    ),
    Index("ix_evaluations_verdict", "task_id", "status", "reason"),
    Index(None, "run_id", "created_at"),
)

evaluation_details = Table(
    "evaluation_details",
    metadata,
    Column("evaluation_id", _ID, ForeignKey("evaluations.id"), primary_key=True),
    Column("gates", Json, nullable=False),
    Column("filters", Json, nullable=False),
    Column("sizes", Json, nullable=False),  # errors, bounds, medians; the samples are in timing_samples
    Column("compiled", Json, nullable=False),
    Column("compiled_for", Json, nullable=False),
    Column("seeds", Json, nullable=False),
    Column("text_feedback", AnyText, nullable=False),
    Column("output_text", AnyText, nullable=False),
)

timing_samples = Table(  # raw samples of device time: a row is all samples of one program at one size
    "timing_samples",
    metadata,
    Column("evaluation_id", _ID, ForeignKey("evaluations.id"), primary_key=True),
    Column("size", _WORD, primary_key=True),
    Column("slot", _WORD, primary_key=True),  # candidate, xla, ...: what was timed
    Column("count", Integer, nullable=False),
    Column("samples_us", LargeBinary, nullable=False),  # float64, little-endian
)

texts = Table(  # what programs turned into on the way: Jaxpr, StableHLO, Triton IR, PTX; equal ones are stored once
    "texts",
    metadata,
    Column("sha256", _SHA256, primary_key=True),  # of the text's UTF-8 bytes
    Column("zlib", LargeBinary, nullable=False),  # those bytes, compressed
)

evaluation_texts = Table(
    "evaluation_texts",
    metadata,
    Column("evaluation_id", _ID, ForeignKey("evaluations.id"), primary_key=True),
    Column("kind", _WORD, primary_key=True),  # jaxpr, stablehlo, triton_ir, ptx_sm_80
    Column("size", _WORD, nullable=False),  # the size that it was traced at
    Column("sha256", _SHA256, ForeignKey("texts.sha256"), nullable=False),
)

verifications = Table(  # one rung of the ladder that a seed climbs, as far as each machine reaches
    "verifications",
    metadata,
    Column("task_id", _WORD, primary_key=True),
    Column("sha256", _SHA256, primary_key=True),
    Column("rung", _WORD, primary_key=True),
    Column("environment_sha256", _SHA256, ForeignKey("environments.sha256"), primary_key=True),
    Column("passed", Boolean, nullable=False),
    Column("message", AnyText, nullable=False),
    Column("details", Json, nullable=False),  # errors by size; registers, spills, shared memory, seconds by sm and size
    Column("created_at", UtcDateTime, nullable=False),
    _program_key(),
)

findings = Table(  # what the gates say to a program that is kept because it is wrong: the TPU originals
    "findings",
    metadata,
    Column("task_id", _WORD, primary_key=True),
    Column("sha256", _SHA256, primary_key=True),
    Column("reason", _WORD, primary_key=True),
    Column("environment_sha256", _SHA256, ForeignKey("environments.sha256"), primary_key=True),
    Column("message", AnyText, nullable=False),
    Column("fix", AnyText),  # what the seed made of it does instead
    Column("details", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    _program_key(),
)
