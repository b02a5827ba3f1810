"""Tables of changed identities: what was announced, what was noticed, what became of it."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.metadata import id_column, metadata, time_column

announcements = Table(
    "announcements",
    metadata,
    id_column(),
    Column("route", Text, nullable=False),
    Column("model", Text),
    Column("drafter", Text),
    Column("engine_version", Text),
    Column(
        "candidate", JSONB, comment="Identity of what was running where a gate passed that is promoted; NULL: no gate."
    ),
    Column("note", Text),
    Column("link", Text),
    Column("key", Text, comment="A repeat with the same one is the same announcement."),
    Column("announced_by", Text, nullable=False),
    time_column("announced_at"),
    UniqueConstraint("route", "key"),
    comment="What people and pipelines say that a route runs from now on.",
)

bump_verdicts = Table(
    "bump_verdicts",
    metadata,
    id_column(),
    Column("route", Text, nullable=False),
    Column("announcement_id", BigInteger, ForeignKey("announcements.id"), comment="NULL: nobody announced it."),
    Column("domains", ARRAY(Text), nullable=False),
    Column("replicas", JSONB, nullable=False, comment="Replica: since when a run of it is one after the change."),
    time_column("opened_at"),
    time_column("due_at"),
    time_column("decided_at", nullable=True),
    Column("document", JSONB, comment="What was told, once decided."),
)
Index("ix_bump_verdicts_route_id", bump_verdicts.c.route, bump_verdicts.c.id)
Index("ix_bump_verdicts_waiting", bump_verdicts.c.route, postgresql_where=text("decided_at IS NULL"))

bumps = Table(
    "bumps",
    metadata,
    id_column(),
    Column("route", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("run_id", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("from_identity_id", BigInteger, ForeignKey("identities.id"), nullable=False),
    Column("to_identity_id", BigInteger, ForeignKey("identities.id"), nullable=False),
    Column("changes", JSONB, nullable=False),
    Column("noticed_by", Text, nullable=False),
    time_column("noticed_at"),
    Column("verdict_id", BigInteger, ForeignKey("bump_verdicts.id")),
)
Index("ix_bumps_route_noticed_at", bumps.c.route, bumps.c.noticed_at)
Index("ix_bumps_verdict_id", bumps.c.verdict_id)
