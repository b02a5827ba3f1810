"""Waivers of gates: who goes on although a gate did not pass, why, and until when.

Guarantee: a waiver is a row that is never changed or removed, and no verdict is changed by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from monitor.errors import UsageError
from monitor.store.schema import gate_waivers, gates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select


def add_waiver(
    connection: Connection, gate_id: int, by: str, reason: str, ends_at: datetime, now: datetime
) -> dict[str, Any]:
    """A waiver from now on. Raises UsageError for no such gate, and for one that passed or has no verdict yet."""
    verdict = connection.execute(select(gates.c.verdict).where(gates.c.id == gate_id)).one_or_none()
    if verdict is None:
        raise UsageError(f"there is no gate {gate_id}; see 'specwatch gates'")
    if verdict.verdict in ("pass", None):
        said = "passed" if verdict.verdict else "has no verdict yet"
        raise UsageError(f"gate {gate_id} {said}: there is nothing to waive; see 'specwatch gates'")
    values = {"gate_id": gate_id, "created_by": by, "reason": reason, "created_at": now, "ends_at": ends_at}
    made = connection.execute(insert(gate_waivers).values(values).returning(gate_waivers.c.id)).scalar_one()
    return _document(connection.execute(_waivers().where(gate_waivers.c.id == made)).one())


def waivers_of(connection: Connection, shown: Sequence[Row[Any]]) -> Mapping[int, list[dict[str, Any]]]:
    """Gate id → its own waivers, and those of earlier gates of its route that held when it ended; the oldest first.

    `shown`: rows of `gates`.
    """
    routes = {row.route for row in shown if row.route is not None}
    rows = connection.execute(_waivers().where(gates.c.route.in_(routes)).order_by(gate_waivers.c.id)).all()
    return {gate.id: [_document(row) for row in rows if _concerns(row, gate)] for gate in shown}


def _concerns(waiver: Row[Any], gate: Row[Any]) -> bool:
    if waiver.gate_id == gate.id:
        return True
    earlier = waiver.route == gate.route and waiver.gate_id < gate.id
    return earlier and gate.finished_at is not None and waiver.created_at <= gate.finished_at < waiver.ends_at


def _waivers() -> Select[Any]:
    gate = (gates.c.route, gates.c.verdict, gates.c.document["reason"].astext.label("word"))
    return select(gate_waivers, *gate).join(gates, gates.c.id == gate_waivers.c.gate_id)


def _document(row: Row[Any]) -> dict[str, Any]:
    """The JSON shape of a waiver (docs/json.md)."""
    return {
        "id": row.id,
        "gate": row.gate_id,
        "waived": {"verdict": row.verdict, "reason": row.word},
        "by": row.created_by,
        "reason": row.reason,
        "created_at": row.created_at.isoformat(),
        "until": row.ends_at.isoformat(),
    }
