"""Tells again what is still open: through the same outbox, so that a reminder is as durable as what it reminds of."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from monitor.alerting.reminder import reminder_event
from monitor.alerting.routing import receivers_for
from monitor.core import incidents as life
from monitor.store import incident_events, incidents, outbox, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from monitor.config.load import Config
    from monitor.store.database import Database

LOOK_EVERY_SECONDS = 15.0


class Reminding:
    """Looks for what is to be told again.

    Guarantee: one reminder per incident and period, whatever restarts and however many look: each looks at an incident
    with its row locked, and sees what another before it told.
    """

    def __init__(
        self,
        database: Database,
        config: Config,
        now: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._alerting = config.alerting
        self._routes = {route.name: route for route in config.routes}
        self._now = now

    def remind(self) -> list[int]:
        """Queues what is due now; returns the ids of the incidents that are told again."""
        with self._database.transaction() as connection:
            known = incidents.list_incidents(connection, open_only=True, limit=10_000)
        told = []
        for incident in known:
            with self._database.transaction() as connection:
                found = incidents.open_incident(connection, incident["route"], incident["kind"])
                if found is not None and self._remind(connection, incident["route"], *found):
                    told.append(found[0])
        return told

    def _remind(self, connection: Connection, name: str, incident_id: int, state: life.IncidentState) -> bool:
        every, route, now = self._alerting.remind_every, self._routes.get(name), self._now()
        if every is None or route is None or not state.domains:
            return False
        told_at, opened_at, last = incident_events.last_told(connection, incident_id)
        if not life.reminder_due(state.severity, told_at, now, every):
            return False
        known = incidents.get_incident(connection, incident_id) or {}
        if known["acknowledged_by"] is not None:
            return False
        told = outbox.caught_up(connection, incident_id)
        receivers = {one for one in receivers_for(self._alerting, route, state.severity) if told.get(one)}
        if not receivers:
            return False
        current = {
            domain: verdicts.newest_valid(connection, name, domain, broken.rule)
            for domain, broken in state.domains.items()
        }
        document = reminder_event(
            last,
            severity=state.severity,
            opened_at=opened_at,
            now=now,
            involved=known["domains"],
            current=current,
            since=_began(known["events"], opened_at),
            route_domains=route.domains,
        )
        incident_events.add_event(connection, incident_id, life.Transition.REMINDER, document, receivers, now)
        return True


def _began(events: Sequence[Mapping[str, Any]], opened_at: datetime) -> str:
    """When the first run began that showed what is open since then."""
    of_now = [event for event in events if datetime.fromisoformat(event["happened_at"]) >= opened_at]
    return min((event["since"] for event in of_now if event.get("since")), default=opened_at.isoformat())
