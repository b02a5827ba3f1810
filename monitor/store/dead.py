"""Dead deliveries: what a receiver refused for good, or was given up. Kept, counted, and tried again when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, exists, func, or_, select, update

from monitor.core.incidents import Transition
from monitor.store.schema import deliveries, incident_events, incidents

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


def may_reach_somebody(connection: Connection, event_id: int) -> bool:
    """Whether any receiver has the message of this event, or may still get it."""
    alive = and_(deliveries.c.event_id == event_id, deliveries.c.state != "dead")
    return connection.execute(select(exists().where(alive))).scalar_one()


def dead_since(connection: Connection, receiver: str, since: datetime) -> int:
    """How many messages of what happened since then the receiver will not get."""
    dead = and_(deliveries.c.receiver == receiver, deliveries.c.state == "dead")
    statement = select(func.count()).join(incident_events, incident_events.c.id == deliveries.c.event_id)
    return connection.execute(statement.where(dead, incident_events.c.happened_at >= since)).scalar_one()


def retry_dead(connection: Connection, receiver: str, now: datetime) -> int:
    """What the receiver refused is due again: of incidents that are open, the end of what it was told, and the last of
    all; returns how many.

    Nothing is told after what came later: an opening whose resolution arrived would stay open there for ever. So what
    waits is locked, that nobody may begin to send it meanwhile, and what somebody has begun to send counts as arrived.
    """
    waits = and_(deliveries.c.receiver == receiver, deliveries.c.state == "pending")
    connection.execute(select(deliveries.c.id).where(waits).order_by(deliveries.c.id).with_for_update())
    dead = and_(deliveries.c.receiver == receiver, deliveries.c.state == "dead")
    later = deliveries.alias("later")
    overtaken = exists().where(
        later.c.incident_id == deliveries.c.incident_id,
        later.c.receiver == receiver,
        later.c.id > deliveries.c.id,
        or_(later.c.state == "sent", later.c.lease_until.is_not(None)),
    )
    is_open = exists().where(incidents.c.id == deliveries.c.incident_id, incidents.c.resolved_at.is_(None))
    before = deliveries.alias("before")
    told = exists().where(
        before.c.incident_id == deliveries.c.incident_id,
        before.c.receiver == receiver,
        before.c.id < deliveries.c.id,
        before.c.state == "sent",
    )
    is_end = exists().where(
        incident_events.c.id == deliveries.c.event_id, incident_events.c.transition == Transition.RESOLVED.value
    )
    followed = select(func.max(deliveries.c.id)).where(
        deliveries.c.receiver == receiver, deliveries.c.state.in_(("pending", "sent"))
    )
    newest = func.coalesce(followed.scalar_subquery(), 0)
    last = select(func.max(deliveries.c.id)).where(dead, deliveries.c.id > newest).scalar_subquery()
    again = update(deliveries).where(dead, ~overtaken, or_(is_open, and_(is_end, told), deliveries.c.id == last))
    return len(
        connection.execute(again.values(state="pending", attempts=0, due_at=now).returning(deliveries.c.id)).all()
    )
