"""The tables, as SQLAlchemy sees them; `migrations/` makes them and a test holds both equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Boolean,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

if TYPE_CHECKING:
    from datetime import datetime

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> Column[int]:
    return Column("id", BigInteger, Identity(always=True), primary_key=True)


def _time(name: str, nullable: bool = False) -> Column[datetime]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


slots = Table(
    "slots",
    metadata,
    Column("route", Text, primary_key=True),
    Column("domain", Text, primary_key=True),
    _time("slot"),
    comment="The last slot queued per route and domain: a slot is queued once, whoever schedules.",
)

identities = Table(
    "identities",
    metadata,
    _id(),
    Column("hash", Text, nullable=False, unique=True),
    Column("document", JSONB, nullable=False),
    _time("first_seen_at"),
)

runs = Table(
    "runs",
    metadata,
    _id(),
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
    _time("started_at"),
    _time("finished_at"),
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

announcements = Table(
    "announcements",
    metadata,
    _id(),
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
    _time("announced_at"),
    UniqueConstraint("route", "key"),
    comment="What people and pipelines say that a route runs from now on.",
)

bump_verdicts = Table(
    "bump_verdicts",
    metadata,
    _id(),
    Column("route", Text, nullable=False),
    Column("announcement_id", BigInteger, ForeignKey("announcements.id"), comment="NULL: nobody announced it."),
    Column("domains", ARRAY(Text), nullable=False),
    Column("replicas", JSONB, nullable=False, comment="Replica: since when a run of it is one after the change."),
    _time("opened_at"),
    _time("due_at"),
    _time("decided_at", nullable=True),
    Column("document", JSONB, comment="What was told, once decided."),
)
Index("ix_bump_verdicts_route_id", bump_verdicts.c.route, bump_verdicts.c.id)
Index("ix_bump_verdicts_waiting", bump_verdicts.c.route, postgresql_where=text("decided_at IS NULL"))

bumps = Table(
    "bumps",
    metadata,
    _id(),
    Column("route", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("run_id", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("from_identity_id", BigInteger, ForeignKey("identities.id"), nullable=False),
    Column("to_identity_id", BigInteger, ForeignKey("identities.id"), nullable=False),
    Column("changes", JSONB, nullable=False),
    Column("noticed_by", Text, nullable=False),
    _time("noticed_at"),
    Column("verdict_id", BigInteger, ForeignKey("bump_verdicts.id")),
)
Index("ix_bumps_route_noticed_at", bumps.c.route, bumps.c.noticed_at)
Index("ix_bumps_verdict_id", bumps.c.verdict_id)

baselines = Table(
    "baselines",
    metadata,
    _id(),
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
    _time("created_at"),
    Column("created_by", Text, nullable=False),
)
baseline_approvals = Table(
    "baseline_approvals",
    metadata,
    _id(),
    Column("baseline_id", BigInteger, ForeignKey("baselines.id"), nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("why", Text, nullable=False),
    _time("approved_at"),
)
Index("ix_baselines_route_domain", baselines.c.route, baselines.c.domain)

trips = Table(
    "trips",
    metadata,
    _id(),
    Column("route", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("rules", ARRAY(Text), nullable=False),
    Column("run_id", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("baseline_id", BigInteger, ForeignKey("baselines.id"), comment="NULL where only absolute rules tripped."),
    Column("state", Text, nullable=False),
    Column("confirmations_queued", Integer, nullable=False),
    _time("opened_at"),
    _time("decided_at", nullable=True),
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
    _id(),
    Column("run_id", BigInteger, ForeignKey("runs.id", ondelete="CASCADE"), comment="NULL of a verdict on a speedup."),
    Column("trip_id", BigInteger, ForeignKey("trips.id")),
    Column("rule", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    _time("judged_at"),
    Column(
        "speedup_id",
        BigInteger,
        ForeignKey("speedups.id", ondelete="CASCADE"),
        comment="NULL of a verdict on a run.",
    ),
)
Index("ix_verdicts_run_id", verdicts.c.run_id)
Index("ix_verdicts_speedup_id", verdicts.c.speedup_id, postgresql_where=text("speedup_id IS NOT NULL"))

incidents = Table(
    "incidents",
    metadata,
    _id(),
    Column("route", Text, nullable=False, comment="`receiver NAME` where it is of a receiver."),
    Column("kind", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("domains", JSONB, nullable=False),
    _time("opened_at"),
    _time("resolved_at", nullable=True),
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
    _id(),
    Column("incident_id", BigInteger, ForeignKey("incidents.id"), comment="NULL where it is about a bump."),
    Column("transition", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    _time("happened_at"),
    _time("due_at", nullable=True),
    Column("bump_verdict_id", BigInteger, ForeignKey("bump_verdicts.id")),
)
Index("ix_incident_events_incident_id", incident_events.c.incident_id)

incident_acts = Table(
    "incident_acts",
    metadata,
    _id(),
    Column("incident_id", BigInteger, ForeignKey("incidents.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("done_by", Text, nullable=False),
    Column("text", Text),
    _time("done_at"),
    comment="What people did about an incident: acknowledgements and notes.",
)
Index("ix_incident_acts_incident_id", incident_acts.c.incident_id)

silences = Table(
    "silences",
    metadata,
    _id(),
    Column("created_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    _time("created_at"),
    _time("ends_at"),
    Column("route", Text),
    Column("labels", JSONB, nullable=False),
    Column("severity", Text),
    _time("ended_at", nullable=True),
    Column("ended_by", Text),
    Column("end_told_at", DateTime(timezone=True), comment="When its end was told ahead, of what still fired then."),
)

deliveries = Table(
    "deliveries",
    metadata,
    _id(),
    Column("event_id", BigInteger, ForeignKey("incident_events.id"), nullable=False),
    Column("incident_id", BigInteger, ForeignKey("incidents.id"), comment="NULL where it is about a bump."),
    Column("receiver", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    _time("due_at"),
    _time("lease_until", nullable=True),
    Column("last_error", Text),
    _time("sent_at", nullable=True),
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

sweeps = Table(
    "sweeps",
    metadata,
    _id(),
    Column("route", Text),
    Column("model", Text),
    _time("started_at"),
    _time("finished_at"),
    Column("document", JSONB, nullable=False),
)
Index("ix_sweeps_route_id", sweeps.c.route, sweeps.c.id)

organic = Table(
    "organic",
    metadata,
    _id(),
    Column("route", Text, nullable=False),
    Column("replica", Text, nullable=False),
    _time("began_at"),
    _time("ended_at"),
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
    _id(),
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
    _time("imported_at"),
    comment="Figures of other tools; shown beside ours and read by nothing that judges.",
)
Index("ix_reference_lines_route", reference_lines.c.route)

speedups = Table(
    "speedups",
    metadata,
    _id(),
    Column("key", Text, nullable=False, unique=True),
    Column("route", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("valid", Boolean, nullable=False),
    _time("finished_at"),
    Column("document", JSONB, nullable=False),
)
Index("ix_speedups_route_domain_id", speedups.c.route, speedups.c.domain, speedups.c.id)

gates = Table(
    "gates",
    metadata,
    _id(),
    Column("route", Text),
    Column("verdict", Text),
    _time("finished_at", nullable=True),
    Column("document", JSONB, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'done'")),
    Column("asked", JSONB),
    Column("asked_by", Text),
    _time("asked_at", nullable=True),
    Column("key", Text),
    Column("servers", ARRAY(Text)),
    _time("lease_until", nullable=True),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
)
Index("ix_gates_route_id", gates.c.route, gates.c.id)
Index("ix_gates_asked_by_key", gates.c.asked_by, gates.c.key)

gate_waivers = Table(
    "gate_waivers",
    metadata,
    _id(),
    Column("gate_id", BigInteger, ForeignKey("gates.id"), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    _time("created_at"),
    _time("ends_at"),
)
Index("ix_gate_waivers_gate_id", gate_waivers.c.gate_id)
