"""Reference lines: acceptance that other tools measured."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reference_lines",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=True),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("file_hash", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("k", sa.Integer(), nullable=True),
        sa.Column("acceptance_length", sa.Double(), nullable=False),
        sa.Column("acceptance_rate", sa.Double(), nullable=True),
        sa.Column("survival", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=True),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reference_lines")),
        comment="Figures of other tools; shown beside ours and read by nothing that judges.",
    )
    op.create_index("ix_reference_lines_route", "reference_lines", ["route"])
