"""Announcements of bumps, and the one verdict that each bump ends in.

Guarantee: an announcement of the same route and key is stored once; a bump's verdict and one delivery per receiver are
written in one transaction, and a verdict is decided once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, insert, null, select, true, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.bumps import Announced
from monitor.core.records import Identity
from monitor.store.identities import bump_document
from monitor.store.outbox import delivery_document, queue_note
from monitor.store.schema import announcements, bump_verdicts, bumps, deliveries, identities, incident_events, runs
from monitor.store.silences import will_hold

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection, Row


@dataclass(frozen=True)
class Pending:
    """A verdict to come. `replicas`: replica → since when its runs are of after the change; each in every domain."""

    id: int
    route: str
    domains: tuple[str, ...]
    replicas: Mapping[str, datetime]
    opened_at: datetime
    due_at: datetime
    announcement: dict[str, Any] | None

    @property
    def announced(self) -> Announced | None:
        return None if self.announcement is None else announced_of(self.announcement)


@dataclass(frozen=True)
class RunAfter:
    """The newest run of a replica and domain after the change, a valid one where there is one."""

    id: int
    replica: str
    domain: str
    invalid_reason: str | None
    identity: Identity


def announced_of(document: Mapping[str, Any]) -> Announced:
    candidate = document["candidate"]
    named = (document["model"], document["drafter"], document["engine_version"])
    return Announced(*named, candidate=None if candidate is None else Identity.from_dict(candidate))


def add_announcement(
    connection: Connection, route: str, what: Announced, by: str, now: datetime, **said: str | None
) -> tuple[dict[str, Any], bool]:
    """The announcement's document and whether it is new. `said`: note, link and key; without a key, the link is one."""
    key = said.get("key") or said.get("link")
    candidate = null() if what.candidate is None else what.candidate.as_dict()
    by_whom = {"announced_by": by, "announced_at": now}
    values = {"route": route, **what.named(), "candidate": candidate, **said, "key": key, **by_whom}
    statement = upsert(announcements).values(values).on_conflict_do_nothing(index_elements=["route", "key"])
    row = connection.execute(statement.returning(announcements)).one_or_none()
    if row is not None:
        return announcement_document(row), True
    known = select(announcements).where(announcements.c.route == route, announcements.c.key == key)
    return announcement_document(connection.execute(known).one()), False


def announcements_since(connection: Connection, route: str, since: datetime) -> list[dict[str, Any]]:
    """Newest first."""
    statement = select(announcements).where(announcements.c.route == route, announcements.c.announced_at >= since)
    return [announcement_document(row) for row in connection.execute(statement.order_by(announcements.c.id.desc()))]


def announcement_document(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "route": row.route,
        "model": row.model,
        "drafter": row.drafter,
        "engine_version": row.engine_version,
        "candidate": row.candidate,
        "note": row.note,
        "link": row.link,
        "key": row.key,
        "by": row.announced_by,
        "announced_at": row.announced_at.isoformat(),
    }


def open_verdict(
    connection: Connection,
    route: str,
    domains: Sequence[str],
    replicas: Mapping[str, datetime],
    opened_at: datetime,
    due_at: datetime,
    announcement_id: int | None,
) -> int:
    """A verdict to come of these replicas, each in each of the domains."""
    values = {
        "route": route,
        "announcement_id": announcement_id,
        "domains": list(domains),
        "replicas": {replica: since.isoformat() for replica, since in replicas.items()},
        "opened_at": opened_at,
        "due_at": due_at,
    }
    return connection.execute(insert(bump_verdicts).values(values).returning(bump_verdicts.c.id)).scalar_one()


def follow(connection: Connection, pending: Pending, replicas: Mapping[str, datetime]) -> None:
    """From now on the verdict waits for runs of these replicas that began at those times or later."""
    followed = {**pending.replicas, **replicas}
    values = {"replicas": {name: at.isoformat() for name, at in followed.items()}}
    connection.execute(update(bump_verdicts).where(bump_verdicts.c.id == pending.id).values(values))


def announce_verdict(connection: Connection, verdict_id: int, announcement_id: int) -> None:
    """Somebody announced it after it was noticed."""
    statement = update(bump_verdicts).where(bump_verdicts.c.id == verdict_id)
    connection.execute(statement.values(announcement_id=announcement_id))


def pending_verdicts(connection: Connection, route: str) -> list[Pending]:
    """Those of the route that are not decided, oldest first, locked for this transaction."""
    statement = select(bump_verdicts).where(bump_verdicts.c.route == route, bump_verdicts.c.decided_at.is_(None))
    rows = connection.execute(statement.order_by(bump_verdicts.c.id).with_for_update()).all()
    said = _announcements(connection, [row.announcement_id for row in rows])
    return [
        Pending(
            id=row.id,
            route=row.route,
            domains=tuple(row.domains),
            replicas={replica: datetime.fromisoformat(since) for replica, since in row.replicas.items()},
            opened_at=row.opened_at,
            due_at=row.due_at,
            announcement=said.get(row.announcement_id),
        )
        for row in rows
    ]


def overdue_routes(connection: Connection, now: datetime) -> list[str]:
    """Routes with a verdict that is due whatever was not probed."""
    statement = select(bump_verdicts.c.route).distinct()
    statement = statement.where(bump_verdicts.c.decided_at.is_(None), bump_verdicts.c.due_at <= now)
    return sorted(connection.execute(statement).scalars())


def link_bump(connection: Connection, bump_id: int, verdict_id: int) -> None:
    connection.execute(update(bumps).where(bumps.c.id == bump_id).values(verdict_id=verdict_id))


def bumps_of(connection: Connection, verdict_ids: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    """Verdict → the bumps noticed that it is about, oldest first."""
    found: dict[int, list[dict[str, Any]]] = {verdict_id: [] for verdict_id in verdict_ids}
    statement = select(bumps).where(bumps.c.verdict_id.in_(verdict_ids)).order_by(bumps.c.id)
    for row in connection.execute(statement):
        found[row.verdict_id].append(bump_document(row))
    return found


def changes_announced(
    connection: Connection, announcement_ids: Collection[int]
) -> dict[int, list[dict[str, tuple[Any, Any]]]]:
    """Announcement → the changes noticed so far that it announced, oldest first."""
    found: dict[int, list[dict[str, tuple[Any, Any]]]] = {number: [] for number in announcement_ids}
    statement = (
        select(bumps.c.changes, bump_verdicts.c.announcement_id)
        .join(bump_verdicts, bump_verdicts.c.id == bumps.c.verdict_id)
        .where(bump_verdicts.c.announcement_id.in_(announcement_ids))
        .order_by(bumps.c.id)
    )
    for row in connection.execute(statement):
        found[row.announcement_id].append(row.changes)
    return found


def same_change_told(
    connection: Connection, route: str, replica: str, changes: Mapping[str, Sequence[Any]], since: datetime
) -> int | None:
    """The newest verdict decided since then on these very changes, noticed on other replicas, not yet on this one."""
    own = bumps.alias("own")
    statement = (
        select(bump_verdicts.c.id)
        .join(bumps, bumps.c.verdict_id == bump_verdicts.c.id)
        .where(bump_verdicts.c.route == route, bump_verdicts.c.decided_at >= since)
        .where(bumps.c.changes == {name: list(pair) for name, pair in changes.items()})
        .where(~exists().where(own.c.verdict_id == bump_verdicts.c.id, own.c.replica == replica))
        .order_by(bump_verdicts.c.id.desc())
        .limit(1)
    )
    return connection.execute(statement).scalar_one_or_none()


def runs_after(connection: Connection, pending: Pending) -> list[RunAfter]:
    """One of each replica and domain that has any, by domain and replica.

    Where the replica changed again, and that is another verdict's, the runs since are that one's.
    """
    found: dict[tuple[str, str], RunAfter] = {}
    for replica, since in pending.replicas.items():
        of_replica = (bumps.c.route == pending.route) & (bumps.c.replica == replica)
        own = select(func.max(bumps.c.run_id)).where(of_replica, bumps.c.verdict_id == pending.id).scalar_subquery()
        next_one = select(func.min(bumps.c.run_id)).where(of_replica, bumps.c.run_id > own).scalar_subquery()
        statement = (
            select(runs.c.id, runs.c.domain, runs.c.invalid_reason, identities.c.document)
            .ext(distinct_on(runs.c.domain))
            .join(identities, identities.c.id == runs.c.identity_id)
            .where(runs.c.route == pending.route, runs.c.replica == replica, runs.c.started_at >= since)
            .where(runs.c.domain.in_(pending.domains), func.coalesce(runs.c.id < next_one, true()))
            .order_by(runs.c.domain, runs.c.valid.desc(), runs.c.id.desc())
        )
        for row in connection.execute(statement):
            identity = Identity.from_dict(row.document)
            found[row.domain, replica] = RunAfter(row.id, replica, row.domain, row.invalid_reason, identity)
    return [found[pair] for pair in sorted(found)]


def decide(
    connection: Connection, verdict_id: int, document: Mapping[str, Any], receivers: Collection[str], now: datetime
) -> int:
    """Stores the verdict and queues its message to every receiver, both or neither; returns the event's id."""
    decided = update(bump_verdicts).where(bump_verdicts.c.id == verdict_id)
    connection.execute(decided.values(decided_at=now, document=dict(document)))
    return queue_note(connection, document, receivers, now, verdict_id)


def list_bumps(connection: Connection, route: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """Bumps announced or noticed, newest first, each with its verdict once there is one, and who was told."""
    statement = select(bump_verdicts).order_by(bump_verdicts.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(bump_verdicts.c.route == route)
    rows = connection.execute(statement).all()
    said = _announcements(connection, [row.announcement_id for row in rows])
    noticed = bumps_of(connection, [row.id for row in rows])
    sent = _deliveries(connection, [row.id for row in rows])
    return [_document(row, said.get(row.announcement_id), noticed[row.id], sent[row.id]) for row in rows]


def _document(
    row: Row[Any],
    announcement: dict[str, Any] | None,
    noticed: list[dict[str, Any]],
    sent: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "id": row.id,
        "route": row.route,
        "state": "probing" if row.decided_at is None else "told",
        "announcement": announcement,
        "noticed": noticed,
        "domains": row.domains,
        "replicas": sorted(row.replicas),
        "opened_at": row.opened_at.isoformat(),
        "due_at": row.due_at.isoformat(),
        "decided_at": None if row.decided_at is None else row.decided_at.isoformat(),
        "verdict": row.document,
        "deliveries": sent,
    }


def _announcements(connection: Connection, ids: Collection[int | None]) -> dict[int | None, dict[str, Any]]:
    known = {number for number in ids if number is not None}
    if not known:
        return {}
    found = connection.execute(select(announcements).where(announcements.c.id.in_(known)))
    return {row.id: announcement_document(row) for row in found}


def _deliveries(connection: Connection, verdict_ids: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {verdict_id: [] for verdict_id in verdict_ids}
    statement = (
        select(deliveries, incident_events.c.bump_verdict_id)
        .join(incident_events, incident_events.c.id == deliveries.c.event_id)
        .where(incident_events.c.bump_verdict_id.in_(verdict_ids))
        .order_by(deliveries.c.id)
    )
    rows = connection.execute(statement).all()
    now = datetime.now(UTC)
    next_holds = will_hold(connection, [row.id for row in rows], now)
    for row in rows:
        found[row.bump_verdict_id].append(delivery_document(row, now, next_holds.get(row.id)))
    return found
