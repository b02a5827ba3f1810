"""Bumps are announced and end in one verdict; a message may be about a bump instead of an incident."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "announcements",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("drafter", sa.Text()),
        sa.Column("engine_version", sa.Text()),
        sa.Column("note", sa.Text()),
        sa.Column("link", sa.Text()),
        sa.Column("key", sa.Text(), comment="A repeat with the same one is the same announcement."),
        sa.Column("announced_by", sa.Text(), nullable=False),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_announcements"),
        sa.UniqueConstraint("route", "key", name="uq_announcements_route_key"),
        comment="What people and pipelines say that a route runs from now on.",
    )
    op.create_table(
        "bump_verdicts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("announcement_id", sa.BigInteger(), comment="NULL: nobody announced it."),
        sa.Column("domains", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "replicas", JSONB(), nullable=False, comment="Replica: since when a run of it is one after the change."
        ),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True)),
        sa.Column("document", JSONB(), comment="What was told, once decided."),
        sa.PrimaryKeyConstraint("id", name="pk_bump_verdicts"),
        sa.ForeignKeyConstraint(["announcement_id"], ["announcements.id"], name="fk_bump_verdicts_announcement_id"),
    )
    op.create_index("ix_bump_verdicts_route_id", "bump_verdicts", ["route", "id"])
    op.create_index(
        "ix_bump_verdicts_waiting", "bump_verdicts", ["route"], postgresql_where=sa.text("decided_at IS NULL")
    )
    op.add_column("bumps", sa.Column("verdict_id", sa.BigInteger()))
    op.create_foreign_key("fk_bumps_verdict_id", "bumps", "bump_verdicts", ["verdict_id"], ["id"])
    op.create_index("ix_bumps_verdict_id", "bumps", ["verdict_id"])
    op.add_column("incident_events", sa.Column("bump_verdict_id", sa.BigInteger()))
    op.create_foreign_key(
        "fk_incident_events_bump_verdict_id", "incident_events", "bump_verdicts", ["bump_verdict_id"], ["id"]
    )
    for table in ("incident_events", "deliveries"):
        op.alter_column(
            table, "incident_id", existing_type=sa.BigInteger(), nullable=True, comment="NULL where it is about a bump."
        )
