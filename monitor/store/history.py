"""Historical figures by route and domain: two queries over indexes that hold every column they need, and a few rows.

What verdicts said of the same runs is a second query, so that runs nobody judged are read as fast as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, case, cast, func, literal_column, select

from monitor.core.figures import HISTORY_METRICS
from monitor.store.events import mark_events
from monitor.store.schema import identities, runs, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select

WORK_MEMORY = "32MB"
"""For the transaction that asks: with Postgres' default of 4 MB a year of one route is sorted on disk, not hashed."""
NOT_JUDGED: dict[str, Any] = {
    "runs_judged": 0,
    "rule": None,
    "metric": None,
    "baseline_id": None,
    "baseline_value": None,
    "change": None,
}


def history(
    connection: Connection,
    route: str,
    *,
    domain: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    group_by: str = "run",
    zone: str = "UTC",
) -> list[dict[str, Any]]:
    """Rows oldest first, one per bucket, domain, source and K: figures of different sources or K are never pooled.

    Counts are pooled over the valid runs of a bucket (token-weighted); prompt means and times are averages over runs.
    What was judged is of the last baseline that judged runs of the bucket, by the rule that saw the largest fall.
    `zone` is the IANA name that hours, days and weeks begin in. By identity rows have the identity, by run the events.
    """
    connection.execute(select(func.set_config("work_mem", WORK_MEMORY, True)))
    asked = (route, domain, since, until, group_by, zone)
    judged = _last_baseline(connection.execute(judged_statement(*asked)).all())
    found = connection.execute(history_statement(*asked)).all()
    rows = [{**_document(row, group_by), **judged.get(_key(row), NOT_JUDGED)} for row in found]
    if group_by == "identity":
        _name_identities(connection, rows)
    if group_by == "run":
        mark_events(connection, route, rows, since, until)
    return rows


def history_statement(
    route: str,
    domain: str | None,
    since: datetime | None,
    until: datetime | None,
    group_by: str,
    zone: str,
) -> Select[Any]:
    """Guarantee: reads only ix_runs_route_started_at (its plan is tested), so 90 days cost one index range."""
    c = runs.c
    bucket = _bucket(group_by, zone)
    keys = [bucket, c.domain, c.source, c.k]
    steps, accepted, decode_steps = _sum(c.steps), _sum(c.accepted), _sum(c.decode_steps)
    accepted_of_drafted = _sum(c.accepted, c.drafted.is_not(None))
    statement = (
        select(
            bucket.label("bucket"),
            c.domain,
            c.source,
            c.k,
            func.min(c.started_at).label("first_at"),
            func.max(c.started_at).label("last_at"),
            case((func.min(c.identity_id) == func.max(c.identity_id), func.min(c.identity_id))).label("identity_id"),
            func.count().filter(c.valid).label("runs_valid"),
            func.count().label("runs_total"),
            (1 + accepted / func.nullif(steps, 0)).label("acceptance_length"),
            func.avg(c.acceptance_length_prompt_mean).filter(c.valid).label("acceptance_length_prompt_mean"),
            (accepted_of_drafted / func.nullif(_sum(c.drafted), 0)).label("acceptance_rate"),
            ((_sum(c.completion_tokens) - _sum(c.requests)) / func.nullif(decode_steps, 0)).label("tokens_per_step"),
            case((c.source != "stream", func.least(1.0, steps / func.nullif(decode_steps, 0)))).label("coverage"),
            func.avg(c.ttft_seconds_p50).filter(c.valid).label("ttft_seconds_p50"),
            func.avg(c.tokens_per_second_p50).filter(c.valid).label("tokens_per_second_p50"),
        )
        .group_by(*keys)
        .order_by(literal_column("first_at"), c.domain)
    )
    return _within(statement, route, domain, since, until)


def judged_statement(
    route: str,
    domain: str | None,
    since: datetime | None,
    until: datetime | None,
    group_by: str,
    zone: str,
) -> Select[Any]:
    """What rules said of each run alone, per rule and baseline: geometric means over the judged runs of a bucket.

    Guarantee: reads only ix_runs_route_started_at and ix_verdicts_run_id (its plan is tested).
    """
    c = runs.c
    bucket = _bucket(group_by, zone)
    statement = (
        select(
            bucket.label("bucket"),
            c.domain,
            c.source,
            c.k,
            verdicts.c.rule,
            verdicts.c.metric,
            verdicts.c.baseline_id,
            func.count().label("runs_judged"),
            func.max(c.id).label("last_run_id"),
            func.exp(func.avg(func.ln(verdicts.c.baseline_value))).label("baseline_value"),
            (func.exp(func.avg(func.ln(1 + verdicts.c.change))) - 1).label("change"),
        )
        .join(verdicts, verdicts.c.run_id == c.id)
        .where(verdicts.c.trip_id.is_(None), verdicts.c.change.is_not(None))
        .group_by(bucket, c.domain, c.source, c.k, verdicts.c.rule, verdicts.c.metric, verdicts.c.baseline_id)
    )
    return _within(statement, route, domain, since, until)


def _within(
    statement: Select[Any], route: str, domain: str | None, since: datetime | None, until: datetime | None
) -> Select[Any]:
    statement = statement.where(runs.c.route == route)
    if domain is not None:
        statement = statement.where(runs.c.domain == domain)
    if since is not None:
        statement = statement.where(runs.c.started_at >= since)
    if until is not None:
        statement = statement.where(runs.c.started_at < until)
    return statement


def _sum(column: ColumnElement[Any], *where: ColumnElement[bool]) -> ColumnElement[Any]:
    """Over valid runs, as a float: counts stay far below 2^53, and exact numerics are slow to divide and to read."""
    return cast(func.sum(column).filter(runs.c.valid, *where), Double)


def _bucket(group_by: str, zone: str) -> ColumnElement[Any]:
    if group_by == "run":
        return runs.c.id
    if group_by == "identity":
        return runs.c.identity_id
    return func.date_trunc(group_by, runs.c.started_at, zone)


def _key(row: Row[Any]) -> tuple[Any, ...]:
    return (row.bucket, row.domain, row.source, row.k)


def _last_baseline(found: Sequence[Row[Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Bucket → what its last baseline says of it: comparisons with different baselines are not pooled either."""
    ordered = sorted(found, key=lambda row: (row.last_run_id, row.baseline_id, -row.change))
    return {_key(row): {name: getattr(row, name) for name in NOT_JUDGED} for row in ordered}


def _name_identities(connection: Connection, rows: list[dict[str, Any]]) -> None:
    statement = select(identities.c.id, identities.c.document)
    wanted = statement.where(identities.c.id.in_({row["bucket"] for row in rows}))
    documents = {row.id: row.document for row in connection.execute(wanted)}
    for row in rows:
        row["identity"] = documents[row["bucket"]]


def _document(row: Row[Any], group_by: str) -> dict[str, Any]:
    return {
        "bucket": row.bucket.isoformat() if hasattr(row.bucket, "isoformat") else row.bucket,
        "group_by": group_by,
        "domain": row.domain,
        "source": row.source,
        "k": row.k,
        "first_at": row.first_at.isoformat(),
        "last_at": row.last_at.isoformat(),
        "identity_id": row.identity_id,
        "runs_valid": row.runs_valid,
        "runs_total": row.runs_total,
        **{metric: getattr(row, metric) for metric in HISTORY_METRICS},
    }
