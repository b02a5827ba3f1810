"""What a domain's runs say of whether it is measured at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import ARRAY, Text, cast, func, select, true

from monitor.core.stale import Measured
from monitor.store.schema import SERVING, runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

MOST_INVALID = 1_000
"""So many invalid runs are counted by their reasons at most, the newest."""


def last_finished(
    connection: Connection, domains: Sequence[tuple[str, str]], *, valid_only: bool
) -> dict[tuple[str, str], datetime | None]:
    """(route, domain) → when its last run, or its last valid one, ended; None without one.

    Guarantee: one statement and an index entry for each, but for the invalid runs since a valid one.
    """
    asked = (
        func.unnest(
            cast([route for route, _ in domains], ARRAY(Text)), cast([domain for _, domain in domains], ARRAY(Text))
        )
        .table_valued("route", "domain", name="asked")
        .render_derived()
    )
    newest = (
        select(runs.c.finished_at)
        .where(runs.c.route == asked.c.route, runs.c.domain == asked.c.domain, SERVING)
        .where(runs.c.valid if valid_only else true())
        .order_by(runs.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    found = connection.execute(select(asked.c.route, asked.c.domain, newest.label("at")))
    return {(row.route, row.domain): row.at for row in found}


def measured(connection: Connection, route: str, domain: str, replica: str | None = None) -> Measured:
    """By all replicas, or by one. Guarantee: a few index entries, and those of the invalid runs since the last valid
    one."""
    own = (
        runs.c.route == route,
        runs.c.domain == domain,
        SERVING,
        true() if replica is None else runs.c.replica == replica,
    )
    ends = select(runs.c.id, runs.c.finished_at).where(*own)
    valid = connection.execute(ends.where(runs.c.valid).order_by(runs.c.id.desc()).limit(1)).one_or_none()
    if valid is not None:
        first_run_at = None
    else:
        first_run_at = connection.execute(
            select(runs.c.started_at).where(*own).order_by(runs.c.id).limit(1)
        ).scalar_one_or_none()
    since = runs.c.id > (0 if valid is None else valid.id)
    newest = select(runs.c.id, runs.c.invalid_reason, runs.c.invalid_detail).where(*own, ~runs.c.valid, since)
    last = connection.execute(newest.order_by(runs.c.id.desc()).limit(1)).one_or_none()
    reasons = newest.order_by(runs.c.id.desc()).limit(MOST_INVALID).subquery()
    counted = select(reasons.c.invalid_reason, func.count().label("number")).group_by(reasons.c.invalid_reason)
    by_number = counted.order_by(func.count().desc(), reasons.c.invalid_reason)
    return Measured(
        first_run_at=first_run_at,
        last_valid_run_id=None if valid is None else valid.id,
        last_valid_at=None if valid is None else valid.finished_at,
        invalid={row.invalid_reason: row.number for row in connection.execute(by_number)},
        last_run_id=None if last is None else last.id,
        last_detail=None if last is None else last.invalid_detail,
    )
