"""Tells, a while before a silence ends, what will fire then: through the outbox, past the silence itself.

Guarantee: once per silence and route, in the transaction that notes that it was told, however many look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.routing import receivers_for, takes_no_notes
from monitor.alerting.silence_end import silence_end_event
from monitor.config.alerting import runbook_url
from monitor.core.silence import covers, notice_at
from monitor.store import incident_events, incidents, outbox, silences

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.load import Config
    from monitor.store.database import Database

LOOK_EVERY_SECONDS = 15.0
SHOWN = ("id", "route", "severity", "opened_at", "acknowledged_by")
"""Of an incident, in what is told of it."""


class SilenceEnds:
    """Looks for silences that end soon over what still fires."""

    def __init__(self, database: Database, config: Config, now: Callable[[], datetime]) -> None:
        self._database = database
        self._alerting = config.alerting
        self._routes = {route.name: route for route in config.routes}
        self._now = now

    def tell(self) -> list[int]:
        """Queues what is due now; returns the ids of the silences whose end is told."""
        now, before = self._now(), self._alerting.silence_notice
        with self._database.transaction() as connection:
            active = silences.list_silences(connection, now)
            due = [silence for silence in active if _is_due(silence, before, now)]
            found = firing_under(connection, active) if due else {}
            return [silence["id"] for silence in due if self._tell(connection, silence, found[silence["id"]], now)]

    def _tell(
        self, connection: Connection, silence: Mapping[str, Any], fires: Sequence[Mapping[str, Any]], now: datetime
    ) -> bool:
        by_route: dict[str, list[Mapping[str, Any]]] = {}
        for incident in fires:
            if incident["route"] in self._routes:
                by_route.setdefault(incident["route"], []).append(incident)
        if not by_route or not silences.tell_end(connection, silence["id"], now):
            return False
        for name, those in by_route.items():
            route = self._routes[name]
            told = {one for incident in those for one in receivers_for(self._alerting, route, incident["severity"])}
            runbook = runbook_url(self._alerting, route)
            document = silence_end_event(
                silence, name, route.labels, those, route_domains=route.domains, now=now, runbook_url=runbook
            )
            outbox.queue_note(connection, document, told - takes_no_notes(self._alerting), now)
        return True


def firing_under(connection: Connection, active: Sequence[Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Silence → the open incidents that it covers and that no other of the `active` ones covers for longer."""
    openings = {incident_id: document for incident_id, _, document in incident_events.open_events(connection)}
    found: dict[int, list[dict[str, Any]]] = {silence["id"]: [] for silence in active}
    for incident in incidents.list_incidents(connection, open_only=True, limit=len(openings) or 1):
        opening = openings.get(incident["id"])
        if opening is None:
            continue
        of = incident["route"], opening.get("labels", {}), incident["severity"]
        held_by = [silence for silence in active if covers(silence, *of)]
        if held_by:
            last = max(held_by, key=lambda silence: (silence["ends_at"], silence["id"]))
            broken = sorted(name for name in incident["domains"] if incidents.is_broken(incident, name))
            document = incident_events.last_told(connection, incident["id"])[2]
            told = {"domains": broken, "summary": document["summary"], "told_at": document["happened_at"]}
            found[last["id"]].append({name: incident[name] for name in SHOWN} | told)
    return found


def _is_due(silence: Mapping[str, Any], before: Any, now: datetime) -> bool:
    at = notice_at(silence, before)
    return silence["end_told_at"] is None and at is not None and at <= now
