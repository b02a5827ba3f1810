"""What the store holds when the service starts, brought in line with the files as they are now."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monitor.alerting.routing import receivers_for
from monitor.core.format import count
from monitor.service.removed import close_removed
from monitor.store import incident_events, outbox

if TYPE_CHECKING:
    from datetime import datetime

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
    routes = {route.name: route for route in config.routes}
    with database.transaction() as connection:
        closed = close_removed(connection, config, now) if closes_removed else []
        for incident_id in closed:
            logger.warning("incident %s is closed: what it is about is configured no more", incident_id)
        for incident_id, event_id, document in incident_events.open_events(connection):
            route = routes.get(document["route"])
            if route is not None:
                names = receivers_for(config.alerting, route, document["severity"])
                outbox.queue_deliveries(connection, incident_id, event_id, names, now)
    # By itself: a sender elsewhere locks a message and then its incident, and above incidents are locked first.
    with database.transaction() as connection:
        for name, number in dead_letters.retry(connection, now).items():
            logger.info("%s is tried again with %s that it refused", name, count(number, "message"))
