"""Absolute rules trip runs that no baseline judges."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column(
        "trips",
        "baseline_id",
        existing_type=sa.BigInteger(),
        nullable=True,
        comment="NULL where only absolute rules tripped.",
    )
