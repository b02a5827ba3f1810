"""Stored gates: each one document, the very one that `specwatch gate --format json` prints, with its waivers of now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import cast, select, update
from sqlalchemy.dialects.postgresql import JSONB

from monitor.store.schema import gates
from monitor.store.waivers import waivers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row


def set_promoted(connection: Connection, gate_id: int, promoted: Mapping[str, Any]) -> None:
    """Writes into the gate's document what became of its promotion."""
    told = cast({"promoted": dict(promoted)}, JSONB)
    connection.execute(update(gates).where(gates.c.id == gate_id).values(document=gates.c.document.concat(told)))


def list_gates(connection: Connection, route: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
    """Newest first; of every route, or of one."""
    statement = select(gates).order_by(gates.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(gates.c.route == route)
    return _documents(connection, connection.execute(statement).all())


def get_gate(connection: Connection, gate_id: int) -> dict[str, Any] | None:
    row = connection.execute(select(gates).where(gates.c.id == gate_id)).one_or_none()
    return None if row is None else _documents(connection, [row])[0]


def _documents(connection: Connection, rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    waivers = waivers_of(connection, rows)
    return [{**_document(row), "waivers": waivers[row.id]} for row in rows]


def _document(row: Row[Any]) -> dict[str, Any]:
    return {"id": row.id, "status": row.status, **row.document}
