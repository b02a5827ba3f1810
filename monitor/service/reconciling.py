"""What the store holds when the service starts, brought in line with the files as they are now."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monitor.alerting.routing import receivers_for
from monitor.alerting.windows import follow_windows
from monitor.core.format import count
from monitor.service.removed import close_removed
from monitor.store import incident_events, incidents, outbox

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.alerting.dead_letters import DeadLetters
    from monitor.config.load import Config
    from monitor.store.database import Database

logger = logging.getLogger(__name__)


def reconcile(
    database: Database, config: Config, dead_letters: DeadLetters, now: datetime, *, closes_removed: bool = True
) -> None:
    """Open incidents are told to every receiver routed now that has not been queued their opening, or their rise.

    What a receiver refused is tried again: the files may have been corrected, which is read at a start alone.
    """
    with database.transaction() as connection:
        if closes_removed:
            follow_windows(connection, config.alerting.maintenance, now)
        subjects = incidents.open_subjects(connection)
    # Each by itself, so that no two incidents are locked at once: processes that record runs lock them in other orders.
    for subject, kind in subjects:
        with database.transaction() as connection:
            closed = close_removed(connection, config, subject, kind, now) if closes_removed else None
            if closed is None:
                _queue_opening(connection, config, subject, kind, now)
        if closed is not None:
            logger.warning("incident %s is closed: what it is about is configured no more", closed)
    # By itself: a sender elsewhere locks a message and then its incident, and above incidents are locked first.
    with database.transaction() as connection:
        for name, number in dead_letters.retry(connection, now).items():
            logger.info("%s is tried again with %s that it refused", name, count(number, "message"))


def _queue_opening(connection: Connection, config: Config, subject: str, kind: str, now: datetime) -> None:
    """Locked and looked at again: told to nobody new when it has ended meanwhile, since the end would not be."""
    route = next((route for route in config.routes if route.name == subject), None)
    found = incidents.open_incident(connection, subject, kind)
    if route is None or found is None:
        return
    for incident_id, event_id, document in incident_events.open_events(connection, found[0]):
        names = receivers_for(config.alerting, route, document["severity"])
        outbox.queue_deliveries(connection, incident_id, event_id, names, now)
