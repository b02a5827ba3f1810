"""Tells an acknowledgement to the receivers that can take one, so that what they would do next they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.alerting.routing import takes_acknowledgements
from monitor.core.incidents import Transition
from monitor.store import incident_events, incidents, outbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.load import Config
    from monitor.store.database import Database

LOOK_EVERY_SECONDS = 5.0


class Acknowledging:
    """Looks for acknowledgements that somebody who was told of the incident has not heard.

    Guarantee: one message per opening and receiver, after what the receiver was told before, however many look and
    whatever restarts: each looks at an incident with its row locked, and sees what another queued before it.
    """

    def __init__(self, database: Database, config: Config, now: Callable[[], datetime]) -> None:
        self._database = database
        self._receivers = takes_acknowledgements(config.alerting)
        self._now = now

    def tell(self) -> list[int]:
        """Queues what is to be told; returns the ids of the incidents of which it is."""
        if not self._receivers:
            return []
        with self._database.transaction() as connection:
            known = incidents.list_incidents(connection, open_only=True, limit=10_000)
        told = []
        for incident in known:
            if incident["acknowledged_by"] is None:
                continue
            with self._database.transaction() as connection:
                found = incidents.open_incident(connection, incident["route"], incident["kind"])
                if found is not None and self._tell(connection, found[0]):
                    told.append(found[0])
        return told

    def _tell(self, connection: Connection, incident_id: int) -> bool:
        incident = incidents.get_incident(connection, incident_id) or {}
        by = incident["acknowledged_by"]
        began = max(n for n, event in enumerate(incident["events"]) if event["transition"] in incident_events.OPENINGS)
        since = [e for e in incident["events"][began:] if e["transition"] == Transition.ACKNOWLEDGED.value]
        heard = {delivery["receiver"] for event in since for delivery in event["deliveries"]}
        unheard = (outbox.told(connection, incident_id) & self._receivers) - heard
        if by is None or not unheard:
            return False
        now = self._now()
        if since:
            outbox.queue_deliveries(connection, incident_id, since[0]["id"], unheard, now)
            return True
        document = {
            **incident_events.last_told(connection, incident_id)[2],
            "transition": Transition.ACKNOWLEDGED.value,
            "acknowledged_by": by,
            "raised_from": None,
            "joined": {},
            "happened_at": now.isoformat(),
        }
        incident_events.add_event(connection, incident_id, Transition.ACKNOWLEDGED, document, unheard, now)
        return True
