"""Silences: who wants no messages about what, why, and until when.

Guarantee: a message that a silence holds is kept as `silenced`; when the silence is over and the incident is not, it is
sent. A resolution is silenced only for receivers that heard nothing else of the incident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, exists, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB

from monitor.core.incidents import Transition
from monitor.errors import UsageError
from monitor.store.schema import deliveries, incident_events, incidents, silences

QUIET = (Transition.RESOLVED.value, Transition.ACKNOWLEDGED.value)
"""Transitions whose message wakes nobody: a silence holds it only where it holds all that was told before."""

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, FromClause, Row


def add_silence(
    connection: Connection,
    by: str,
    reason: str,
    ends_at: datetime,
    now: datetime,
    *,
    route: str | None = None,
    labels: Mapping[str, str] | None = None,
    severity: str | None = None,
) -> dict[str, Any]:
    """A silence from now on of what has all of these: the route, the labels, the severity; what is None is any."""
    values = {
        "created_by": by,
        "reason": reason,
        "created_at": now,
        "ends_at": ends_at,
        "route": route,
        "labels": dict(labels or {}),
        "severity": severity,
    }
    return silence_document(connection.execute(insert(silences).values(values).returning(silences)).one(), now)


def open_silence(connection: Connection, values: Mapping[str, Any]) -> None:
    """A silence with these columns, as a maintenance window makes it: once for its creator, beginning and route."""
    known = select(silences.c.id).where(
        silences.c.created_by == values["created_by"],
        silences.c.created_at == values["created_at"],
        silences.c.route.is_not_distinct_from(values["route"]),
    )
    if connection.execute(known).first() is None:
        # No constraint keeps two senders from both making it: the second waits here, and then finds the first's.
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(values["created_by"]))))
        if connection.execute(known).first() is None:
            connection.execute(insert(silences).values(values))


def follow_openings(connection: Connection, creator: str, openings: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Active silences that openings made: each as its opening has it now, ended where there is none any more.

    Those of a creator named so that begin on a whole minute, as what somebody of such a name adds does not.
    """
    mine = and_(
        _active(now),
        silences.c.created_by.startswith(creator, autoescape=True),
        silences.c.created_at == func.date_trunc("minute", silences.c.created_at),
    )
    for row in connection.execute(select(silences).where(mine).order_by(silences.c.id).with_for_update()).all():
        of_row = (row.created_by, row.created_at, row.route)
        found = [one for one in openings if (one["created_by"], one["created_at"], one["route"]) == of_row]
        changes = dict(found[0]) if found else {"ended_at": now, "ended_by": row.created_by}
        if found and found[0]["ends_at"] != row.ends_at:
            changes["end_told_at"] = None  # the other end is told ahead anew
        connection.execute(update(silences).where(silences.c.id == row.id).values(changes))


def end_silence(connection: Connection, silence_id: int, by: str | None, now: datetime) -> dict[str, Any]:
    """Ends it now. Raises UsageError when there is none of this id or it is over."""
    row = connection.execute(select(silences).where(silences.c.id == silence_id).with_for_update()).one_or_none()
    if row is None:
        raise UsageError(f"there is no silence {silence_id}; see 'specwatch silence list'")
    if silence_document(row, now)["state"] == "ended":
        raise UsageError(f"silence {silence_id} has ended already; see 'specwatch silence list --all'")
    ended = update(silences).where(silences.c.id == silence_id).values(ended_at=now, ended_by=by)
    return silence_document(connection.execute(ended.returning(silences)).one(), now)


def tell_end(connection: Connection, silence_id: int, now: datetime) -> bool:
    """Notes that its end is told ahead; False where that is noted already, or another transaction is about to."""
    free = select(silences.c.id).where(silences.c.id == silence_id, silences.c.end_told_at.is_(None))
    if connection.execute(free.with_for_update(skip_locked=True)).first() is None:
        return False
    connection.execute(update(silences).where(silences.c.id == silence_id).values(end_told_at=now))
    return True


def list_silences(connection: Connection, now: datetime, active_only: bool = True) -> list[dict[str, Any]]:
    """Newest first."""
    statement = select(silences).order_by(silences.c.id.desc())
    if active_only:
        statement = statement.where(_active(now))
    return [silence_document(row, now) for row in connection.execute(statement)]


def silences_of(connection: Connection, silence_ids: Collection[int], now: datetime) -> list[dict[str, Any]]:
    statement = select(silences).where(silences.c.id.in_(silence_ids)).order_by(silences.c.id)
    return [silence_document(row, now) for row in connection.execute(statement)]


def silence_document(row: Row[Any], now: datetime) -> dict[str, Any]:
    return {
        "id": row.id,
        "state": "active" if (row.ended_at or row.ends_at) > now else "ended",
        "route": row.route,
        "labels": row.labels,
        "severity": row.severity,
        "by": row.created_by,
        "reason": row.reason,
        "created_at": row.created_at.isoformat(),
        "ends_at": row.ends_at.isoformat(),
        "ended_at": None if row.ended_at is None else row.ended_at.isoformat(),
        "ended_by": row.ended_by,
        "end_told_at": None if row.end_told_at is None else row.end_told_at.isoformat(),
    }


def silence_to_come(values: Mapping[str, Any]) -> dict[str, Any]:
    """The document of what `open_silence` will make of these columns."""
    return {
        "id": None,
        "state": "scheduled",
        "route": values["route"],
        "labels": values["labels"],
        "severity": values["severity"],
        "by": values["created_by"],
        "reason": values["reason"],
        "created_at": values["created_at"].isoformat(),
        "ends_at": values["ends_at"].isoformat(),
        "ended_at": None,
        "ended_by": None,
        "end_told_at": None,
    }


def apply_silences(connection: Connection, now: datetime) -> None:
    """Before deliveries are claimed: those that a silence covers are held, those that none holds any more are due."""
    _release(connection, now)
    _hold(connection, now)
    _hold_unheard_ends(connection, now)


def will_hold(connection: Connection, delivery_ids: Collection[int], now: datetime) -> dict[int, int]:
    """Delivery → the silence that holds it once it is due, of those that wait and that a silence covers then."""
    due = func.greatest(deliveries.c.due_at, now)
    silence_id = select(func.min(silences.c.id)).where(_covers(due)).scalar_subquery()
    statement = (
        select(deliveries.c.id, silence_id)
        .select_from(_told_of())
        .where(deliveries.c.id.in_(delivery_ids), deliveries.c.state == "pending", _may_be_held())
        .where(exists().where(_covers(due)))
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def _release(connection: Connection, now: datetime) -> None:
    free = (
        select(deliveries.c.id)
        .select_from(_told_of())
        .where(deliveries.c.state == "silenced", incidents.c.resolved_at.is_(None), ~exists().where(_covers(now)))
        .with_for_update(of=deliveries, skip_locked=True)
    )
    changes = {"state": "pending", "due_at": now}
    connection.execute(update(deliveries).where(deliveries.c.id.in_(free)).values(changes))


def _hold(connection: Connection, now: datetime) -> None:
    silence_id = select(func.min(silences.c.id)).where(_covers(now)).scalar_subquery()
    covered = (
        select(deliveries.c.id, silence_id.label("silence_id"))
        .select_from(_told_of())
        .where(_due(now), _may_be_held())
        .where(exists().where(_covers(now)))
        .with_for_update(of=deliveries, skip_locked=True)
        .cte("covered")
    )
    held = update(deliveries).where(deliveries.c.id == covered.c.id)
    connection.execute(held.values(state="silenced", silence_id=covered.c.silence_id))


def _hold_unheard_ends(connection: Connection, now: datetime) -> None:
    """What would end, or look after, what nobody was told of."""
    earlier = deliveries.alias("earlier")
    before = and_(
        earlier.c.incident_id == deliveries.c.incident_id,
        earlier.c.receiver == deliveries.c.receiver,
        earlier.c.id < deliveries.c.id,
    )
    silenced = and_(before, earlier.c.state == "silenced")
    heard = and_(before, or_(earlier.c.state.not_in(("silenced", "gathered")), earlier.c.attempts > 0))
    silence_id = select(func.max(earlier.c.silence_id)).where(silenced).scalar_subquery()
    unheard = (
        select(deliveries.c.id, silence_id.label("silence_id"))
        .select_from(_told_of())
        .where(
            _due(now),
            incident_events.c.transition.in_(QUIET),
            exists().where(silenced),
            ~exists().where(heard),
        )
        .with_for_update(of=deliveries, skip_locked=True)
        .cte("unheard")
    )
    held = update(deliveries).where(deliveries.c.id == unheard.c.id)
    connection.execute(held.values(state="silenced", silence_id=unheard.c.silence_id))


def _told_of() -> FromClause:
    told = deliveries.join(incident_events, incident_events.c.id == deliveries.c.event_id)
    return told.outerjoin(incidents, incidents.c.id == deliveries.c.incident_id)  # none where it is about a bump


def _due(now: datetime) -> ColumnElement[bool]:
    unleased = or_(deliveries.c.lease_until.is_(None), deliveries.c.lease_until < now)
    return and_(deliveries.c.state == "pending", deliveries.c.due_at <= now, unleased)


def _may_be_held() -> ColumnElement[bool]:
    """Not what wakes nobody, nor a message about the end of a silence, which no silence holds."""
    of_a_silence = incident_events.c.document.has_key("silence_id")
    return and_(incident_events.c.transition.not_in(QUIET), ~of_a_silence)


def _active(now: datetime | ColumnElement[datetime]) -> ColumnElement[bool]:
    return func.coalesce(silences.c.ended_at, silences.c.ends_at) > now


def _covers(now: datetime | ColumnElement[datetime]) -> ColumnElement[bool]:
    """Whether a silence covers the delivery: the incident by its severity now, its labels by what its message says.

    What is told of a bump has no severity: only a silence of any covers it.
    """
    labels = func.coalesce(incident_events.c.document["labels"], literal({}, JSONB))
    route = func.coalesce(incidents.c.route, incident_events.c.document["route"].as_string())
    return and_(
        _active(now),
        or_(silences.c.route.is_(None), silences.c.route == route),
        or_(silences.c.severity.is_(None), silences.c.severity == incidents.c.severity),
        labels.op("@>")(silences.c.labels),
    )
