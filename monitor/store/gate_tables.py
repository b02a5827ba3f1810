"""Tables of gates: what was asked and decided, and what is let through all the same."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, ForeignKey, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.metadata import id_column, metadata, time_column

gates = Table(
    "gates",
    metadata,
    id_column(),
    Column("route", Text),
    Column("verdict", Text),
    time_column("finished_at", nullable=True),
    Column("document", JSONB, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'done'")),
    Column("asked", JSONB),
    Column("asked_by", Text),
    time_column("asked_at", nullable=True),
    Column("key", Text),
    Column("servers", ARRAY(Text)),
    time_column("lease_until", nullable=True),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
)
Index("ix_gates_route_id", gates.c.route, gates.c.id)
Index("ix_gates_asked_by_key", gates.c.asked_by, gates.c.key)

gate_waivers = Table(
    "gate_waivers",
    metadata,
    id_column(),
    Column("gate_id", BigInteger, ForeignKey("gates.id"), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    time_column("created_at"),
    time_column("ends_at"),
)
Index("ix_gate_waivers_gate_id", gate_waivers.c.gate_id)
