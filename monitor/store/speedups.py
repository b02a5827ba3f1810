"""Stored speedups: each one document, the very one that `specwatch speedup --format json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select, true
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.speedup import modelled
from monitor.store.newest import newest
from monitor.store.runs import run_document
from monitor.store.schema import identities, runs, speedups
from monitor.store.sweeps import list_sweeps

if TYPE_CHECKING:
    from sqlalchemy import Connection

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
    rows = list(connection.execute(newest(runs, runs.c.valid)))
    chosen = select(identities.c.id, identities.c.document).where(identities.c.id.in_({r.identity_id for r in rows}))
    by_id = {row.id: row.document for row in connection.execute(chosen)}
    models = [
        modelled(run_document(row), by_id[row.identity_id], sweeps)
        for row in rows
        if (row.route, row.domain) not in known
    ]
    return sorted([*measured, *filter(None, models)], key=lambda one: (one["route"], one["domain"]))
