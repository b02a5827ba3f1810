"""When an incident's transition is to be told, since domains that join are told together; what people did about it."""

import sqlalchemy as sa
from alembic import op

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
