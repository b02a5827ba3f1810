"""A message that its receiver will never get is told to others: the receiver has an incident of its own.

Guarantee: a delivery is marked dead and others are told in one transaction, an arrival marked and that incident ended
in one. A receiver has one such incident at a time, of which nobody is told twice unless a page follows a warning. What
is lost of these messages opens none, so that two receivers cannot go on about each other for ever: it is passed on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from monitor.alerting.posting import Failure, Why
from monitor.alerting.routing import receivers_for
from monitor.alerting.undelivered import delivered_event, undelivered_event
from monitor.config.receivers import Log
from monitor.core.incidents import SEVERITIES, BrokenDomain, IncidentState, Transition
from monitor.store import dead, incident_events, incidents, outbox, slots
from monitor.store.incidents import OF_RECEIVERS, UNDELIVERED, of_receiver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from monitor.config.alerting import Alerting
    from monitor.config.routes import Route
    from monitor.store.outbox import Delivery


@dataclass(frozen=True)
class Loss:
    """The incident of the receiver that lost a message, and who is told of this loss, but for those who know already.

    No incident: the loss is told by the log alone.
    """

    incident_id: int | None = None
    told: frozenset[str] = frozenset()


class DeadLetters:
    """Settles deliveries, and tells others what one could not be told; each call within one transaction."""

    def __init__(self, alerting: Alerting, routes: Iterable[Route]) -> None:
        self._alerting = alerting
        self._routes = {route.name: route for route in routes}
        self._ears = {one.name for one in alerting.receivers if not isinstance(one.settings, Log)}

    def lose(self, connection: Connection, delivery: Delivery, failure: Failure, now: datetime) -> Loss:
        """Marks it dead, and has others told unless its receiver was taken out of alerting.yaml."""
        lost = outbox.mark_dead(connection, delivery, failure.error)
        if not lost or failure.why is Why.REMOVED:
            return Loss()
        # One loss at a time: of two receivers that break at once, the second must not be told of by the first alone.
        slots.lock_route(connection, of_receiver(""))
        if delivery.document.get("kind") in OF_RECEIVERS:
            return self._pass_on(connection, delivery, now)
        subject = of_receiver(delivery.receiver)
        known_id, before = incidents.open_incident(connection, subject, UNDELIVERED) or (None, IncidentState())
        severity = SEVERITIES[0] if delivery.is_note else delivery.document["severity"]
        state, raised_from = _with_loss(before, delivery.receiver, severity, now)
        incident_id = incidents.save_state(connection, subject, known_id, state, now, UNDELIVERED)
        others, known = self._others(connection, delivery, severity), outbox.told(connection, incident_id) & self._ears
        told = frozenset(others | known if raised_from is not None else others - known)
        if known_id is None or raised_from is not None or told:
            document = undelivered_event(
                incidents.get_incident(connection, incident_id) or {},
                Transition.OPENED if known_id is None else Transition.UPDATED,
                delivery.receiver,
                delivery.document,
                why=failure.error if failure.final else f"{failure.error}, {delivery.attempts} times",
                raised_from=raised_from,
                told=told,
                now=now,
                external_url=self._alerting.external_url,
                runbook_url=self._alerting.general_runbook_url,
            )
            transition = Transition(document["transition"])
            incident_events.add_event(connection, incident_id, transition, document, told, now)
        return Loss(incident_id, told)

    def arrive(self, connection: Connection, delivery: Delivery, now: datetime) -> None:
        """Marks it sent, which ends the incident of its receiver."""
        arrived = outbox.mark_sent(connection, delivery.id, now)
        subject = of_receiver(delivery.receiver)
        found = incidents.open_incident(connection, subject, UNDELIVERED) if arrived else None
        if found is None:
            return
        incident_id, state = found
        well = state.without(state.domains, now)
        incidents.save_state(connection, subject, incident_id, well, now, UNDELIVERED)
        incident = incidents.get_incident(connection, incident_id) or {}
        since = datetime.fromisoformat(incident["events"][0]["since"])
        document = delivered_event(
            incident,
            delivery.receiver,
            missed=dead.dead_since(connection, delivery.receiver, since),
            now=now,
            external_url=self._alerting.external_url,
        )
        told = outbox.told(connection, incident_id) & self._ears
        incident_events.add_event(connection, incident_id, Transition.RESOLVED, document, told, now)

    def retry(self, connection: Connection, now: datetime) -> dict[str, int]:
        """Receiver → messages tried again, of those that have an incident: its cause may have been corrected."""
        broken = incidents.broken_receivers(connection) & self._ears
        return {name: dead.retry_dead(connection, name, now) for name in sorted(broken)}

    def _pass_on(self, connection: Connection, delivery: Delivery, now: datetime) -> Loss:
        """A message about a receiver, not its end, that none of those has or may still get is told to the rest, with
        what followed it: an end that was told meanwhile would reach only those who never heard of the beginning."""
        over = delivery.transition == Transition.RESOLVED.value
        if over or dead.may_reach_somebody(connection, delivery.event_id):
            return Loss()
        event_ids = incident_events.events_from(connection, delivery.incident_id, delivery.event_id)
        rest = self._ears - outbox.told(connection, delivery.incident_id) - incidents.broken_receivers(connection)
        for event_id in event_ids:
            outbox.queue_deliveries(connection, delivery.incident_id, event_id, rest, now)
        return Loss(delivery.incident_id, frozenset(rest))

    def _others(self, connection: Connection, delivery: Delivery, severity: str) -> set[str]:
        """Who hears of the same and is not known to be broken; where there is nobody, whoever else there is."""
        route = self._routes.get(delivery.document["route"])
        routed = set() if route is None else receivers_for(self._alerting, route, severity)
        routed |= outbox.told(connection, delivery.incident_id) if delivery.incident_id else set()
        ears = self._ears - {delivery.receiver}
        well = ears - incidents.broken_receivers(connection)
        return (routed & well) or well or (routed & ears)


def _with_loss(before: IncidentState, receiver: str, severity: str, now: datetime) -> tuple[IncidentState, str | None]:
    """The state with this loss, and the severity before where it rises."""
    known = before.domains.get(receiver)
    if known is None:
        return before.with_broken(receiver, BrokenDomain(UNDELIVERED, severity, joined_at=now)), None
    if SEVERITIES.index(severity) <= SEVERITIES.index(known.severity):
        return before, None
    return before.with_broken(receiver, replace(known, severity=severity)), known.severity
