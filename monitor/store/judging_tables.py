"""Tables of what runs are judged by, and of how they were: baselines, trips, verdicts."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, ForeignKey, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.metadata import id_column, metadata, time_column

baselines = Table(
    "baselines",
    metadata,
    id_column(),
    Column("route", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("prompt_set_hash", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("k", Integer),
    Column("concurrency", Integer, nullable=False),
    Column("sampling", JSONB, nullable=False),
    Column("identity_id", BigInteger, ForeignKey("identities.id"), nullable=False),
    Column("run_ids", ARRAY(BigInteger), nullable=False),
    Column("metrics", JSONB, nullable=False, comment="Per metric: values, spreads, run_sigma, runs."),
    time_column("created_at"),
    Column("created_by", Text, nullable=False),
)

baseline_approvals = Table(
    "baseline_approvals",
    metadata,
    id_column(),
    Column("baseline_id", BigInteger, ForeignKey("baselines.id"), nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("why", Text, nullable=False),
    time_column("approved_at"),
)
Index("ix_baselines_route_domain", baselines.c.route, baselines.c.domain)

trips = Table(
    "trips",
    metadata,
    id_column(),
    Column("route", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("rules", ARRAY(Text), nullable=False),
    Column("run_id", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("baseline_id", BigInteger, ForeignKey("baselines.id"), comment="NULL where only absolute rules tripped."),
    Column("state", Text, nullable=False),
    Column("confirmations_queued", Integer, nullable=False),
    time_column("opened_at"),
    time_column("decided_at", nullable=True),
)
Index(
    "uq_trips_pending",
    trips.c.route,
    trips.c.domain,
    unique=True,
    postgresql_where=text("state = 'pending'"),
)

verdicts = Table(
    "verdicts",
    metadata,
    id_column(),
    Column("run_id", BigInteger, ForeignKey("runs.id", ondelete="CASCADE"), comment="NULL of a verdict on a speedup."),
    Column("trip_id", BigInteger, ForeignKey("trips.id")),
    Column("rule", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    time_column("judged_at"),
    Column(
        "speedup_id",
        BigInteger,
        ForeignKey("speedups.id", ondelete="CASCADE"),
        comment="NULL of a verdict on a run.",
    ),
)
Index("ix_verdicts_run_id", verdicts.c.run_id)
Index("ix_verdicts_speedup_id", verdicts.c.speedup_id, postgresql_where=text("speedup_id IS NOT NULL"))
