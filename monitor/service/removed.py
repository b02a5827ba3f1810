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


def close_removed(connection: Connection, config: Config, subject: str, kind: str, now: datetime) -> int | None:
    """Id of the open incident of this route, or receiver, that ends because what was broken is configured no more.

    A removed domain leaves its incident; with the last one the incident is resolved, and whoever was told that it
    opened, and is still a receiver, is told so and why.
    """
    receivers = {incidents.of_receiver(one.name): _parts(one) for one in config.alerting.receivers}
    known = {**{route.name: route.domains for route in config.routes}, **receivers}
    found = incidents.open_incident(connection, subject, kind)
    if found is None:
        return None
    incident_id, before = found
    state, transition = life.on_configured(before, known.get(subject, ()), now)
    if state == before:
        return None
    incidents.save_state(connection, subject, incident_id, state, now, kind)
    if transition is None:
        return None
    gone = RECEIVER_REMOVED if subject.startswith(incidents.of_receiver("")) else ROUTE_REMOVED
    _tell(connection, config, incident_id, DOMAINS_REMOVED if subject in known else gone, now)
    return incident_id


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
