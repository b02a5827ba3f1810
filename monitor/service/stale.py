"""Routes that are not measured: looked for each minute by the process that schedules, and over with a valid run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.measured_again import measured_event
from monitor.alerting.routing import receivers_for
from monitor.alerting.stale import stale_event
from monitor.config.alerting import runbook_url
from monitor.core.incidents import IncidentState, Transition
from monitor.core.stale import OF_LATE, Around, Measured, on_measured, on_stale, stale_since
from monitor.service.queue_keeper import STALLED_AFTER_SECONDS
from monitor.store import incident_events, incidents, outbox, queue, slots, trips, verdicts
from monitor.store.organic import newest_readings
from monitor.store.stale import last_finished, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.alerting import Alerting
    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.service.case import Case
    from monitor.store.database import Database

LOOK_EVERY_SECONDS = 60.0


class StaleWatch:
    """Looks for routes that are not measured; of several processes one does."""

    def __init__(self, database: Database, config: Config, now: Callable[[], datetime]) -> None:
        self._database = database
        self._config = config
        self._now = now

    def look(self, watched_since: datetime) -> None:
        """Opens the incident of every route that is not measured, each in a transaction of its own."""
        for route in self._worth_a_look(watched_since):
            with self._database.transaction() as connection:
                slots.lock_route(connection, route.name)
                self._look_at(connection, route, watched_since)

    def _worth_a_look(self, watched_since: datetime) -> list[Route]:
        """Routes with a domain whose last valid run is too long ago, or that never had one: nearly always none."""
        routes, now, rule = self._config.routes, self._now(), self._config.alerting.stale
        with self._database.transaction() as connection:
            domains = [(route.name, domain) for route in routes for domain in route.domains]
            known = last_finished(connection, domains, valid_only=True)

        def is_long_ago(route: Route, at: datetime | None) -> bool:
            return at is None or bool(
                stale_since(Measured(last_valid_at=at), route.every, rule.after, watched_since, now)
            )

        return [route for route in routes if any(is_long_ago(route, known[route.name, d]) for d in route.domains)]

    def _look_at(self, connection: Connection, route: Route, watched_since: datetime) -> None:
        now, rule = self._now(), self._config.alerting.stale
        stale: dict[str, tuple[datetime, Measured]] = {}
        for domain in route.domains:
            known = measured(connection, route.name, domain)
            since = stale_since(known, route.every, rule.after, watched_since, now)
            if since is not None:
                stale[domain] = (since, known)
        found = incidents.open_incident(connection, route.name, incidents.STALE)
        before = IncidentState() if found is None else found[1]
        state, transition = on_stale(before, stale, rule.severity, now)
        if state == before:
            return
        incident_id = None if found is None else found[0]
        incident_id = incidents.save_state(connection, route.name, incident_id, state, now, incidents.STALE)
        if transition is not None:
            self._tell(connection, route, incident_id, stale, now)

    def _tell(
        self,
        connection: Connection,
        route: Route,
        incident_id: int,
        stale: Mapping[str, tuple[datetime, Measured]],
        now: datetime,
    ) -> None:
        alerting = self._config.alerting
        document = stale_event(
            incident_id=incident_id,
            route=route.name,
            labels=route.labels,
            severity=alerting.stale.severity,
            stale=stale,
            involved=(incidents.get_incident(connection, incident_id) or {})["domains"],
            every=route.every,
            periods=alerting.stale.after,
            around=_around(connection, route.name, max(now - OF_LATE, min(at for at, _ in stale.values()))),
            route_domains=route.domains,
            opened_at=now,
            now=now,
            external_url=alerting.external_url,
            runbook_url=runbook_url(alerting, route),
        )
        receivers = receivers_for(alerting, route, alerting.stale.severity)
        incident_events.add_event(connection, incident_id, Transition.OPENED, document, receivers, now)


def _around(connection: Connection, route: str, since: datetime) -> Around:
    """`since`: readings that end before it say nothing of what keeps the route from being measured."""
    lives = queue.worker_lives(connection, STALLED_AFTER_SECONDS)
    readings = newest_readings(connection, route, since)
    return Around(lives, queue.due_jobs(connection, route), readings)


def _current(connection: Connection, route: str) -> dict[str, dict[str, Any]]:
    """Domain → the verdict that says most of its newest judged run."""
    found = (verdicts.get_verdict(connection, one) for one in verdicts.newest_verdicts(connection, route))
    return {one.domain: {**one.document, "run_id": one.run_id} for one in found if one is not None}


def end_stale(case: Case, alerting: Alerting) -> None:
    """A valid run: its domain is measured again. To be called within the transaction that records the run."""
    found = incidents.open_incident(case.connection, case.route.name, incidents.STALE)
    if found is None:
        return
    incident_id, before = found
    state, transition = on_measured(before, case.run.domain, case.now)
    if state == before:
        return
    incidents.save_state(case.connection, case.route.name, incident_id, state, case.now, incidents.STALE)
    if transition is None:
        return
    known = incidents.get_incident(case.connection, incident_id) or {}
    document = measured_event(
        incident_id=incident_id,
        route=case.route.name,
        labels=case.route.labels,
        severity=known["severity"],
        domain=case.run.domain,
        run_id=case.recorded.run_id,
        replica=case.run.replica,
        involved=known["domains"],
        current=_current(case.connection, case.route.name),
        incident=incidents.open_document(case.connection, case.route.name),
        confirming=trips.pending_domains(case.connection, case.route.name),
        route_domains=case.route.domains,
        since=known["events"][0].get("since", known["opened_at"]),
        opened_at=incidents.opened_at(case.connection, incident_id),
        now=case.now,
        external_url=alerting.external_url,
    )
    receivers = receivers_for(alerting, case.route, known["severity"]) | outbox.told(case.connection, incident_id)
    incident_events.add_event(case.connection, incident_id, Transition.RESOLVED, document, receivers, case.now)
    case.recorded.transitions.append((incident_id, Transition.RESOLVED))
