"""Incidents and their events: what makes an alert durable.

Guarantee: an incident transition and one delivery row per receiver are written in the transaction of the verdict that
caused them; a delivery leaves `pending` only when a receiver accepted it or refused it for good.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on

from monitor.core.incidents import BrokenDomain, IncidentState, Transition, Worst, looked_after_by
from monitor.store.acts import acts_of
from monitor.store.outbox import delivery_document, hasten, queue_deliveries, take_place_of_silenced
from monitor.store.schema import deliveries, incident_events, incidents
from monitor.store.silences import silences_of, will_hold

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Row


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
OPENINGS = (Transition.OPENED.value, Transition.REOPENED.value)


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


def last_resolved(
    connection: Connection, route: str, kind: str = ACCEPTANCE
) -> tuple[int, IncidentState, datetime] | None:
    """(id, state, resolved at) of the route's incident that was the last to end, locked for this transaction."""
    ended = and_(incidents.c.route == route, incidents.c.kind == kind, incidents.c.resolved_at.is_not(None))
    statement = select(incidents).where(ended).order_by(incidents.c.resolved_at.desc()).limit(1)
    row = connection.execute(statement.with_for_update()).one_or_none()
    return None if row is None else (row.id, _state(row), row.resolved_at)


def open_incidents(connection: Connection) -> list[tuple[int, str, IncidentState]]:
    """(id, route, state) of every open incident, each locked for this transaction."""
    statement = select(incidents).where(incidents.c.resolved_at.is_(None)).order_by(incidents.c.id)
    return [(row.id, row.route, _state(row)) for row in connection.execute(statement.with_for_update())]


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


def add_event(
    connection: Connection,
    incident_id: int,
    transition: Transition,
    document: Mapping[str, Any],
    receivers: Collection[str],
    now: datetime,
    due_at: datetime | None = None,
) -> int:
    """Records a transition and queues its delivery to every receiver, both or neither; `due_at` None: at once.

    A resolution also ends the waiting of what is told before it, and the alert of the severity that the incident opened
    with: that it rose may have been told to nobody. What comes again takes the place of what a silence held of it
    before: that was over and told to nobody.
    """
    due_at = due_at or now
    if transition is Transition.RESOLVED:
        opened_as = _opened_as(connection, incident_id)
        document = {**document, "raised_from": None if opened_as == document.get("severity") else opened_as}
    values = {
        "incident_id": incident_id,
        "transition": transition.value,
        "document": dict(document),
        "happened_at": now,
        "due_at": due_at,
    }
    event_id = connection.execute(insert(incident_events).values(values).returning(incident_events.c.id)).scalar_one()
    if transition is Transition.RESOLVED:
        hasten(connection, incident_id, now)
    if transition is Transition.REOPENED:
        take_place_of_silenced(connection, incident_id)
    queue_deliveries(connection, incident_id, event_id, receivers, due_at)
    return event_id


def _opened_as(connection: Connection, incident_id: int) -> str | None:
    """The severity of its last opening."""
    openings = and_(incident_events.c.incident_id == incident_id, incident_events.c.transition.in_(OPENINGS))
    severity = select(incident_events.c.document["severity"].as_string()).where(openings)
    return connection.execute(severity.order_by(incident_events.c.id.desc()).limit(1)).scalar()


def open_events(connection: Connection) -> list[tuple[int, int, dict[str, Any]]]:
    """(incident id, event id, document) of what tells each open incident to somebody new, for reconciling at start.

    Its latest opening, or the rise of its severity since: the end is told with the severity that it has by then, which
    at receivers is a part of the alert's identity.
    """
    tells = or_(
        incident_events.c.transition.in_(OPENINGS), incident_events.c.document["raised_from"].as_string().is_not(None)
    )
    statement = (
        select(incident_events.c.incident_id, incident_events.c.id, incident_events.c.document)
        .ext(distinct_on(incident_events.c.incident_id))
        .join(incidents, incidents.c.id == incident_events.c.incident_id)
        .where(incidents.c.resolved_at.is_(None), tells)
        .order_by(incident_events.c.incident_id, incident_events.c.id.desc())
    )
    return [(row.incident_id, row.id, row.document) for row in connection.execute(statement)]


def events_from(connection: Connection, incident_id: int, event_id: int) -> list[int]:
    """Ids of an incident's events, this one and what followed it; none follows before this transaction ends."""
    connection.execute(select(incidents.c.id).where(incidents.c.id == incident_id).with_for_update())
    those = and_(incident_events.c.incident_id == incident_id, incident_events.c.id >= event_id)
    statement = select(incident_events.c.id).where(those).order_by(incident_events.c.id)
    return list(connection.execute(statement).scalars())


def last_told(connection: Connection, incident_id: int) -> tuple[datetime, datetime, dict[str, Any]]:
    """(when anything was last told or happened, when it last opened, the newest document but for reminders)."""
    sent_at = select(func.max(deliveries.c.sent_at)).where(deliveries.c.incident_id == incident_id)
    sent = connection.execute(sent_at).scalar()
    transition = incident_events.c.transition
    happened_at = _newest_event(connection, incident_id).happened_at
    opened_at = _newest_event(connection, incident_id, transition.in_(OPENINGS)).happened_at
    told = _newest_event(connection, incident_id, transition != Transition.REMINDER.value)
    return max(happened_at, sent or happened_at), opened_at, told.document


def _newest_event(connection: Connection, incident_id: int, *these: ColumnElement[bool]) -> Row[Any]:
    statement = select(incident_events).where(incident_events.c.incident_id == incident_id, *these)
    return connection.execute(statement.order_by(incident_events.c.id.desc()).limit(1)).one()


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
