"""What an evaluated program turned into on the way: Jaxpr, StableHLO, Triton IR, PTX."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "texts",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("zlib", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_texts"),
    )
    op.create_table(
        "evaluation_texts",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=200), nullable=False),
        sa.Column("size", sa.String(length=200), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], name="fk_evaluation_texts_evaluation_id"),
        sa.ForeignKeyConstraint(["sha256"], ["texts.sha256"], name="fk_evaluation_texts_sha256"),
        sa.PrimaryKeyConstraint("evaluation_id", "kind", name="pk_evaluation_texts"),
    )


def downgrade() -> None:
    raise NotImplementedError("Archives only go forward: keep a copy of the file to go back.")
