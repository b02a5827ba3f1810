"""Conditions of a run: one short word for prompt set, concurrency and sampling, in the index that history reads."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

HISTORY_COLUMNS = [
    "id", "domain", "valid", "source", "k", "steps", "drafted", "accepted", "decode_steps", "completion_tokens",
    "requests", "acceptance_length_prompt_mean", "ttft_seconds_p50", "tokens_per_second_p50", "identity_id",
    "judged_metric", "baseline_id", "baseline_value", "change", "conditions",
]  # fmt: skip


def upgrade() -> None:
    conditions = "md5(prompt_set_hash || ' '::text || concurrency::text || ' '::text || sampling::text)"
    op.add_column("runs", sa.Column("conditions", sa.Text(), sa.Computed(conditions, persisted=True), nullable=False))
    op.drop_index("ix_runs_route_started_at", table_name="runs")
    op.create_index("ix_runs_route_started_at", "runs", ["route", "started_at"], postgresql_include=HISTORY_COLUMNS)
