"""Tables of what is probed: slots, identities, runs and their samples."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Boolean,
    Column,
    Computed,
    Double,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.metadata import id_column, metadata, time_column

slots = Table(
    "slots",
    metadata,
    Column("route", Text, primary_key=True),
    Column("domain", Text, primary_key=True),
    time_column("slot"),
    comment="The last slot queued per route and domain: a slot is queued once, whoever schedules.",
)

identities = Table(
    "identities",
    metadata,
    id_column(),
    Column("hash", Text, nullable=False, unique=True),
    Column("document", JSONB, nullable=False),
    time_column("first_seen_at"),
)

runs = Table(
    "runs",
    metadata,
    id_column(),
    Column(
        "key", Text, nullable=False, unique=True, comment="Names the job that made it: a repeated job stores nothing."
    ),
    Column("route", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column(
        "trip_id", BigInteger, comment="The trip this run confirms; no foreign key, since a trip names a run itself."
    ),
    Column("identity_id", BigInteger, ForeignKey("identities.id"), nullable=False),
    Column("prompt_set_hash", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("sampling", JSONB, nullable=False),
    time_column("started_at"),
    time_column("finished_at"),
    Column("valid", Boolean, nullable=False),
    Column("invalid_reason", Text),
    Column("invalid_detail", Text),
    Column("source", Text),
    Column("k", Integer),
    Column("acceptance_length", Double),
    Column("acceptance_length_prompt_mean", Double),
    Column("acceptance_rate", Double),
    Column("survival", ARRAY(Double), nullable=False),
    Column("tokens_per_step", Double),
    Column("coverage", Double),
    Column("steps", BigInteger, nullable=False),
    Column("drafted", BigInteger),
    Column("accepted", BigInteger, nullable=False),
    Column("decode_steps", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("requests", Integer, nullable=False),
    Column("prompts_valid", Integer, nullable=False),
    Column("prompts_total", Integer, nullable=False),
    Column("invalid_reasons", JSONB, nullable=False),
    Column("ttft_seconds_p50", Double),
    Column("ttft_seconds_p95", Double),
    Column("tokens_per_second_p50", Double),
    Column("tokens_per_second_p95", Double),
    Column("judged_metric", Text, comment="Of the verdict on this run alone that saw the largest fall; else NULL."),
    Column("baseline_id", BigInteger, comment="It judged the run; no foreign key, since a baseline names runs itself."),
    Column("baseline_value", Double),
    Column("change", Double),
    Column("regime", JSONB, nullable=False),
    Column("warnings", JSONB, nullable=False),
    Column("acceptance_by_source", JSONB, nullable=False, server_default=text("'{}'")),
    Column("warm", JSONB(none_as_null=True), comment="Of the warm pass, where the run had one beside the cold one."),
    Column(
        "conditions",
        Text,
        Computed(
            "md5(prompt_set_hash || ' '::text || concurrency::text || ' '::text || sampling::text)", persisted=True
        ),
        nullable=False,
    ),
)
SERVING = runs.c.reason != "gate"
"""Runs of what served the route: the candidate of a gate, whose runs are kept where it was promoted, did not yet."""
HISTORY_COLUMNS = (
    "id",
    "domain",
    "valid",
    "source",
    "k",
    "steps",
    "drafted",
    "accepted",
    "decode_steps",
    "completion_tokens",
    "requests",
    "acceptance_length_prompt_mean",
    "ttft_seconds_p50",
    "tokens_per_second_p50",
    "identity_id",
    "judged_metric",
    "baseline_id",
    "baseline_value",
    "change",
    "conditions",
)
Index(
    "ix_runs_route_started_at",
    runs.c.route,
    runs.c.started_at,
    postgresql_include=HISTORY_COLUMNS,
)
Index("ix_runs_route_domain_id", runs.c.route, runs.c.domain, runs.c.id)
Index("ix_runs_invalid", runs.c.route, runs.c.domain, runs.c.id, postgresql_where=text("NOT valid"))
Index("ix_runs_route_replica_id", runs.c.route, runs.c.replica, runs.c.id)
Index("ix_runs_trip_id", runs.c.trip_id, postgresql_where=text("trip_id IS NOT NULL"))

samples = Table(
    "samples",
    metadata,
    Column("run_id", BigInteger, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", SmallInteger, primary_key=True),
    Column("question_id", Text, nullable=False),
    Column("source", Text),
    Column("k", Integer),
    Column("steps", Integer, nullable=False),
    Column("drafted", Integer),
    Column("accepted", Integer, nullable=False),
    Column("histogram", ARRAY(Integer), nullable=False),
    Column("decode_steps", Integer, nullable=False),
    Column("prompt_tokens", Integer),
    Column("cached_prompt_tokens", Integer),
    Column("completion_tokens", Integer, nullable=False),
    Column("ttft_seconds", Double),
    Column("decode_seconds", Double),
    Column("decode_tokens", Integer, nullable=False),
    Column("total_seconds", Double),
    Column("turn_chunks", ARRAY(SmallInteger), nullable=False, comment="Token-bearing chunks per turn."),
    Column("chunk_tokens", ARRAY(Integer), nullable=False, comment="Of all turns, one after the other."),
    Column("chunk_seconds", ARRAY(REAL), nullable=False, comment="Since the turn's request was sent."),
    Column("loop_lag_seconds", Double, nullable=False),
    Column("finish_reason", Text),
    Column("output_hash", Text),
    Column("invalid_reason", Text),
    Column("invalid_detail", Text),
)
