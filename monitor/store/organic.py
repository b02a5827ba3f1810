"""Organic acceptance and load: what passive reading saw, a row per replica and ten minutes, which grows with each look.

What a row says holds from `began_at` to `ended_at`, so that one which stopped growing early is right too, only shorter.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Double, bindparam, cast, delete, func, insert, literal_column, select
from sqlalchemy.dialects.postgresql import distinct_on

from monitor.core.organic import SOURCE
from monitor.core.stale import Reading
from monitor.store.schema import organic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from monitor.core.organic import Organic


LONGEST = timedelta(hours=1)
"""No reading is longer, so that the index by when it began finds those that end after a time."""


def store_organic(connection: Connection, rows: Sequence[Organic]) -> None:
    """Each in the place of what is stored of the same replica since the same time: however often, it counts once."""
    c = organic.c
    keys = {"its_route": c.route, "its_replica": c.replica, "its_beginning": c.began_at}
    earlier = delete(organic).where(*(column == bindparam(name) for name, column in keys.items()))
    connection.execute(earlier, [dict(zip(keys, row.window, strict=True)) for row in rows])
    connection.execute(insert(organic), [{**vars(row), "accepted_at": list(row.accepted_at)} for row in rows])


def read_routes(connection: Connection) -> list[str]:
    """Routes with a reading, sorted."""
    return list(connection.execute(select(organic.c.route).distinct().order_by(organic.c.route)).scalars())


def newest_readings(connection: Connection, route: str, since: datetime) -> list[Reading]:
    """The newest of each replica that ends after then, by replica."""
    c = organic.c
    statement = (
        select(c.replica, c.reads, c.failures, c.ended_at, c.last_failure)
        .ext(distinct_on(c.replica))
        .where(c.route == route, c.began_at >= since - LONGEST, c.ended_at > since)
        .order_by(c.replica, c.id.desc())
    )
    return [Reading(**row._mapping) for row in connection.execute(statement)]


def organic_history(
    connection: Connection,
    route: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    group_by: str = "hour",
    zone: str = "UTC",
) -> list[dict[str, Any]]:
    """Rows oldest first: one per replica and reading, or one for all replicas of the route per hour, day or week.

    Acceptance is pooled over tokens of everybody's requests. `zone` is the IANA name that hours, days and weeks begin
    in.
    """
    c = organic.c
    bucket = c.began_at if group_by == "reading" else func.date_trunc(group_by, c.began_at, zone)
    keys: list[ColumnElement[Any]] = [bucket, c.replica] if group_by == "reading" else [bucket]
    steps, accepted, drafted = (cast(func.sum(column), Double) for column in (c.steps, c.accepted, c.drafted))
    statement = (
        select(
            bucket.label("bucket"),
            func.array_agg(c.replica.distinct()).label("replicas"),
            func.min(c.began_at).label("first_at"),
            func.max(c.ended_at).label("last_at"),
            func.sum(c.reads).label("reads"),
            func.sum(c.failures).label("failures"),
            func.sum(c.resets).label("resets"),
            (1 + accepted / func.nullif(steps, 0)).label("acceptance_length"),
            (accepted / func.nullif(drafted, 0)).label("acceptance_rate"),
            func.sum(c.steps).label("steps"),
            func.sum(c.generated_tokens).label("generated_tokens"),
            func.sum(c.preemptions).label("preemptions"),
            (func.sum(c.running_mean * c.reads) / func.nullif(func.sum(c.reads), 0)).label("running_mean"),
            func.max(c.running_max).label("running_max"),
            func.max(c.waiting_max).label("waiting_max"),
            func.max(c.kv_cache_usage_max).label("kv_cache_usage_max"),
        )
        .where(c.route == route)
        .group_by(*keys)
        .order_by(literal_column("first_at"), literal_column("replicas"))
    )
    if since is not None:
        statement = statement.where(c.began_at >= since)
    if until is not None:
        statement = statement.where(c.began_at < until)
    return [_document(row, group_by) for row in connection.execute(statement)]


def _document(row: Row[Any], group_by: str) -> dict[str, Any]:
    """The one JSON shape of organic history (docs/json.md)."""
    return {
        "bucket": row.bucket.isoformat(),
        "group_by": group_by,
        "source": SOURCE,
        "replicas": sorted(row.replicas),
        "first_at": row.first_at.isoformat(),
        "last_at": row.last_at.isoformat(),
        "reads": int(row.reads),
        "failures": int(row.failures),
        "resets": int(row.resets),
        "acceptance_length": row.acceptance_length,
        "acceptance_rate": row.acceptance_rate,
        "steps": int(row.steps),
        "generated_tokens": int(row.generated_tokens),
        "preemptions": int(row.preemptions),
        "running_mean": None if row.running_mean is None else float(row.running_mean),
        "running_max": row.running_max,
        "waiting_max": row.waiting_max,
        "kv_cache_usage_max": row.kv_cache_usage_max,
    }
