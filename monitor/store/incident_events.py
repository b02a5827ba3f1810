"""What happened to incidents, and was to be told of it: what makes an alert durable.

Guarantee: an incident transition and one delivery row per receiver are written in the transaction of the verdict that
caused them; a delivery leaves `pending` only when a receiver accepted it or refused it for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, or_, select, true
from sqlalchemy.dialects.postgresql import distinct_on

from monitor.core.incidents import Transition
from monitor.store.outbox import hasten, queue_deliveries, take_place_of_silenced
from monitor.store.schema import deliveries, incident_events, incidents

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row

OPENINGS = (Transition.OPENED.value, Transition.REOPENED.value)
NO_NEWS = (Transition.REMINDER.value, Transition.ACKNOWLEDGED.value)
"""Transitions at which nothing happened to what is broken."""


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


def open_events(connection: Connection, incident_id: int | None = None) -> list[tuple[int, int, dict[str, Any]]]:
    """(incident id, event id, document) of what tells each open incident, or this one, to somebody new.

    Its latest opening, or the rise of its severity since: the end is told with the severity that it has by then, which
    at receivers is a part of the alert's identity.
    """
    tells = or_(
        incident_events.c.transition.in_(OPENINGS), incident_events.c.document["raised_from"].as_string().is_not(None)
    )
    this = true() if incident_id is None else incidents.c.id == incident_id
    statement = (
        select(incident_events.c.incident_id, incident_events.c.id, incident_events.c.document)
        .ext(distinct_on(incident_events.c.incident_id))
        .join(incidents, incidents.c.id == incident_events.c.incident_id)
        .where(incidents.c.resolved_at.is_(None), this, tells)
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
    """(when anything was last told or happened, when it last opened, the newest document of what happened)."""
    sent_at = select(func.max(deliveries.c.sent_at)).where(deliveries.c.incident_id == incident_id)
    sent = connection.execute(sent_at).scalar()
    transition = incident_events.c.transition
    happened_at = _newest_event(connection, incident_id).happened_at
    opened_at = _newest_event(connection, incident_id, transition.in_(OPENINGS)).happened_at
    told = _newest_event(connection, incident_id, transition.not_in(NO_NEWS))
    return max(happened_at, sent or happened_at), opened_at, told.document


def _newest_event(connection: Connection, incident_id: int, *these: ColumnElement[bool]) -> Row[Any]:
    statement = select(incident_events).where(incident_events.c.incident_id == incident_id, *these)
    return connection.execute(statement.order_by(incident_events.c.id.desc()).limit(1)).one()
