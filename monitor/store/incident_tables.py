"""Tables of incidents: what happened to them, what people did, who was told of it and who was not."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.metadata import id_column, metadata, time_column

incidents = Table(
    "incidents",
    metadata,
    id_column(),
    Column("route", Text, nullable=False, comment="`receiver NAME` where it is of a receiver."),
    Column("kind", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("domains", JSONB, nullable=False),
    time_column("opened_at"),
    time_column("resolved_at", nullable=True),
)
Index(
    "uq_incidents_open",
    incidents.c.route,
    incidents.c.kind,
    unique=True,
    postgresql_where=text("resolved_at IS NULL"),
)

incident_events = Table(
    "incident_events",
    metadata,
    id_column(),
    Column("incident_id", BigInteger, ForeignKey("incidents.id"), comment="NULL where it is about a bump."),
    Column("transition", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    time_column("happened_at"),
    time_column("due_at", nullable=True),
    Column("bump_verdict_id", BigInteger, ForeignKey("bump_verdicts.id")),
)
Index("ix_incident_events_incident_id", incident_events.c.incident_id)

incident_acts = Table(
    "incident_acts",
    metadata,
    id_column(),
    Column("incident_id", BigInteger, ForeignKey("incidents.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("done_by", Text, nullable=False),
    Column("text", Text),
    time_column("done_at"),
    comment="What people did about an incident: acknowledgements and notes.",
)
Index("ix_incident_acts_incident_id", incident_acts.c.incident_id)

silences = Table(
    "silences",
    metadata,
    id_column(),
    Column("created_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    time_column("created_at"),
    time_column("ends_at"),
    Column("route", Text),
    Column("labels", JSONB, nullable=False),
    Column("severity", Text),
    time_column("ended_at", nullable=True),
    Column("ended_by", Text),
    Column("end_told_at", DateTime(timezone=True), comment="When its end was told ahead, of what still fired then."),
)

deliveries = Table(
    "deliveries",
    metadata,
    id_column(),
    Column("event_id", BigInteger, ForeignKey("incident_events.id"), nullable=False),
    Column("incident_id", BigInteger, ForeignKey("incidents.id"), comment="NULL where it is about a bump."),
    Column("receiver", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    time_column("due_at"),
    time_column("lease_until", nullable=True),
    Column("last_error", Text),
    time_column("sent_at", nullable=True),
    Column("silence_id", BigInteger, ForeignKey("silences.id"), comment="It holds the message, or held it."),
    UniqueConstraint("event_id", "receiver"),
)
Index(
    "ix_deliveries_pending",
    deliveries.c.due_at,
    postgresql_where=text("state = 'pending'"),
)
Index("ix_deliveries_incident_id", deliveries.c.incident_id)
Index("ix_deliveries_dead", deliveries.c.receiver, postgresql_where=text("state = 'dead'"))
Index("ix_deliveries_silenced", deliveries.c.incident_id, postgresql_where=text("state = 'silenced'"))
