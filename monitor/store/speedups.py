"""Stored speedups: each one document, the very one that `specwatch speedup --format json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, literal, select, true
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.losing import Measurement
from monitor.core.speedup import modelled
from monitor.store.newest import newest
from monitor.store.runs import run_document
from monitor.store.schema import SERVING, identities, runs, speedups
from monitor.store.sweeps import list_sweeps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Row, Select

    from monitor.core.speedup import Speedup

SWEEPS_READ = 50
"""How many of the newest sweeps are looked at for one to model a speedup from."""


def store_speedup(connection: Connection, key: str, found: Speedup) -> int | None:
    """Keeps the measurement and returns its id; None when one of this key is there already."""
    values = {
        "key": key,
        "route": found.route,
        "domain": found.domain,
        "valid": found.invalid_reason is None,
        "finished_at": found.finished_at,
        "document": found.as_dict(),
    }
    statement = upsert(speedups).values(values).on_conflict_do_nothing(index_elements=["key"]).returning(speedups.c.id)
    return connection.execute(statement).scalar_one_or_none()


def is_recorded(connection: Connection, key: str) -> bool:
    """Whether a measurement of this key is stored."""
    return connection.execute(select(speedups.c.id).where(speedups.c.key == key)).one_or_none() is not None


def earlier_measurements(connection: Connection, speedup_id: int, count: int) -> list[Measurement]:
    """The last `count` valid measurements of its replica before this one, comparable with it, oldest first."""
    like = connection.execute(select(speedups).where(speedups.c.id == speedup_id)).one()
    statement = _alike(like).where(
        speedups.c.id < speedup_id, speedups.c.document["replica"].as_string() == like.document["replica"]
    )
    rows = connection.execute(statement.order_by(speedups.c.id.desc()).limit(count)).all()
    return [measurement(row.id, row.document) for row in reversed(rows)]


def first_measurements(connection: Connection, speedup_id: int, since: datetime, count: int) -> list[Measurement]:
    """The first `count` valid measurements after `since` that can be compared with this one, of any replica."""
    like = connection.execute(select(speedups).where(speedups.c.id == speedup_id)).one()
    statement = _alike(like).where(speedups.c.finished_at > since, speedups.c.id <= speedup_id)
    rows = connection.execute(statement.order_by(speedups.c.id).limit(count))
    return [measurement(row.id, row.document) for row in rows]


def started_at(connection: Connection, speedup_id: int) -> datetime:
    """When the measurement began."""
    found = connection.execute(select(speedups.c.document["started_at"].as_string()).where(speedups.c.id == speedup_id))
    return datetime.fromisoformat(found.scalar_one())


def measurement(speedup_id: int, document: Mapping[str, Any]) -> Measurement:
    """A stored measurement as the judge sees it."""
    found = document["speedup"]
    if document["invalid_reason"] is not None or found is None:
        return Measurement(speedup_id, invalid_reason=document["invalid_reason"] or "too few prompts to compare")
    return Measurement(speedup_id, found["ratio"], found["low"], found["high"], found["n"])


def _alike(like: Row[Any]) -> Select[Any]:
    """Guarantee: of one route and domain, by index."""
    document = speedups.c.document
    keys = ("prompt_set_hash", "concurrency", "sampling")
    same = (document[key] == literal(like.document[key], JSONB) for key in keys)
    own = (speedups.c.route == like.route, speedups.c.domain == like.domain, speedups.c.valid)
    return select(speedups.c.id, document).where(*own, *same, document["speedup"]["ratio"].as_float().is_not(None))


def newest_speedups(
    connection: Connection, route: str | None = None, limit: int = 1, *, valid_only: bool = False
) -> list[dict[str, Any]]:
    """The newest measurements of every domain, of every route or one; where there is none, one that is modelled."""
    statement = newest(speedups, speedups.c.valid if valid_only else true(), limit)
    found = [{"id": row.id, **row.document} for row in connection.execute(statement)]
    return [one for one in _with_modelled(connection, found) if route is None or one["route"] == route]


def _with_modelled(connection: Connection, measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sweeps = list_sweeps(connection, limit=SWEEPS_READ)
    if not sweeps:
        return measured
    known = {(one["route"], one["domain"]) for one in measured}
    rows = list(connection.execute(newest(runs, and_(runs.c.valid, SERVING))))
    chosen = select(identities.c.id, identities.c.document).where(identities.c.id.in_({r.identity_id for r in rows}))
    by_id = {row.id: row.document for row in connection.execute(chosen)}
    models = [
        modelled(run_document(row), by_id[row.identity_id], sweeps)
        for row in rows
        if (row.route, row.domain) not in known
    ]
    return sorted([*measured, *filter(None, models)], key=lambda one: (one["route"], one["domain"]))
