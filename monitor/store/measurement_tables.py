"""Tables of what else is measured: sweeps, speedups, everybody's traffic, and the figures of other tools."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Boolean, Column, Double, Index, Integer, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.metadata import id_column, metadata, time_column

sweeps = Table(
    "sweeps",
    metadata,
    id_column(),
    Column("route", Text),
    Column("model", Text),
    time_column("started_at"),
    time_column("finished_at"),
    Column("document", JSONB, nullable=False),
)
Index("ix_sweeps_route_id", sweeps.c.route, sweeps.c.id)

speedups = Table(
    "speedups",
    metadata,
    id_column(),
    Column("key", Text, nullable=False, unique=True),
    Column("route", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("valid", Boolean, nullable=False),
    time_column("finished_at"),
    Column("document", JSONB, nullable=False),
)
Index("ix_speedups_route_domain_id", speedups.c.route, speedups.c.domain, speedups.c.id)

organic = Table(
    "organic",
    metadata,
    id_column(),
    Column("route", Text, nullable=False),
    Column("replica", Text, nullable=False),
    time_column("began_at"),
    time_column("ended_at"),
    Column("reads", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("resets", Integer, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("drafted", BigInteger, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("accepted_at", ARRAY(BigInteger), nullable=False),
    Column("generated_tokens", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("preemptions", BigInteger, nullable=False),
    Column("running_mean", Double),
    Column("running_max", Double),
    Column("waiting_max", Double),
    Column("kv_cache_usage_max", Double),
    Column("server_started_at", Double),
    Column("last_failure", Text),
    comment="What replicas did for everybody, by their counters, a row per replica and ten minutes.",
)
Index("ix_organic_route_began_at", organic.c.route, organic.c.began_at)

reference_lines = Table(
    "reference_lines",
    metadata,
    id_column(),
    Column("route", Text),
    Column("file_name", Text, nullable=False),
    Column("file_hash", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("domain", Text),
    Column("model", Text),
    Column("label", Text),
    Column("k", Integer),
    Column("acceptance_length", Double, nullable=False),
    Column("acceptance_rate", Double),
    Column("survival", ARRAY(Double), nullable=False),
    Column("steps", BigInteger),
    time_column("imported_at"),
    comment="Figures of other tools; shown beside ours and read by nothing that judges.",
)
Index("ix_reference_lines_route", reference_lines.c.route)
