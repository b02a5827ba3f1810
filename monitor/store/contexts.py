"""History by length of context: one query over samples, since runs hold only what is pooled over all lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, Integer, and_, case, cast, exists, func, literal_column, select

from monitor.core.contexts import EDGES_TOKENS, HISTORY_METRICS, edges_of
from monitor.store.history import POOLED_BY, WORK_MEMORY, bucket_column, conditions_of, in_window
from monitor.store.schema import identities, runs, samples

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select


def history_by_context(
    connection: Connection,
    route: str,
    *,
    domain: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    group_by: str = "run",
    zone: str = "UTC",
) -> list[dict[str, Any]]:
    """As `history`, with a row for every bucket of prompt tokens, over the valid samples of valid runs.

    Reads the samples themselves, so that a long window takes longer than by `history`.
    """
    connection.execute(select(func.set_config("work_mem", WORK_MEMORY, True)))
    statement = _statement(route, domain, since, until, bucket_column(group_by, zone))
    found = connection.execute(statement).all()
    conditions = conditions_of(connection, found)
    return [_document(row, group_by, conditions[row.conditions]) for row in found]


def runs_without_samples(
    connection: Connection, route: str, domain: str | None, since: datetime | None, until: datetime | None
) -> int:
    """How many valid runs of the window have no samples any more, and so are in no row."""
    has_samples = exists().where(samples.c.run_id == runs.c.id)
    statement = select(func.count()).select_from(runs).where(runs.c.route == route, runs.c.valid, ~has_samples)
    return connection.execute(in_window(statement, domain, since, until)).scalar_one()


def _statement(
    route: str, domain: str | None, since: datetime | None, until: datetime | None, bucket: ColumnElement[Any]
) -> Select[Any]:
    c, s = runs.c, samples.c
    turns = func.greatest(1, func.cardinality(s.turn_chunks))
    context = func.width_bucket(s.prompt_tokens / turns, cast(list(EDGES_TOKENS), s.histogram.type))
    steps, accepted, decode_steps = _sum(s.steps), _sum(s.accepted), _sum(s.decode_steps)
    accepted_of_drafted = cast(func.sum(s.accepted).filter(s.drafted.is_not(None)), Double)
    statement = (
        select(
            bucket.label("bucket"),
            cast(context, Integer).label("context"),
            *POOLED_BY,
            func.min(c.id).label("first_id"),
            func.min(c.started_at).label("first_at"),
            func.max(c.started_at).label("last_at"),
            func.array_agg(c.identity_id.distinct()).label("identity_ids"),
            func.count(c.id.distinct()).label("runs"),
            func.count(s.question_id.distinct()).label("prompts"),
            (1 + accepted / func.nullif(steps, 0)).label("acceptance_length"),
            func.avg(1 + cast(s.accepted, Double) / func.nullif(s.steps, 0)).label("acceptance_length_prompt_mean"),
            (accepted_of_drafted / func.nullif(_sum(s.drafted), 0)).label("acceptance_rate"),
            ((_sum(s.completion_tokens) - _sum(turns)) / func.nullif(decode_steps, 0)).label("tokens_per_step"),
            case((c.source != "stream", func.least(1.0, steps / func.nullif(decode_steps, 0)))).label("coverage"),
            *(func.sum(column).label(column.name) for column in (s.steps, s.drafted, s.accepted)),
        )
        .select_from(runs)
        .join(identities, identities.c.id == c.identity_id)
        .join(samples, and_(s.run_id == c.id, s.invalid_reason.is_(None), s.prompt_tokens.is_not(None)))
        .where(c.route == route, c.valid)
        .group_by("bucket", "context", *POOLED_BY)
        .order_by(literal_column("first_at"), c.domain, literal_column("context"), literal_column("first_id"))
    )
    return in_window(statement, domain, since, until)


def _sum(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return cast(func.sum(column), Double)


def _document(row: Row[Any], group_by: str, conditions: dict[str, Any]) -> dict[str, Any]:
    low, high = edges_of(row.context)
    return {
        "bucket": row.bucket.isoformat() if hasattr(row.bucket, "isoformat") else row.bucket,
        "group_by": group_by,
        "from_tokens": low,
        "to_tokens": high,
        "domain": row.domain,
        "source": row.source,
        "k": row.k,
        "method": row.method,
        "drafter": row.drafter,
        **conditions,
        "first_at": row.first_at.isoformat(),
        "last_at": row.last_at.isoformat(),
        "identity_ids": sorted(row.identity_ids),
        "runs": row.runs,
        "prompts": row.prompts,
        **{name: getattr(row, name) for name in HISTORY_METRICS},
        "steps": row.steps,
        "drafted": row.drafted,
        "accepted": row.accepted,
    }
