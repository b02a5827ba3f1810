"""Incidents: one open problem of a route, or of a receiver, and what is known of it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, select, update

from monitor.core.incidents import BrokenDomain, IncidentState, Transition, Worst, looked_after_by
from monitor.store.acts import acts_of
from monitor.store.outbox import delivery_document
from monitor.store.schema import deliveries, incident_events, incidents
from monitor.store.silences import silences_of, will_hold

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection, Row


ACCEPTANCE = "acceptance"
"""The kind of incident that a confirmed drop of acceptance opens."""
SPEEDUP = "speedup"
"""The kind of incident that a rule on measured speedup opens."""
STALE = "stale"
"""The kind of incident of a route that is not measured. One of each kind is open per route at most."""
UNDELIVERED = "undelivered"
"""The kind of incident of a receiver that will not get a message."""
PEER_DOWN = "peer_down"
"""The kind of incident of an Alertmanager of which a peer takes no alerts."""
OF_RECEIVERS = (UNDELIVERED, PEER_DOWN)
"""Kinds of incidents that are of a receiver: `of_receiver` names it where others have their route."""
_DOMAIN_TIMES = ("joined_at", "left_at", "rejoined_at")


def of_receiver(name: str) -> str:
    """What an incident of a receiver has as its route; no route can be called so, since names have no spaces."""
    return f"receiver {name}"


def broken_receivers(connection: Connection) -> set[str]:
    """Names of the receivers that have an open incident of a message that they will not get."""
    of_them = and_(incidents.c.kind == UNDELIVERED, incidents.c.resolved_at.is_(None))
    subjects = connection.execute(select(incidents.c.route).where(of_them)).scalars()
    return {subject.removeprefix(of_receiver("")) for subject in subjects}


def open_incident(connection: Connection, route: str, kind: str = ACCEPTANCE) -> tuple[int, IncidentState] | None:
    """The open incident of a route, locked for this transaction."""
    statement = select(incidents).where(
        incidents.c.route == route, incidents.c.kind == kind, incidents.c.resolved_at.is_(None)
    )
    row = connection.execute(statement.with_for_update()).one_or_none()
    return None if row is None else (row.id, _state(row))


def open_document(connection: Connection, route: str, kind: str = ACCEPTANCE) -> dict[str, Any] | None:
    """The document of the route's open incident, locked for this transaction."""
    found = open_incident(connection, route, kind)
    return None if found is None else get_incident(connection, found[0])


def last_resolved(
    connection: Connection, route: str, kind: str = ACCEPTANCE
) -> tuple[int, IncidentState, datetime] | None:
    """(id, state, resolved at) of the route's incident that was the last to end, locked for this transaction."""
    ended = and_(incidents.c.route == route, incidents.c.kind == kind, incidents.c.resolved_at.is_not(None))
    statement = select(incidents).where(ended).order_by(incidents.c.resolved_at.desc()).limit(1)
    row = connection.execute(statement.with_for_update()).one_or_none()
    return None if row is None else (row.id, _state(row), row.resolved_at)


def open_subjects(connection: Connection) -> list[tuple[str, str]]:
    """(route, kind) of every open incident, none of them locked.

    Each is to be locked in a transaction of its own: whoever records a run locks several of a route, in its own order.
    """
    statement = select(incidents.c.route, incidents.c.kind).where(incidents.c.resolved_at.is_(None))
    return [(row.route, row.kind) for row in connection.execute(statement.order_by(incidents.c.id))]


def opened_at(connection: Connection, incident_id: int) -> datetime:
    return connection.execute(select(incidents.c.opened_at).where(incidents.c.id == incident_id)).scalar_one()


def resolved_at(connection: Connection, incident_id: int) -> datetime | None:
    return connection.execute(select(incidents.c.resolved_at).where(incidents.c.id == incident_id)).scalar_one()


def save_state(
    connection: Connection,
    route: str,
    incident_id: int | None,
    state: IncidentState,
    now: datetime,
    kind: str = ACCEPTANCE,
) -> int:
    """Writes an incident's state: its row is made when there is none, closed without a broken domain, else open."""
    domains = {name: _domain_document(domain) for name, domain in (*state.left.items(), *state.domains.items())}
    if incident_id is None:
        values = {
            "route": route,
            "kind": kind,
            "severity": state.severity,
            "domains": domains,
            "opened_at": now,
        }
        return connection.execute(insert(incidents).values(values).returning(incidents.c.id)).scalar_one()
    changes: dict[str, Any] = {"domains": domains}
    if state.domains:
        changes |= {"severity": state.severity, "resolved_at": None}
    else:
        changes["resolved_at"] = now
    connection.execute(update(incidents).where(incidents.c.id == incident_id).values(changes))
    return incident_id


def list_incidents(
    connection: Connection, route: str | None = None, open_only: bool = False, limit: int = 50
) -> list[dict[str, Any]]:
    statement = select(incidents).order_by(incidents.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(incidents.c.route == route)
    if open_only:
        statement = statement.where(incidents.c.resolved_at.is_(None))
    rows = connection.execute(statement).all()
    ids = [row.id for row in rows]
    acts, reopened = acts_of(connection, ids), _reopened_at(connection, ids)
    return [incident_document(row, acts[row.id], reopened.get(row.id)) for row in rows]


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
    acts, reopened = acts_of(connection, [incident_id]), _reopened_at(connection, [incident_id])
    now = datetime.now(UTC)
    next_holds = will_hold(connection, [d.id for d in sent], now)
    held_by = {d.silence_id for d in sent if d.silence_id is not None} | set(next_holds.values())
    return {
        **incident_document(row, acts[incident_id], reopened.get(incident_id)),
        "silences": silences_of(connection, held_by, now),
        "events": [
            {
                "id": event.id,
                "transition": event.transition,
                "happened_at": event.happened_at.isoformat(),
                **event.document,
                "deliveries": [delivery_document(d, now, next_holds.get(d.id)) for d in sent if d.event_id == event.id],
            }
            for event in events
        ],
    }


def _reopened_at(connection: Connection, incident_ids: Collection[int]) -> dict[int, datetime]:
    """Incident → when it last opened again, of those that did."""
    again = incident_events.c.transition == Transition.REOPENED.value
    statement = select(incident_events.c.incident_id, func.max(incident_events.c.happened_at).label("at"))
    statement = statement.where(incident_events.c.incident_id.in_(incident_ids), again)
    return {row.incident_id: row.at for row in connection.execute(statement.group_by(incident_events.c.incident_id))}


def incident_document(row: Row[Any], acts: Sequence[Mapping[str, Any]], reopened_at: datetime | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "route": row.route,
        "kind": row.kind,
        "severity": row.severity,
        "state": "open" if row.resolved_at is None else "resolved",
        "domains": row.domains,
        "opened_at": row.opened_at.isoformat(),
        "reopened_at": None if reopened_at is None else reopened_at.isoformat(),
        "resolved_at": None if row.resolved_at is None else row.resolved_at.isoformat(),
        "acknowledged_by": looked_after_by(acts, reopened_at or row.opened_at),
        "acts": list(acts),
    }


def is_broken(incident: Mapping[str, Any], domain: str) -> bool:
    """Whether the domain is broken now, by the incident's document, and not only was."""
    known = incident["domains"].get(domain)
    return known is not None and known.get("left_at") is None


def _domain_document(domain: BrokenDomain) -> dict[str, Any]:
    times = {"joined_at": domain.joined_at, "left_at": domain.left_at, "rejoined_at": domain.rejoined_at}
    return {**asdict(domain), **{name: None if at is None else at.isoformat() for name, at in times.items()}}


def _state(row: Row[Any]) -> IncidentState:
    found = {name: _domain(document) for name, document in row.domains.items()}
    return IncidentState(
        {name: domain for name, domain in found.items() if domain.left_at is None},
        {name: domain for name, domain in found.items() if domain.left_at is not None},
    )


def _domain(document: Mapping[str, Any]) -> BrokenDomain:
    """Of a row written before domains had a history, only what it holds."""
    times = {name: datetime.fromisoformat(document[name]) for name in _DOMAIN_TIMES if document.get(name)}
    worst = document.get("worst")
    known = None if worst is None else Worst(**{**worst, "run_ids": tuple(worst["run_ids"])})
    return BrokenDomain(
        document["rule"],
        document["severity"],
        document["well_runs"],
        known,
        **times,
        absolute=document.get("absolute", False),
        metric=document.get("metric"),
    )
