"""Tells of an Alertmanager's peers that take no alerts: the receiver has an incident, as one that is not told has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.alerting.peer_down import peers_event
from monitor.alerting.routing import receivers_for
from monitor.config.receivers import Log
from monitor.core.incidents import SEVERITIES, IncidentState, Transition
from monitor.core.peers import SEVERITY, on_peers
from monitor.store import incident_events, incidents, outbox, slots
from monitor.store.incidents import PEER_DOWN, of_receiver

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.alerting.peers import Peers
    from monitor.config.alerting import Alerting
    from monitor.config.routes import Route


class PeerWatch:
    """Guarantee: of what is told of peers, the incident's state and its messages are written in one transaction."""

    def __init__(self, alerting: Alerting, routes: Iterable[Route]) -> None:
        self._alerting = alerting
        self._routes = list(routes)
        self._ears = {one.name for one in alerting.receivers if not isinstance(one.settings, Log)}

    def look(self, connection: Connection, receiver: str, peers: Peers, now: datetime) -> Transition | None:
        """What the peers' last answers make of the receiver's incident; to be called after each round."""
        subject = of_receiver(receiver)
        slots.lock_route(connection, subject)
        known_id, before = incidents.open_incident(connection, subject, PEER_DOWN) or (None, IncidentState())
        state, transition = on_peers(before, peers.failing, peers.taking, now)
        if state == before:
            return None
        incident_id = incidents.save_state(connection, subject, known_id, state, now, PEER_DOWN)
        if transition is None:
            return None
        document = peers_event(
            incidents.get_incident(connection, incident_id) or {},
            transition,
            receiver,
            peers.answers,
            peers.taking,
            now=now,
            external_url=self._alerting.external_url,
            runbook_url=self._alerting.general_runbook_url,
        )
        told = (self._hearing_with(receiver) | outbox.told(connection, incident_id)) & self._ears
        incident_events.add_event(connection, incident_id, transition, document, told, now)
        return transition

    def _hearing_with(self, receiver: str) -> set[str]:
        """Who gets warnings of a route that this receiver hears of, itself too by the peers that are left."""
        found: set[str] = set()
        for route in self._routes:
            if any(receiver in receivers_for(self._alerting, route, severity) for severity in SEVERITIES):
                found |= receivers_for(self._alerting, route, SEVERITY)
        return found & self._ears or self._ears
