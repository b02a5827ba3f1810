"""Trips: runs past the line of a rule, and the confirmation runs that they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import and_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.store.schema import runs, trips

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection


@dataclass(frozen=True)
class Trip:
    """A run past the trip line of one or more rules, waiting for its confirmation runs."""

    id: int
    route: str
    domain: str
    rules: tuple[str, ...]
    run_id: int
    baseline_id: int | None
    confirmations_queued: int


def open_trip(
    connection: Connection,
    route: str,
    domain: str,
    rules: Sequence[str],
    run_id: int,
    baseline_id: int | None,
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
    # Written out: a plan that Postgres keeps for a statement often used does not know its parameters, and without this
    # one finds no index for the conflict.
    pending = text("state = 'pending'")
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


def pending_domains(connection: Connection, route: str) -> list[str]:
    """Domains of the route whose trip waits for its confirmation runs, sorted."""
    statement = select(trips.c.domain).where(trips.c.route == route, trips.c.state == "pending")
    return list(connection.execute(statement.order_by(trips.c.domain)).scalars())


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


def expire_trips(connection: Connection, opened_before: datetime, now: datetime) -> int:
    """Gives up trips whose confirmations never came (their route was removed), so that new ones can open."""
    stale = and_(trips.c.state == "pending", trips.c.opened_at < opened_before)
    return connection.execute(update(trips).where(stale).values(state="expired", decided_at=now)).rowcount
