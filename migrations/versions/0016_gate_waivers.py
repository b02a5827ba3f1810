"""Waivers: who let something through that its gate did not, why, and until when."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gate_waivers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("gate_id", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["gate_id"], ["gates.id"], name=op.f("fk_gate_waivers_gate_id_gates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gate_waivers")),
    )
    op.create_index("ix_gate_waivers_gate_id", "gate_waivers", ["gate_id"])
