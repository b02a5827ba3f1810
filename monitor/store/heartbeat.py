"""What tells that the monitor does its work: when domains were last probed, what waits in the outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from monitor.core.heartbeat import Waiting
from monitor.store.schema import deliveries, incident_events, runs

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


def last_finished(connection: Connection, route: str, domain: str) -> datetime | None:
    """When the domain's latest run, valid or not, finished. Guarantee: one index entry."""
    own = select(runs.c.finished_at).where(runs.c.route == route, runs.c.domain == domain)
    return connection.execute(own.order_by(runs.c.id.desc()).limit(1)).scalar_one_or_none()


def oldest_waiting(connection: Connection) -> Waiting | None:
    """Of the messages that are neither sent, given up, held by a silence nor gathered, the one due the longest."""
    since = func.coalesce(incident_events.c.due_at, incident_events.c.happened_at)
    statement = (
        select(deliveries.c.receiver, since.label("since"))
        .join(incident_events, incident_events.c.id == deliveries.c.event_id)
        .where(deliveries.c.state == "pending")
        .order_by(since)
        .limit(1)
    )
    row = connection.execute(statement).one_or_none()
    return None if row is None else Waiting(row.receiver, row.since)
