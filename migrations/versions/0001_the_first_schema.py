"""The first schema: runs and samples, baselines and verdicts, incidents and the outbox."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identities",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
        sa.UniqueConstraint("hash", name=op.f("uq_identities_hash")),
    )
    op.create_table(
        "incidents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("domains", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    op.create_index(
        "uq_incidents_open",
        "incidents",
        ["route", "kind"],
        unique=True,
        postgresql_where=sa.text("resolved_at IS NULL"),
    )
    op.create_table(
        "slots",
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("slot", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("route", "domain", name=op.f("pk_slots")),
        comment="The last slot queued per route and domain: a slot is queued once, whoever schedules.",
    )
    op.create_table(
        "baselines",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("prompt_set_hash", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=True),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("sampling", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("identity_id", sa.BigInteger(), nullable=False),
        sa.Column("run_ids", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column(
            "metrics",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="Per metric: values, spreads, run_sigma, runs.",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["identity_id"], ["identities.id"], name=op.f("fk_baselines_identity_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baselines")),
    )
    op.create_index("ix_baselines_route_domain", "baselines", ["route", "domain"], unique=False)
    op.execute(
        """
        CREATE FUNCTION refuse_to_change_baselines() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'baseline % is immutable: create another and approve it', OLD.id;
        END $$;
        CREATE TRIGGER baselines_are_immutable BEFORE UPDATE OR DELETE ON baselines FOR EACH ROW
        WHEN (current_setting('specwatch.forget_route', true) IS DISTINCT FROM OLD.route)
        EXECUTE FUNCTION refuse_to_change_baselines();
        """
    )
    op.create_table(
        "incident_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        sa.Column("transition", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("happened_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], name=op.f("fk_incident_events_incident_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident_events")),
    )
    op.create_index("ix_incident_events_incident_id", "incident_events", ["incident_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column(
            "key", sa.Text(), nullable=False, comment="Names the job that made it: a repeated job stores nothing."
        ),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "trip_id",
            sa.BigInteger(),
            nullable=True,
            comment="The trip this run confirms; no foreign key, since a trip names a run itself.",
        ),
        sa.Column("identity_id", sa.BigInteger(), nullable=False),
        sa.Column("prompt_set_hash", sa.Text(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("sampling", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("invalid_reason", sa.Text(), nullable=True),
        sa.Column("invalid_detail", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("k", sa.Integer(), nullable=True),
        sa.Column("acceptance_length", sa.Double(), nullable=True),
        sa.Column("acceptance_length_prompt_mean", sa.Double(), nullable=True),
        sa.Column("acceptance_rate", sa.Double(), nullable=True),
        sa.Column("survival", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column("tokens_per_step", sa.Double(), nullable=True),
        sa.Column("coverage", sa.Double(), nullable=True),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("drafted", sa.BigInteger(), nullable=True),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("decode_steps", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("prompts_valid", sa.Integer(), nullable=False),
        sa.Column("prompts_total", sa.Integer(), nullable=False),
        sa.Column("invalid_reasons", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("ttft_seconds_p50", sa.Double(), nullable=True),
        sa.Column("ttft_seconds_p95", sa.Double(), nullable=True),
        sa.Column("tokens_per_second_p50", sa.Double(), nullable=True),
        sa.Column("tokens_per_second_p95", sa.Double(), nullable=True),
        sa.Column(
            "judged_metric",
            sa.Text(),
            nullable=True,
            comment="Of the verdict on this run alone that saw the largest fall; else NULL.",
        ),
        sa.Column(
            "baseline_id",
            sa.BigInteger(),
            nullable=True,
            comment="It judged the run; no foreign key, since a baseline names runs itself.",
        ),
        sa.Column("baseline_value", sa.Double(), nullable=True),
        sa.Column("change", sa.Double(), nullable=True),
        sa.Column("regime", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("warnings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["identity_id"], ["identities.id"], name=op.f("fk_runs_identity_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("key", name=op.f("uq_runs_key")),
    )
    op.create_index("ix_runs_route_domain_id", "runs", ["route", "domain", "id"], unique=False)
    op.create_index(
        "ix_runs_route_started_at",
        "runs",
        ["route", "started_at"],
        unique=False,
        postgresql_include=(
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
        ),
    )
    op.create_index(
        "ix_runs_invalid", "runs", ["route", "domain", "id"], unique=False, postgresql_where=sa.text("NOT valid")
    )
    op.create_index("ix_runs_route_replica_id", "runs", ["route", "replica", "id"], unique=False)
    op.create_index(
        "ix_runs_trip_id", "runs", ["trip_id"], unique=False, postgresql_where=sa.text("trip_id IS NOT NULL")
    )
    op.create_table(
        "bumps",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("from_identity_id", sa.BigInteger(), nullable=False),
        sa.Column("to_identity_id", sa.BigInteger(), nullable=False),
        sa.Column("changes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("noticed_by", sa.Text(), nullable=False),
        sa.Column("noticed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["from_identity_id"], ["identities.id"], name=op.f("fk_bumps_from_identity_id")),
        sa.ForeignKeyConstraint(["to_identity_id"], ["identities.id"], name=op.f("fk_bumps_to_identity_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_bumps_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bumps")),
    )
    op.create_index("ix_bumps_route_noticed_at", "bumps", ["route", "noticed_at"], unique=False)
    op.create_table(
        "baseline_approvals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("baseline_id", sa.BigInteger(), nullable=False),
        sa.Column("approved_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["baseline_id"], ["baselines.id"], name=op.f("fk_baseline_approvals_baseline_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baseline_approvals")),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["event_id"], ["incident_events.id"], name=op.f("fk_deliveries_event_id")),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], name=op.f("fk_deliveries_incident_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("event_id", "receiver", name=op.f("uq_deliveries_event_id_receiver")),
    )
    op.create_index("ix_deliveries_incident_id", "deliveries", ["incident_id"], unique=False)
    op.create_index(
        "ix_deliveries_pending", "deliveries", ["due_at"], unique=False, postgresql_where=sa.text("state = 'pending'")
    )
    op.create_table(
        "samples",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("k", sa.Integer(), nullable=True),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("drafted", sa.Integer(), nullable=True),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("histogram", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("decode_steps", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("cached_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("ttft_seconds", sa.Double(), nullable=True),
        sa.Column("decode_seconds", sa.Double(), nullable=True),
        sa.Column("decode_tokens", sa.Integer(), nullable=False),
        sa.Column("total_seconds", sa.Double(), nullable=True),
        sa.Column(
            "turn_chunks", postgresql.ARRAY(sa.SmallInteger()), nullable=False, comment="Token-bearing chunks per turn."
        ),
        sa.Column(
            "chunk_tokens",
            postgresql.ARRAY(sa.Integer()),
            nullable=False,
            comment="Of all turns, one after the other.",
        ),
        sa.Column(
            "chunk_seconds", postgresql.ARRAY(sa.REAL()), nullable=False, comment="Since the turn's request was sent."
        ),
        sa.Column("loop_lag_seconds", sa.Double(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("output_hash", sa.Text(), nullable=True),
        sa.Column("invalid_reason", sa.Text(), nullable=True),
        sa.Column("invalid_detail", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_samples_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("pk_samples")),
    )
    op.create_table(
        "trips",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("rules", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("baseline_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("confirmations_queued", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["baseline_id"], ["baselines.id"], name=op.f("fk_trips_baseline_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_trips_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trips")),
    )
    op.create_index(
        "uq_trips_pending",
        "trips",
        ["route", "domain"],
        unique=True,
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "verdicts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("trip_id", sa.BigInteger(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_verdicts_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trip_id"], ["trips.id"], name=op.f("fk_verdicts_trip_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
    )
    op.create_index("ix_verdicts_run_id", "verdicts", ["run_id"], unique=False)
