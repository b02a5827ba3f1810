"""Runs of a route and domain while nothing is known to have changed: what its noise is measured from."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import select

from monitor.core.records import Reason
from monitor.core.spread import StretchRun
from monitor.store.incidents import ACCEPTANCE
from monitor.store.runs import comparability, prompt_values
from monitor.store.schema import bumps, incidents, runs

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from monitor.core.judge import Comparability

MOST_RUNS = 2000
"""The newest, of one domain: eight weeks of a run every 40 minutes."""
BEFORE_AN_INCIDENT = timedelta(hours=1)
"""The runs that opened it were still to be confirmed."""


def undisturbed_runs(
    connection: Connection, route: str, domain: str, metric: str, since: datetime | None = None
) -> tuple[list[StretchRun], Comparability | None]:
    """Valid scheduled runs outside incidents that can be compared with the newest one, and what makes them comparable.

    Their stretch is their identity between two bumps of the route. Confirmation runs and those after a bump are left
    out: they are made because something was seen. Guarantee: at most MOST_RUNS are read, their samples without chunks.
    """
    c = runs.c
    statement = select(runs).where(c.route == route, c.domain == domain, c.valid, c.reason == Reason.SCHEDULED.value)
    if since is not None:
        statement = statement.where(c.started_at >= since)
    rows = connection.execute(statement.order_by(c.id.desc()).limit(MOST_RUNS)).all()
    if not rows:
        return [], None
    alike, spans = comparability(rows[0]), _incident_spans(connection, route)
    kept = [
        row
        for row in rows
        if comparability(row) == alike and not any(begin <= row.started_at <= end for begin, end in spans)
    ]
    first_after = sorted(connection.execute(select(bumps.c.run_id).where(bumps.c.route == route)).scalars())
    values = prompt_values(connection, [row.id for row in kept], metric)
    found = [
        StretchRun(row.started_at, values[row.id], (row.identity_id, bisect_right(first_after, row.id)))
        for row in kept
        if row.id in values
    ]
    return found, alike


def _incident_spans(connection: Connection, route: str) -> list[tuple[datetime, datetime]]:
    statement = select(incidents.c.opened_at, incidents.c.resolved_at).where(
        incidents.c.route == route, incidents.c.kind == ACCEPTANCE
    )
    last = datetime.max.replace(tzinfo=UTC)
    return [(row.opened_at - BEFORE_AN_INCIDENT, row.resolved_at or last) for row in connection.execute(statement)]
