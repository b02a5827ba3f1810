"""Stored gates: each one document, the very one that `specwatch gate --format json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from monitor.store.schema import gates

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from monitor.core.gate_verdict import GateVerdict


def store_gate(connection: Connection, verdict: GateVerdict) -> int:
    """Keeps the verdict and returns its id."""
    statement = insert(gates).values(
        route=verdict.route,
        verdict=verdict.decision.value,
        finished_at=verdict.finished_at,
        document=verdict.as_dict(),
    )
    return int(connection.execute(statement.returning(gates.c.id)).scalar_one())


def list_gates(connection: Connection, route: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
    """Newest first; of every route, or of one."""
    statement = select(gates).order_by(gates.c.id.desc()).limit(limit)
    if route is not None:
        statement = statement.where(gates.c.route == route)
    return [_document(row) for row in connection.execute(statement)]


def get_gate(connection: Connection, gate_id: int) -> dict[str, Any] | None:
    row = connection.execute(select(gates).where(gates.c.id == gate_id)).one_or_none()
    return None if row is None else _document(row)


def _document(row: Row[Any]) -> dict[str, Any]:
    return {"id": row.id, "status": row.status, **row.document}
