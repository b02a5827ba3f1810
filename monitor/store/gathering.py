"""Domains that join an incident one after the other are told together.

Guarantee: a transition whose message waits is told by that message, or by a later one that names its domain too and
takes its place in the same transaction. A message that somebody may have begun to send is never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, or_, select, update

from monitor.core.incidents import Transition
from monitor.store.schema import deliveries, incident_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection


@dataclass(frozen=True)
class Gathering:
    """What a domain that joins now is told with: `due_at` is when, `joined` (domain → since) whom it joins.

    `causes`: what moved in each of those domains, as found when it broke. `delivery_ids` are the messages that wait or
    are silenced, locked for this transaction: the new one takes their place. `raised_from`: the severity before, where
    one of them was to tell that it rose.
    """

    due_at: datetime
    joined: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    raised_from: str | None = None
    delivery_ids: tuple[int, ...] = ()
    event_ids: tuple[int, ...] = ()


def gathering(connection: Connection, incident_id: int, now: datetime, window: timedelta) -> Gathering:
    """The message that a domain joins: the one that waits; without one, the next, a `window` after the last, or now."""
    statement = (
        select(deliveries.c.id, deliveries.c.event_id, deliveries.c.due_at, incident_events.c.document)
        .join(incident_events, incident_events.c.id == deliveries.c.event_id)
        .where(
            deliveries.c.incident_id == incident_id,
            incident_events.c.transition == Transition.UPDATED.value,
            deliveries.c.attempts == 0,
            or_(and_(deliveries.c.state == "pending", deliveries.c.due_at > now), deliveries.c.state == "silenced"),
        )
        .order_by(deliveries.c.id)
        .with_for_update(of=deliveries)
    )
    waiting = connection.execute(statement).all()
    joined = {name: since for row in waiting for name, since in _joined(row.document).items()}
    causes = {name: its for row in waiting for name, its in _causes(row.document).items()}
    event_ids = tuple(dict.fromkeys(row.event_id for row in waiting))
    waits_until = [row.due_at for row in waiting if row.due_at > now]
    due_at = min(waits_until) if waits_until else _next_at(connection, incident_id, now, window)
    raised_from = next((row.document["raised_from"] for row in waiting if row.document.get("raised_from")), None)
    return Gathering(due_at, joined, causes, raised_from, tuple(row.id for row in waiting), event_ids)


def take_place(connection: Connection, gathered: Gathering, due_at: datetime) -> None:
    """The waiting messages are not sent any more: another, due then, has been queued that tells theirs."""
    if not gathered.delivery_ids:
        return
    connection.execute(update(deliveries).where(deliveries.c.id.in_(gathered.delivery_ids)).values(state="gathered"))
    events = incident_events.c.id.in_(gathered.event_ids)
    connection.execute(update(incident_events).where(events).values(due_at=due_at))


def _next_at(connection: Connection, incident_id: int, now: datetime, window: timedelta) -> datetime:
    told_at = func.coalesce(incident_events.c.due_at, incident_events.c.happened_at)
    news = and_(
        incident_events.c.incident_id == incident_id,
        incident_events.c.transition != Transition.ACKNOWLEDGED.value,  # nobody was woken by it
    )
    last = connection.execute(select(func.max(told_at)).where(news)).scalar()
    return now if last is None else max(now, last + window)


def _joined(document: Mapping[str, Any]) -> dict[str, str]:
    """Of a message of an earlier version, the one domain that it is about."""
    return dict(document.get("joined") or {document["domain"]: document["since"]})


def _causes(document: Mapping[str, Any]) -> dict[str, Any]:
    """Of a message of an earlier version, those of the one domain that it is about."""
    return dict(document.get("joined_causes") or {document["domain"]: document.get("causes", [])})
