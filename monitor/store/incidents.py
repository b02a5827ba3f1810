"""Trips, verdicts, incidents and the outbox: what makes an alert durable.

Guarantee: an incident transition and one delivery row per receiver are written in the transaction of the verdict that
caused them; a delivery leaves `pending` only when a receiver accepted it or refused it for good.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, exists, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.store.schema import deliveries, incident_events, incidents, runs, trips, verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row

    from monitor.core.judge import Verdict

ACCEPTANCE = "acceptance"
"""The kind of incident that a confirmed drop of acceptance opens."""


@dataclass(frozen=True)
class Trip:
    """A run past the trip line of one or more rules, waiting for its confirmation runs."""

    id: int
    route: str
    domain: str
    rules: tuple[str, ...]
    run_id: int
    baseline_id: int
    confirmations_queued: int


@dataclass(frozen=True)
class Delivery:
    """One message to one receiver, leased to this process until `lease_until`."""

    id: int
    receiver: str
    incident_id: int
    event_id: int
    transition: str
    document: dict[str, Any]
    attempts: int

    @property
    def key(self) -> str:
        """Same for every attempt: receivers drop repeats by it."""
        return f"specwatch-{self.event_id}-{self.receiver}"


def store_verdict(
    connection: Connection, run_id: int, rule: str, verdict: Verdict, judged_at: datetime, trip_id: int | None = None
) -> int:
    values = {
        "run_id": run_id,
        "trip_id": trip_id,
        "rule": rule,
        "outcome": verdict.outcome.value,
        "document": verdict.as_dict(),
        "judged_at": judged_at,
    }
    return connection.execute(insert(verdicts).values(values).returning(verdicts.c.id)).scalar_one()


def list_verdicts(connection: Connection, run_id: int) -> list[dict[str, Any]]:
    statement = select(verdicts).where(verdicts.c.run_id == run_id).order_by(verdicts.c.id)
    return [
        {"id": row.id, "rule": row.rule, "judged_at": row.judged_at.isoformat(), **row.document}
        for row in connection.execute(statement)
    ]


def open_trip(
    connection: Connection,
    route: str,
    domain: str,
    rules: Sequence[str],
    run_id: int,
    baseline_id: int,
    opened_at: datetime,
) -> int | None:
    """A pending trip, or None when this route and domain already wait for confirmation."""
    values = {
        "route": route,
        "domain": domain,
        "rules": list(rules),
        "run_id": run_id,
        "baseline_id": baseline_id,
        "state": "pending",
        "confirmations_queued": 0,
        "opened_at": opened_at,
    }
    pending = trips.c.state == "pending"
    statement = upsert(trips).values(values)
    new = statement.on_conflict_do_nothing(index_elements=["route", "domain"], index_where=pending)
    return connection.execute(new.returning(trips.c.id)).scalar_one_or_none()


def pending_trip(connection: Connection, trip_id: int) -> Trip | None:
    """The trip, locked for this transaction, while it is undecided."""
    statement = select(trips).where(trips.c.id == trip_id, trips.c.state == "pending").with_for_update()
    row = connection.execute(statement).one_or_none()
    if row is None:
        return None
    rules = tuple(row.rules)
    return Trip(row.id, row.route, row.domain, rules, row.run_id, row.baseline_id, row.confirmations_queued)


def count_confirmation(connection: Connection, trip_id: int, queued: int) -> None:
    statement = update(trips).where(trips.c.id == trip_id)
    connection.execute(statement.values(confirmations_queued=trips.c.confirmations_queued + queued))


def valid_confirmations(connection: Connection, trip_id: int) -> list[int]:
    statement = select(runs.c.id).where(runs.c.trip_id == trip_id, runs.c.valid).order_by(runs.c.id)
    return list(connection.execute(statement).scalars())


def confirmations_done(connection: Connection, trip_id: int) -> int:
    return len(connection.execute(select(runs.c.id).where(runs.c.trip_id == trip_id)).all())


def decide_trip(connection: Connection, trip_id: int, state: str, decided_at: datetime) -> None:
    connection.execute(update(trips).where(trips.c.id == trip_id).values(state=state, decided_at=decided_at))


def open_incident(connection: Connection, route: str, kind: str = ACCEPTANCE) -> tuple[int, IncidentState] | None:
    """The open incident of a route, locked for this transaction."""
    statement = select(incidents).where(
        incidents.c.route == route, incidents.c.kind == kind, incidents.c.resolved_at.is_(None)
    )
    row = connection.execute(statement.with_for_update()).one_or_none()
    return None if row is None else (row.id, _state(row))


def opened_at(connection: Connection, incident_id: int) -> datetime:
    return connection.execute(select(incidents.c.opened_at).where(incidents.c.id == incident_id)).scalar_one()


def told(connection: Connection, incident_id: int) -> set[str]:
    """Receivers that have a delivery of this incident, whatever became of it: they must hear the end too."""
    statement = select(deliveries.c.receiver).where(deliveries.c.incident_id == incident_id).distinct()
    return set(connection.execute(statement).scalars())


def last_good_run(connection: Connection, route: str, domain: str, rule: str) -> dict[str, Any] | None:
    """The latest run of this domain that the rule found above the resolve line: when it was last well."""
    statement = (
        select(runs.c.id, runs.c.finished_at)
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, runs.c.domain == domain, verdicts.c.rule == rule)
        .where(verdicts.c.document["above_resolve_line"].as_boolean())
        .order_by(runs.c.id.desc())
        .limit(1)
    )
    row = connection.execute(statement).one_or_none()
    return None if row is None else {"run_id": row.id, "finished_at": row.finished_at.isoformat()}


def last_changes(connection: Connection, route: str, rule: str) -> dict[str, float]:
    """Domain → latest judged change of the route by this rule, as a fraction."""
    statement = (
        select(runs.c.domain, verdicts.c.document["change"].as_float().label("change"))
        .ext(distinct_on(runs.c.domain))
        .join(verdicts, verdicts.c.run_id == runs.c.id)
        .where(runs.c.route == route, verdicts.c.rule == rule, verdicts.c.outcome != "invalid")
        .order_by(runs.c.domain, runs.c.id.desc(), verdicts.c.id.desc())
    )
    return {row.domain: row.change for row in connection.execute(statement)}


def expire_trips(connection: Connection, opened_before: datetime, now: datetime) -> int:
    """Gives up trips whose confirmations never came (their route was removed), so that new ones can open."""
    stale = and_(trips.c.state == "pending", trips.c.opened_at < opened_before)
    return connection.execute(update(trips).where(stale).values(state="expired", decided_at=now)).rowcount


def outbox_counts(connection: Connection) -> dict[tuple[str, str], int]:
    """(receiver, state) → deliveries."""
    statement = select(deliveries.c.receiver, deliveries.c.state, func.count()).group_by(
        deliveries.c.receiver, deliveries.c.state
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(statement)}


def save_state(connection: Connection, route: str, incident_id: int | None, state: IncidentState, now: datetime) -> int:
    """Writes an incident's state, opening a row when there is none and closing it when no domain is broken."""
    domains = {name: asdict(domain) for name, domain in state.domains.items()}
    if incident_id is None:
        values = {
            "route": route,
            "kind": ACCEPTANCE,
            "severity": state.severity,
            "domains": domains,
            "opened_at": now,
        }
        return connection.execute(insert(incidents).values(values).returning(incidents.c.id)).scalar_one()
    changes: dict[str, Any] = {"domains": domains}
    if state.domains:
        changes["severity"] = state.severity
    else:
        changes["resolved_at"] = now
    connection.execute(update(incidents).where(incidents.c.id == incident_id).values(changes))
    return incident_id


def add_event(
    connection: Connection,
    incident_id: int,
    transition: Transition,
    document: Mapping[str, Any],
    receivers: Collection[str],
    now: datetime,
) -> int:
    """Records a transition and queues its delivery to every receiver, both or neither."""
    values = {
        "incident_id": incident_id,
        "transition": transition.value,
        "document": dict(document),
        "happened_at": now,
    }
    event_id = connection.execute(insert(incident_events).values(values).returning(incident_events.c.id)).scalar_one()
    queue_deliveries(connection, incident_id, event_id, receivers, now)
    return event_id


def queue_deliveries(
    connection: Connection, incident_id: int, event_id: int, receivers: Collection[str], now: datetime
) -> int:
    """One pending delivery per receiver; those already there stay as they are. Returns how many were new."""
    if not receivers:
        return 0
    rows = [
        {"event_id": event_id, "incident_id": incident_id, "receiver": name, "state": "pending", "due_at": now}
        for name in sorted(receivers)
    ]
    statement = upsert(deliveries).values(rows).on_conflict_do_nothing(index_elements=["event_id", "receiver"])
    return len(connection.execute(statement.returning(deliveries.c.id)).all())


def open_events(connection: Connection) -> list[tuple[int, int, dict[str, Any]]]:
    """(incident id, event id, document) of the opening event of every open incident, for reconciling at start."""
    statement = (
        select(incident_events.c.incident_id, incident_events.c.id, incident_events.c.document)
        .join(incidents, incidents.c.id == incident_events.c.incident_id)
        .where(incidents.c.resolved_at.is_(None), incident_events.c.transition == Transition.OPENED.value)
    )
    return [(row.incident_id, row.id, row.document) for row in connection.execute(statement)]


def claim_deliveries(connection: Connection, now: datetime, lease: timedelta, limit: int) -> list[Delivery]:
    """Leases due deliveries to the caller: skipped by other senders until the lease lapses.

    Only the oldest pending delivery of an incident and receiver is due, so that transitions arrive in order.
    """
    earlier = deliveries.alias("earlier")
    blocked = exists().where(
        earlier.c.incident_id == deliveries.c.incident_id,
        earlier.c.receiver == deliveries.c.receiver,
        earlier.c.id < deliveries.c.id,
        earlier.c.state == "pending",
    )
    free = or_(deliveries.c.lease_until.is_(None), deliveries.c.lease_until < now)
    due = (
        select(deliveries.c.id)
        .where(deliveries.c.state == "pending", deliveries.c.due_at <= now, free, ~blocked)
        .order_by(deliveries.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.execute(due).scalars())
    if not ids:
        return []
    leased = update(deliveries).where(deliveries.c.id.in_(ids))
    connection.execute(leased.values(lease_until=now + lease, attempts=deliveries.c.attempts + 1))
    statement = (
        select(deliveries, incident_events.c.transition, incident_events.c.document)
        .join(incident_events, incident_events.c.id == deliveries.c.event_id)
        .where(deliveries.c.id.in_(ids))
        .order_by(deliveries.c.id)
    )
    return [
        Delivery(r.id, r.receiver, r.incident_id, r.event_id, r.transition, r.document, r.attempts)
        for r in connection.execute(statement)
    ]


def mark_sent(connection: Connection, delivery_id: int, now: datetime) -> None:
    _finish(connection, delivery_id, state="sent", sent_at=now, lease_until=None, last_error=None)


def mark_retry(connection: Connection, delivery_id: int, error: str, due_at: datetime) -> None:
    _finish(connection, delivery_id, due_at=due_at, lease_until=None, last_error=error)


def mark_dead(connection: Connection, delivery_id: int, error: str) -> None:
    _finish(connection, delivery_id, state="dead", lease_until=None, last_error=error)


def list_incidents(
    connection: Connection, route: str | None = None, open_only: bool = False, limit: int = 50
) -> list[dict[str, Any]]:
    statement = select(incidents).order_by(incidents.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(incidents.c.route == route)
    if open_only:
        statement = statement.where(incidents.c.resolved_at.is_(None))
    return [incident_document(row) for row in connection.execute(statement)]


def get_incident(connection: Connection, incident_id: int) -> dict[str, Any] | None:
    """The incident with its timeline and where each message went."""
    row = connection.execute(select(incidents).where(incidents.c.id == incident_id)).one_or_none()
    if row is None:
        return None
    events = connection.execute(
        select(incident_events).where(incident_events.c.incident_id == incident_id).order_by(incident_events.c.id)
    ).all()
    sent = connection.execute(
        select(deliveries).where(deliveries.c.incident_id == incident_id).order_by(deliveries.c.id)
    ).all()
    return {
        **incident_document(row),
        "events": [
            {
                "id": event.id,
                "transition": event.transition,
                "happened_at": event.happened_at.isoformat(),
                **event.document,
                "deliveries": [_delivery_document(d) for d in sent if d.event_id == event.id],
            }
            for event in events
        ],
    }


def incident_document(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "route": row.route,
        "kind": row.kind,
        "severity": row.severity,
        "state": "open" if row.resolved_at is None else "resolved",
        "domains": row.domains,
        "opened_at": row.opened_at.isoformat(),
        "resolved_at": None if row.resolved_at is None else row.resolved_at.isoformat(),
    }


def _delivery_document(row: Row[Any]) -> dict[str, Any]:
    return {
        "receiver": row.receiver,
        "state": row.state,
        "attempts": row.attempts,
        "last_error": row.last_error,
        "sent_at": None if row.sent_at is None else row.sent_at.isoformat(),
    }


def _finish(connection: Connection, delivery_id: int, **values: Any) -> None:
    pending = and_(deliveries.c.id == delivery_id, deliveries.c.state == "pending")
    connection.execute(update(deliveries).where(pending).values(**values))


def _state(row: Row[Any]) -> IncidentState:
    return IncidentState({name: BrokenDomain(**domain) for name, domain in row.domains.items()})
