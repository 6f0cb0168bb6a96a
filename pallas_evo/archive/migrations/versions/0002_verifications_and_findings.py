"""How far each program was verified in which environment, and what the gates find in the TPU originals."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "verifications",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("rung", sa.String(length=200), nullable=False),
        sa.Column("environment_sha256", sa.String(length=64), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id", "sha256"], ["programs.task_id", "programs.sha256"], name="fk_verifications_task_id_sha256"
        ),
        sa.ForeignKeyConstraint(
            ["environment_sha256"], ["environments.sha256"], name="fk_verifications_environment_sha256"
        ),
        sa.PrimaryKeyConstraint("task_id", "sha256", "rung", "environment_sha256", name="pk_verifications"),
    )
    op.create_table(
        "findings",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=False),
        sa.Column("environment_sha256", sa.String(length=64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("fix", sa.Text(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id", "sha256"], ["programs.task_id", "programs.sha256"], name="fk_findings_task_id_sha256"
        ),
        sa.ForeignKeyConstraint(["environment_sha256"], ["environments.sha256"], name="fk_findings_environment_sha256"),
        sa.PrimaryKeyConstraint("task_id", "sha256", "reason", "environment_sha256", name="pk_findings"),
    )


def downgrade() -> None:
    raise NotImplementedError("Archives only go forward: keep a copy of the file to go back.")
