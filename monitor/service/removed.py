"""What becomes of an incident whose route or domains have left routes.yaml: no run can resolve it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.alerting.message import closed_event
from monitor.core import incidents as life
from monitor.store import incidents, outbox

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.load import Config

ROUTE_REMOVED = "route removed from configuration"
DOMAINS_REMOVED = "its domains removed from configuration"


def close_removed(connection: Connection, config: Config, now: datetime) -> list[int]:
    """Ids of the incidents that end because what was broken is configured no more.

    A removed domain leaves its incident; with the last one the incident is resolved, and whoever was told that it
    opened, and is still a receiver, is told so and why.
    """
    routes = {route.name: route for route in config.routes}
    closed = []
    for incident_id, name, before in incidents.open_incidents(connection):
        domains = routes[name].domains if name in routes else ()
        state, transition = life.on_configured(before, domains, now)
        if state == before:
            continue
        incidents.save_state(connection, name, incident_id, state, now)
        if transition is not None:
            reason = DOMAINS_REMOVED if name in routes else ROUTE_REMOVED
            _tell(connection, config, incident_id, reason, now)
            closed.append(incident_id)
    return closed


def _tell(connection: Connection, config: Config, incident_id: int, reason: str, now: datetime) -> None:
    known = incidents.get_incident(connection, incident_id) or {}
    document = closed_event(
        incident_id=incident_id,
        route=known["route"],
        labels=known["events"][0]["labels"],  # its identity at the receivers, though the route has none any more
        severity=known["severity"],
        reason=reason,
        opened_at=incidents.opened_at(connection, incident_id),
        now=now,
        involved=known["domains"],
        external_url=config.alerting.external_url,
    )
    configured = {receiver.name for receiver in config.alerting.receivers}
    receivers = outbox.told(connection, incident_id) & configured
    incidents.add_event(connection, incident_id, life.Transition.RESOLVED, document, receivers, now)
