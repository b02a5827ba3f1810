"""Historical figures by route and domain: one query over an index that holds every column it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Double, case, cast, func, literal_column, select

from monitor.core.figures import HISTORY_METRICS
from monitor.store.events import mark_events
from monitor.store.schema import identities, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select

POOLED_BY: tuple[ColumnElement[Any], ...] = (
    runs.c.domain,
    runs.c.source,
    runs.c.k,
    runs.c.conditions,
    identities.c.document["method"].astext.label("method"),
    identities.c.document["drafter"].astext.label("drafter"),
)
"""Runs that differ in one of these are not comparable, and so in no figure together."""
WORK_MEMORY = "32MB"
"""For the transaction that asks: with Postgres' default of 4 MB a year of one route is sorted on disk, not hashed."""


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
    """Rows oldest first, one per bucket, domain and whatever else makes runs comparable, which is never pooled over:
    source, K, prompt set, concurrency, sampling with its cache pass, method and drafter.

    Counts are pooled over the valid runs of a bucket (token-weighted); prompt means and times are averages over runs.
    Of what was judged a bucket has the geometric mean over its runs, unless several baselines or metrics judged them.
    `zone` is the IANA name that hours, days and weeks begin in. By identity rows have the identity, by run the events.
    """
    connection.execute(select(func.set_config("work_mem", WORK_MEMORY, True)))
    statement = history_statement(route, domain, since, until, group_by, zone)
    found = connection.execute(statement).all()
    conditions = conditions_of(connection, found)
    rows = [_document(row, group_by, conditions[row.conditions]) for row in found]
    _add_identities(connection, route, group_by, zone, list(zip(found, rows, strict=True)))
    if group_by == "identity":
        _name_identities(connection, rows)
    if group_by == "run":
        _add_warm(connection, route, rows, domain, since, until)
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
    """Guarantee: of runs it reads only ix_runs_route_started_at (its plan is tested): 90 days are one index range."""
    c = runs.c
    bucket = bucket_column(group_by, zone)
    steps, accepted, decode_steps = _sum(c.steps), _sum(c.accepted), _sum(c.decode_steps)
    accepted_of_drafted = _sum(c.accepted, c.drafted.is_not(None))
    statement = (
        select(
            bucket.label("bucket"),
            *POOLED_BY,
            func.min(c.id).label("first_id"),
            func.min(c.started_at).label("first_at"),
            func.max(c.started_at).label("last_at"),
            _only(c.identity_id).label("identity_id"),
            func.count().filter(c.valid).label("runs_valid"),
            func.count().label("runs_total"),
            (1 + accepted / func.nullif(steps, 0)).label("acceptance_length"),
            func.avg(c.acceptance_length_prompt_mean).filter(c.valid).label("acceptance_length_prompt_mean"),
            (accepted_of_drafted / func.nullif(_sum(c.drafted), 0)).label("acceptance_rate"),
            ((_sum(c.completion_tokens) - _sum(c.requests)) / func.nullif(decode_steps, 0)).label("tokens_per_step"),
            case((c.source != "stream", func.least(1.0, steps / func.nullif(decode_steps, 0)))).label("coverage"),
            func.avg(c.ttft_seconds_p50).filter(c.valid).label("ttft_seconds_p50"),
            func.avg(c.tokens_per_second_p50).filter(c.valid).label("tokens_per_second_p50"),
            func.count(c.change).label("runs_judged"),
            _only(c.judged_metric).label("metric"),
            _only(c.baseline_id).label("baseline_id"),
            func.exp(func.avg(func.ln(c.baseline_value))).label("baseline_value"),
            func.exp(func.avg(func.ln(1 + c.change))).label("ratio"),
        )
        .join(identities, identities.c.id == c.identity_id)
        .where(c.route == route)
        .group_by(bucket, *POOLED_BY)
        .order_by(literal_column("first_at"), c.domain, literal_column("first_id"))
    )
    return in_window(statement, domain, since, until)


def in_window(
    statement: Select[Any], domain: str | None, since: datetime | None, until: datetime | None
) -> Select[Any]:
    """Of runs: those of the domain that began in the window; None: of all, without that end."""
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


def _only(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The value that all runs of the bucket have that have one; NULL where they have several."""
    return case((func.min(column) == func.max(column), func.min(column)))


def bucket_column(group_by: str, zone: str) -> ColumnElement[Any]:
    """What runs are pooled by."""
    if group_by == "run":
        return runs.c.id
    if group_by == "identity":
        return runs.c.identity_id
    return func.date_trunc(group_by, runs.c.started_at, zone)


def conditions_of(connection: Connection, rows: Iterable[Row[Any]]) -> dict[str, dict[str, Any]]:
    """What the `conditions` of pooled rows stand for, looked up at one run of each, their `first_id`."""
    c = runs.c
    shown = select(c.conditions, c.prompt_set_hash, c.concurrency, c.sampling)
    wanted = {row.conditions: row.first_id for row in rows}
    return {
        row.conditions: {
            "prompt_set_hash": row.prompt_set_hash,
            "concurrency": row.concurrency,
            "sampling": row.sampling,
        }
        for row in connection.execute(shown.where(c.id.in_(wanted.values())))
    }


def _add_identities(
    connection: Connection,
    route: str,
    group_by: str,
    zone: str,
    rows: Sequence[tuple[Row[Any], dict[str, Any]]],
) -> None:
    """Which identities the valid runs of each row have: asked once more only of rows that may pool several."""
    for row, document in rows:
        document["identity_ids"] = [row.identity_id] if row.identity_id is not None and row.runs_valid else []
    mixed = [row for row, _ in rows if row.identity_id is None]
    if not mixed:
        return
    several = {_key(row): document for row, document in rows if row.identity_id is None}
    c, first, last = runs.c, min(row.first_at for row in mixed), max(row.last_at for row in mixed)
    statement = select(bucket_column(group_by, zone).label("bucket"), *POOLED_BY, c.identity_id).distinct()
    statement = statement.join(identities, identities.c.id == c.identity_id)
    in_rows = statement.where(c.route == route, c.valid, c.started_at.between(first, last))
    for found in connection.execute(in_rows):
        if _key(found) in several:
            several[_key(found)]["identity_ids"].append(found.identity_id)
    for document in several.values():
        document["identity_ids"].sort()


def _key(row: Any) -> tuple[Any, ...]:
    return (row.bucket, *(getattr(row, column.key or "") for column in POOLED_BY))


def _name_identities(connection: Connection, rows: list[dict[str, Any]]) -> None:
    statement = select(identities.c.id, identities.c.document)
    wanted = statement.where(identities.c.id.in_({row["bucket"] for row in rows}))
    documents = {row.id: row.document for row in connection.execute(wanted)}
    for row in rows:
        row["identity"] = documents[row["bucket"]]


def _add_warm(
    connection: Connection,
    route: str,
    rows: list[dict[str, Any]],
    domain: str | None,
    since: datetime | None,
    until: datetime | None,
) -> None:
    """What the warm pass gave, where a run had one: not in the index that the figures are read from.

    By window and not by id: half a year of a route has more runs than a statement may have parameters.
    """
    wanted = select(runs.c.id, runs.c.warm).where(runs.c.route == route, runs.c.warm.is_not(None))
    found = {row.id: row.warm for row in connection.execute(in_window(wanted, domain, since, until))}
    for row in rows:
        row["warm"] = found.get(row["bucket"])


def _document(row: Any, group_by: str, conditions: dict[str, Any]) -> dict[str, Any]:
    return {
        "bucket": row.bucket.isoformat() if hasattr(row.bucket, "isoformat") else row.bucket,
        "group_by": group_by,
        "domain": row.domain,
        "source": row.source,
        "k": row.k,
        "method": row.method,
        "drafter": row.drafter,
        **conditions,
        "first_at": row.first_at.isoformat(),
        "last_at": row.last_at.isoformat(),
        "identity_id": row.identity_id,
        "runs_valid": row.runs_valid,
        "runs_total": row.runs_total,
        **{metric: getattr(row, metric) for metric in HISTORY_METRICS},
        **_judged(row),
    }


def _judged(row: Any) -> dict[str, Any]:
    """What judging saw, in the words of a verdict; changes from different baselines have no mean."""
    comparable = row.metric is not None and row.baseline_id is not None
    return {
        "runs_judged": row.runs_judged,
        "metric": row.metric,
        "baseline_id": row.baseline_id,
        "value": row.baseline_value * row.ratio if comparable else None,
        "baseline_value": row.baseline_value if comparable else None,
        "change": row.ratio - 1 if comparable else None,
    }
