"""When a transition is to be told, since domains that join are told together; what people did about it; silences."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("incident_events", sa.Column("due_at", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "incident_acts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("done_by", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], name=op.f("fk_incident_acts_incident_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident_acts")),
        comment="What people did about an incident: acknowledgements and notes.",
    )
    op.create_index("ix_incident_acts_incident_id", "incident_acts", ["incident_id"])
    op.create_table(
        "silences",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=True),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("severity", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    op.add_column(
        "deliveries",
        sa.Column("silence_id", sa.BigInteger(), nullable=True, comment="It holds the message, or held it."),
    )
    op.create_foreign_key(op.f("fk_deliveries_silence_id"), "deliveries", "silences", ["silence_id"], ["id"])
    op.create_index(
        "ix_deliveries_silenced", "deliveries", ["incident_id"], postgresql_where=sa.text("state = 'silenced'")
    )
