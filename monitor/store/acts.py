"""What people did about an incident: a row per act, never changed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import insert, select

from monitor.errors import UsageError
from monitor.store.schema import incident_acts, incidents

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from sqlalchemy import Connection, Row

Kind = Literal["acknowledged", "note"]


def record_act(
    connection: Connection, incident_id: int, kind: Kind, by: str, text: str | None, now: datetime
) -> dict[str, Any]:
    """The act's document. Raises UsageError when there is no such incident, or it is over and acknowledged only now."""
    found = connection.execute(select(incidents.c.resolved_at).where(incidents.c.id == incident_id)).one_or_none()
    if found is None:
        raise UsageError(f"there is no incident {incident_id}; see 'specwatch incidents'")
    if kind == "acknowledged" and found.resolved_at is not None:
        raise UsageError(
            f"incident {incident_id} is over; 'specwatch incidents note {incident_id}' can still add to it"
        )
    values = {"incident_id": incident_id, "kind": kind, "done_by": by, "text": text, "done_at": now}
    return _document(connection.execute(insert(incident_acts).values(values).returning(incident_acts)).one())


def acts_of(connection: Connection, incident_ids: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    """Incident → its acts, oldest first; those without have an empty list."""
    statement = select(incident_acts).where(incident_acts.c.incident_id.in_(incident_ids)).order_by(incident_acts.c.id)
    found: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(statement):
        found[row.incident_id].append(_document(row))
    return found


def _document(row: Row[Any]) -> dict[str, Any]:
    return {"id": row.id, "kind": row.kind, "by": row.done_by, "text": row.text, "done_at": row.done_at.isoformat()}
