"""What becomes of an incident of what is configured no more, a route, its domains or a receiver: nothing can end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.alerting.message import closed_event
from monitor.alerting.peers import peer_names
from monitor.core import incidents as life
from monitor.store import incident_events, incidents, outbox

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.load import Config
    from monitor.config.receivers import Receiver

ROUTE_REMOVED = "route removed from configuration"
RECEIVER_REMOVED = "receiver removed from configuration"
DOMAINS_REMOVED = "its domains removed from configuration"


def close_removed(connection: Connection, config: Config, now: datetime) -> list[int]:
    """Ids of the incidents that end because what was broken is configured no more.

    A removed domain leaves its incident; with the last one the incident is resolved, and whoever was told that it
    opened, and is still a receiver, is told so and why.
    """
    receivers = {incidents.of_receiver(one.name): _parts(one) for one in config.alerting.receivers}
    known = {**{route.name: route.domains for route in config.routes}, **receivers}
    closed = []
    for incident_id, name, before in incidents.open_incidents(connection):
        domains = known.get(name, ())
        state, transition = life.on_configured(before, domains, now)
        if state == before:
            continue
        incidents.save_state(connection, name, incident_id, state, now)
        if transition is not None:
            gone = RECEIVER_REMOVED if name.startswith(incidents.of_receiver("")) else ROUTE_REMOVED
            _tell(connection, config, incident_id, DOMAINS_REMOVED if name in known else gone, now)
            closed.append(incident_id)
    return closed


def _parts(receiver: Receiver) -> tuple[str, ...]:
    """What incidents of a receiver have as their domains: itself, or peers of an Alertmanager."""
    return (receiver.name, *peer_names(getattr(receiver.settings, "urls", ())))


def _tell(connection: Connection, config: Config, incident_id: int, reason: str, now: datetime) -> None:
    known = incidents.get_incident(connection, incident_id) or {}
    opening = known["events"][0]  # has its identity at the receivers, though the route has none any more
    closed = closed_event(
        incident_id=incident_id,
        route=known["route"],
        labels=opening["labels"],
        severity=known["severity"],
        reason=reason,
        opened_at=incidents.opened_at(connection, incident_id),
        reopened_at=known["reopened_at"],
        now=now,
        involved=known["domains"],
        external_url=config.alerting.external_url,
    )
    document = closed if opening.get("kind") is None else {**closed, "kind": opening["kind"]}
    configured = {receiver.name for receiver in config.alerting.receivers}
    receivers = outbox.told(connection, incident_id) & configured
    incident_events.add_event(connection, incident_id, life.Transition.RESOLVED, document, receivers, now)
