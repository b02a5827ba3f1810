"""Organic acceptance and load, from passive reading."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "organic",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reads", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("resets", sa.Integer(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("drafted", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("accepted_at", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("generated_tokens", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("preemptions", sa.BigInteger(), nullable=False),
        sa.Column("running_mean", sa.Double()),
        sa.Column("running_max", sa.Double()),
        sa.Column("waiting_max", sa.Double()),
        sa.Column("kv_cache_usage_max", sa.Double()),
        sa.Column("server_started_at", sa.Double()),
        sa.Column("last_failure", sa.Text()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organic")),
        comment="What replicas did for everybody, by their counters, a row per replica and ten minutes.",
    )
    op.create_index("ix_organic_route_began_at", "organic", ["route", "began_at"])
