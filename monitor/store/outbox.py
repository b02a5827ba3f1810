"""The outbox: one delivery per receiver and incident transition, or verdict on a bump.

Guarantee: a delivery leaves `pending` only when its receiver accepted it or refused it for good, when a silence covers
it, or when, before anybody tried, a later one took its place that tells the same and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case, exists, func, insert, or_, select, true, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.bumps import NOTE
from monitor.store.schema import deliveries, incident_events, incidents
from monitor.store.silences import apply_silences

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row


LEFT_BEHIND_AFTER = timedelta(minutes=2)
"""A sender that knows the receiver takes a message within a second: after this there is none, not even one that runs
beside an older one while a configuration is rolled out."""


@dataclass(frozen=True)
class Delivery:
    """One message to one receiver, leased to this process until `lease_until`; `incident_id` 0: of no incident."""

    id: int
    receiver: str
    incident_id: int
    event_id: int
    transition: str
    document: dict[str, Any]
    attempts: int

    @property
    def is_note(self) -> bool:
        """Whether it is about a bump: neither firing nor resolved, and of no incident."""
        return self.transition == NOTE

    @property
    def key(self) -> str:
        """Same for every attempt: receivers drop repeats by it."""
        return f"specwatch-{self.event_id}-{self.receiver}"


def told(connection: Connection, incident_id: int) -> set[str]:
    """Receivers that have a delivery of this incident, whatever became of it: they must hear the end too."""
    statement = select(deliveries.c.receiver).where(deliveries.c.incident_id == incident_id).distinct()
    return set(connection.execute(statement).scalars())


def caught_up(connection: Connection, incident_id: int) -> dict[str, bool]:
    """Receiver → whether it was told all that happened: nothing waits for it, and no silence holds anything from it."""
    waits = func.bool_or(deliveries.c.state.in_(("pending", "silenced")))
    statement = select(deliveries.c.receiver, waits).where(deliveries.c.incident_id == incident_id)
    return {row[0]: not row[1] for row in connection.execute(statement.group_by(deliveries.c.receiver))}


def latest_documents(
    connection: Connection, receiver: str, resolved_since: datetime
) -> list[tuple[int, dict[str, Any]]]:
    """(incident id, document of its newest transition) of the incidents that this receiver has accepted a message of.

    Those that are open, or were resolved since then. What was not meant for the receiver, or is silenced for it, is not
    told this way either.
    """
    accepted = exists().where(
        deliveries.c.incident_id == incidents.c.id,
        deliveries.c.receiver == receiver,
        deliveries.c.state == "sent",
    )
    meant = exists().where(
        deliveries.c.event_id == incident_events.c.id,
        deliveries.c.receiver == receiver,
        deliveries.c.state.not_in(("silenced", "gathered")),
    )
    statement = (
        select(incident_events.c.incident_id, incident_events.c.document)
        .ext(distinct_on(incident_events.c.incident_id))
        .join(incidents, incidents.c.id == incident_events.c.incident_id)
        .where(accepted, meant, or_(incidents.c.resolved_at.is_(None), incidents.c.resolved_at >= resolved_since))
        .order_by(incident_events.c.incident_id, incident_events.c.id.desc())
    )
    return [(row.incident_id, row.document) for row in connection.execute(statement)]


def outbox_counts(connection: Connection) -> dict[tuple[str, str], int]:
    """(receiver, state) → deliveries; what waits for domains to join is `gathering`, since nothing holds it up."""
    waits = and_(deliveries.c.state == "pending", deliveries.c.attempts == 0, deliveries.c.due_at > func.now())
    state = case((waits, "gathering"), else_=deliveries.c.state).label("state")
    counted = select(deliveries.c.receiver, state).subquery()
    statement = select(counted.c.receiver, counted.c.state, func.count()).group_by(counted.c.receiver, counted.c.state)
    return {(row[0], row[1]): row[2] for row in connection.execute(statement)}


def oldest_waiting(connection: Connection) -> dict[str, datetime]:
    """Receiver → since when the oldest message waits that is neither sent, given up, held by a silence nor gathered."""
    since = func.min(func.coalesce(incident_events.c.due_at, incident_events.c.happened_at))
    statement = (
        select(deliveries.c.receiver, since)
        .join(incident_events, incident_events.c.id == deliveries.c.event_id)
        .where(deliveries.c.state == "pending")
        .group_by(deliveries.c.receiver)
        .order_by(deliveries.c.receiver)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def queue_deliveries(
    connection: Connection, incident_id: int | None, event_id: int, receivers: Collection[str], due_at: datetime
) -> int:
    """One pending delivery per receiver; those already there stay as they are. Returns how many were new.

    `incident_id` None: the event is of no incident, and waits for none before it.
    """
    if not receivers:
        return 0
    rows = [
        {"event_id": event_id, "incident_id": incident_id, "receiver": name, "state": "pending", "due_at": due_at}
        for name in sorted(receivers)
    ]
    statement = upsert(deliveries).values(rows).on_conflict_do_nothing(index_elements=["event_id", "receiver"])
    return len(connection.execute(statement.returning(deliveries.c.id)).all())


def queue_note(
    connection: Connection,
    document: Mapping[str, Any],
    receivers: Collection[str],
    now: datetime,
    bump_verdict_id: int | None = None,
) -> int:
    """Records what is told of no incident and queues it to every receiver, both or neither; the event's id."""
    event = {
        "bump_verdict_id": bump_verdict_id,
        "transition": NOTE,
        "document": dict(document),
        "happened_at": now,
        "due_at": now,
    }
    event_id = connection.execute(insert(incident_events).values(event).returning(incident_events.c.id)).scalar_one()
    queue_deliveries(connection, None, event_id, receivers, now)
    return event_id


def hasten(connection: Connection, incident_id: int, now: datetime) -> None:
    """What waits for further domains to join waits no longer."""
    waits = and_(
        deliveries.c.incident_id == incident_id,
        deliveries.c.state == "pending",
        deliveries.c.attempts == 0,
        deliveries.c.due_at > now,
    )
    connection.execute(update(deliveries).where(waits).values(due_at=now))


def take_place_of_silenced(connection: Connection, incident_id: int) -> None:
    """What a silence holds of this incident is not sent any more: a message that is queued now tells it."""
    held = and_(deliveries.c.incident_id == incident_id, deliveries.c.state == "silenced")
    connection.execute(update(deliveries).where(held).values(state="gathered"))


def claim_deliveries(
    connection: Connection, now: datetime, lease: timedelta, limit: int, room: Mapping[str, int] | None = None
) -> list[Delivery]:
    """Leases due deliveries to the caller: skipped by other senders until the lease lapses.

    Only the oldest pending delivery of an incident and receiver is due, so that transitions arrive in order. What a
    silence covers is held back first. `room`: the receivers that the caller knows, and how many it can send each of
    them, None for any; what is for another is due when nobody has taken it within LEFT_BEHIND_AFTER. `limit`: of each
    receiver that is not in `room`.
    """
    apply_silences(connection, now)
    free = or_(deliveries.c.lease_until.is_(None), deliveries.c.lease_until < now)
    due = and_(deliveries.c.state == "pending", deliveries.c.due_at <= now, free)
    ids: list[int] = []
    for receiver in connection.execute(select(deliveries.c.receiver).where(due).distinct()).scalars().all():
        known = room is None or receiver in room
        mine = and_(due, true() if known else deliveries.c.due_at <= now - LEFT_BEHIND_AFTER)
        ids += _oldest(connection, receiver, mine, (room or {}).get(receiver, limit))
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
        Delivery(r.id, r.receiver, r.incident_id or 0, r.event_id, r.transition, r.document, r.attempts)
        for r in connection.execute(statement)
    ]


def _oldest(connection: Connection, receiver: str, due: ColumnElement[bool], limit: int) -> Sequence[int]:
    """Ids of what is due for the receiver and waits for nothing before it, locked; what another claims is skipped."""
    earlier = deliveries.alias("earlier")
    blocked = exists().where(
        earlier.c.incident_id == deliveries.c.incident_id,
        earlier.c.receiver == receiver,
        earlier.c.id < deliveries.c.id,
        earlier.c.state == "pending",
    )
    statement = select(deliveries.c.id).where(deliveries.c.receiver == receiver, due, ~blocked)
    statement = statement.order_by(deliveries.c.due_at).limit(limit).with_for_update(skip_locked=True)
    return connection.execute(statement).scalars().all()


def mark_sent(connection: Connection, delivery_id: int, now: datetime) -> bool:
    """Whether it was still to be settled: another sender may have done so."""
    return _finish(connection, delivery_id, state="sent", sent_at=now, lease_until=None, last_error=None)


def mark_retry(connection: Connection, delivery: Delivery, error: str, due_at: datetime) -> bool:
    """Whether it was still this sender's to settle."""
    return _fail(connection, delivery, due_at=due_at, last_error=error)


def mark_dead(connection: Connection, delivery: Delivery, error: str) -> bool:
    """Whether it was still this sender's to settle."""
    return _fail(connection, delivery, state="dead", last_error=error)


def delivery_document(row: Row[Any], now: datetime, next_silence_id: int | None = None) -> dict[str, Any]:
    """The JSON shape of it (docs/json.md). `next_silence_id`: the silence that holds it once it is due."""
    gathers = row.state == "pending" and row.attempts == 0 and row.due_at > now
    return {
        "receiver": row.receiver,
        "state": row.state,
        "attempts": row.attempts,
        "last_error": row.last_error,
        "next_attempt_at": row.due_at.isoformat() if row.state == "pending" else None,
        "gathers_until": row.due_at.isoformat() if gathers else None,
        "next_silence_id": next_silence_id,
        "sent_at": None if row.sent_at is None else row.sent_at.isoformat(),
        "silence_id": row.silence_id,
    }


def _fail(connection: Connection, delivery: Delivery, **values: Any) -> bool:
    """A failure tells of its own attempt alone: whoever claimed the delivery since, its lease having lapsed, may be
    about to succeed. That one has arrived is true whoever says so."""
    its_own = deliveries.c.attempts == delivery.attempts
    return _finish(connection, delivery.id, its_own, lease_until=None, **values)


def _finish(connection: Connection, delivery_id: int, *such: ColumnElement[bool], **values: Any) -> bool:
    pending = and_(deliveries.c.id == delivery_id, deliveries.c.state == "pending", *such)
    return bool(connection.execute(update(deliveries).where(pending).values(**values)).rowcount)
