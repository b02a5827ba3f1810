"""Gates that are asked over HTTP: kept from the moment they are asked, with who asked for what and how far they are."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("gates", "verdict", nullable=True)
    op.alter_column("gates", "finished_at", nullable=True)
    op.add_column("gates", sa.Column("status", sa.Text(), server_default=sa.text("'done'"), nullable=False))
    op.add_column("gates", sa.Column("asked", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.add_column("gates", sa.Column("asked_by", sa.Text(), nullable=True))
    op.add_column("gates", sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("gates", sa.Column("key", sa.Text(), nullable=True))
    op.add_column("gates", sa.Column("servers", sa.ARRAY(sa.Text()), nullable=True))
    op.add_column("gates", sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("gates", sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.create_index("ix_gates_asked_by_key", "gates", ["asked_by", "key"])
