"""First schema: tasks, programs, evaluations, timing samples, runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# `evolve` names its runs with 39 characters. No archive on PostgreSQL had been released when that was found, and SQLite
# keeps to no length, so the first schema was changed in place: nobody has to upgrade a file for it.
_RUN_ID = sa.String(length=32).with_variant(sa.String(length=200), "postgresql")


def upgrade() -> None:
    op.create_table(
        "configs",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("yaml", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_configs"),
    )
    op.create_table(
        "environments",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_environments"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("category", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
    )
    op.create_table(
        "programs",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("origin", sa.String(length=200), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("parent_sha256", sa.String(length=64), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id", "parent_sha256"],
            ["programs.task_id", "programs.sha256"],
            name="fk_programs_task_id_parent_sha256",
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_programs_task_id"),
        sa.PrimaryKeyConstraint("task_id", "sha256", name="pk_programs"),
    )
    op.create_index("ix_programs_task_id_origin", "programs", ["task_id", "origin"])
    op.create_index("ix_programs_task_id_parent_sha256", "programs", ["task_id", "parent_sha256"])
    op.create_table(
        "runs",
        sa.Column("id", _RUN_ID, nullable=False),
        sa.Column("kind", sa.String(length=200), nullable=False),
        sa.Column("task_id", sa.String(length=200), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("status", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("config_sha256", sa.String(length=64), nullable=True),
        sa.Column("environment_sha256", sa.String(length=64), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["config_sha256"], ["configs.sha256"], name="fk_runs_config_sha256"),
        sa.ForeignKeyConstraint(["environment_sha256"], ["environments.sha256"], name="fk_runs_environment_sha256"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_runs_task_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_table(
        "task_versions",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_task_versions_task_id"),
        sa.PrimaryKeyConstraint("task_id", "version", name="pk_task_versions"),
    )
    op.create_table(
        "evaluations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("candidate_sha256", sa.String(length=64), nullable=False),
        sa.Column("run_id", _RUN_ID, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("task_version", sa.Integer(), nullable=False),
        sa.Column("ran_on", sa.String(length=200), nullable=True),
        sa.Column("device", sa.String(length=200), nullable=False),
        sa.Column("timer", sa.String(length=200), nullable=False),
        sa.Column("timed_sizes", sa.String(length=200), nullable=False),
        sa.Column("correct", sa.Boolean(), nullable=False),
        sa.Column("combined_score", sa.Double(), nullable=False),
        sa.Column("status", sa.String(length=200), nullable=False),
        sa.Column("stage", sa.String(length=200), nullable=True),
        sa.Column("reason", sa.String(length=200), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=False),
        sa.Column("jail", sa.String(length=200), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("environment_sha256", sa.String(length=64), nullable=False),
        sa.Column("config_sha256", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["config_sha256"], ["configs.sha256"], name="fk_evaluations_config_sha256"),
        sa.ForeignKeyConstraint(
            ["environment_sha256"], ["environments.sha256"], name="fk_evaluations_environment_sha256"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_evaluations_run_id"),
        sa.ForeignKeyConstraint(
            ["task_id", "candidate_sha256"],
            ["programs.task_id", "programs.sha256"],
            name="fk_evaluations_task_id_candidate_sha256",
        ),
        sa.ForeignKeyConstraint(
            ["task_id", "task_version"],
            ["task_versions.task_id", "task_versions.version"],
            name="fk_evaluations_task_id_task_version",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_evaluations"),
    )
    op.create_index("ix_evaluations_program", "evaluations", ["task_id", "candidate_sha256", "created_at"])
    op.create_index(
        "ix_evaluations_ranking",
        "evaluations",
        ["task_id", "task_version", "device", "timer", "timed_sizes", "correct", "combined_score"],
    )
    op.create_index("ix_evaluations_run_id_created_at", "evaluations", ["run_id", "created_at"])
    op.create_index("ix_evaluations_verdict", "evaluations", ["task_id", "status", "reason"])
    op.create_table(
        "program_texts",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("diff", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["task_id", "sha256"], ["programs.task_id", "programs.sha256"], name="fk_program_texts_task_id_sha256"
        ),
        sa.PrimaryKeyConstraint("task_id", "sha256", name="pk_program_texts"),
    )
    op.create_table(
        "run_programs",
        sa.Column("run_id", _RUN_ID, nullable=False),
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("island", sa.Integer(), nullable=True),
        sa.Column("parent_sha256", sa.String(length=64), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_programs_run_id"),
        sa.ForeignKeyConstraint(
            ["task_id", "sha256"], ["programs.task_id", "programs.sha256"], name="fk_run_programs_task_id_sha256"
        ),
        sa.PrimaryKeyConstraint("run_id", "task_id", "sha256", name="pk_run_programs"),
    )
    op.create_index("ix_run_programs_task_id_sha256", "run_programs", ["task_id", "sha256"])
    op.create_table(
        "evaluation_details",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("gates", sa.JSON(), nullable=False),
        sa.Column("filters", sa.JSON(), nullable=False),
        sa.Column("sizes", sa.JSON(), nullable=False),
        sa.Column("compiled", sa.JSON(), nullable=False),
        sa.Column("compiled_for", sa.JSON(), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("text_feedback", sa.Text(), nullable=False),
        sa.Column("output_text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], name="fk_evaluation_details_evaluation_id"),
        sa.PrimaryKeyConstraint("evaluation_id", name="pk_evaluation_details"),
    )
    op.create_table(
        "timing_samples",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("size", sa.String(length=200), nullable=False),
        sa.Column("slot", sa.String(length=200), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("samples_us", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], name="fk_timing_samples_evaluation_id"),
        sa.PrimaryKeyConstraint("evaluation_id", "size", "slot", name="pk_timing_samples"),
    )


def downgrade() -> None:
    raise NotImplementedError("Archives only go forward: keep a copy of the file to go back.")
