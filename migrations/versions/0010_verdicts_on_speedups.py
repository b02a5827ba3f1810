"""Verdicts on measured speedups, which belong to no run."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column(
        "verdicts", "run_id", existing_type=sa.BigInteger(), nullable=True, comment="NULL of a verdict on a speedup."
    )
    op.add_column(
        "verdicts",
        sa.Column(
            "speedup_id",
            sa.BigInteger(),
            sa.ForeignKey("speedups.id", ondelete="CASCADE"),
            comment="NULL of a verdict on a run.",
        ),
    )
    op.create_index(
        "ix_verdicts_speedup_id", "verdicts", ["speedup_id"], postgresql_where=sa.text("speedup_id IS NOT NULL")
    )
