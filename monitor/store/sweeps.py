"""Stored sweeps: each one document, the very one that `specwatch sweep --format json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from monitor.store.schema import sweeps

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from monitor.core.sweep import Sweep


def store_sweep(connection: Connection, sweep: Sweep, route: str | None) -> int:
    """Keeps the sweep, of a route or of none, and returns its id."""
    document = sweep.as_dict()
    statement = insert(sweeps).values(
        route=route,
        model=sweep.model,
        started_at=datetime.fromisoformat(sweep.started_at),
        finished_at=datetime.fromisoformat(sweep.finished_at),
        document=document,
    )
    return int(connection.execute(statement.returning(sweeps.c.id)).scalar_one())


def list_sweeps(connection: Connection, route: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
    """Newest first; of every route, or of one."""
    statement = select(sweeps).order_by(sweeps.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(sweeps.c.route == route)
    return [_document(row) for row in connection.execute(statement)]


def get_sweep(connection: Connection, sweep_id: int) -> dict[str, Any] | None:
    row = connection.execute(select(sweeps).where(sweeps.c.id == sweep_id)).one_or_none()
    return None if row is None else _document(row)


def _document(row: Row[Any]) -> dict[str, Any]:
    return {"id": row.id, "route": row.route, **row.document}
