"""Reference lines of other tools. Nothing that judges reads them; a test holds that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select

from monitor.store.schema import reference_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from monitor.exchange.references import ReferenceLine

SOURCE = "imported"
"""Stands where our own figures say `request` or `stream`; no baseline, run or verdict has it."""


def store_references(
    connection: Connection,
    lines: Sequence[ReferenceLine],
    *,
    file_name: str,
    file_hash: str,
    route: str | None,
    imported_at: datetime,
) -> list[int]:
    """Keeps the lines of one file, for a route or for all; returns their ids, none when this file is kept already."""
    same = select(reference_lines.c.id).where(
        reference_lines.c.file_hash == file_hash, reference_lines.c.route.is_not_distinct_from(route)
    )
    if connection.execute(same.limit(1)).first() is not None:
        return []
    common = {
        "route": route,
        "file_name": file_name,
        "file_hash": file_hash,
        "source": SOURCE,
        "imported_at": imported_at,
    }
    statement = insert(reference_lines).returning(reference_lines.c.id, sort_by_parameter_order=True)
    return list(connection.execute(statement, [{**common, **line.as_dict()} for line in lines]).scalars())


def list_references(
    connection: Connection, route: str | None = None, domain: str | None = None
) -> list[dict[str, Any]]:
    """In the order of import; of a route, together with those that are for all routes, or every one."""
    c = reference_lines.c
    statement = select(reference_lines).order_by(c.id)
    if route is not None:
        statement = statement.where((c.route == route) | c.route.is_(None))
    if domain is not None:
        statement = statement.where(c.domain == domain)
    return [_document(row) for row in connection.execute(statement)]


def remove_references(connection: Connection, file_name: str) -> int:
    """Forgets all lines of the files of this name; returns how many there were."""
    return connection.execute(delete(reference_lines).where(reference_lines.c.file_name == file_name)).rowcount


def _document(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "route": row.route,
        "domain": row.domain,
        "source": row.source,
        "tool": row.tool,
        "file_name": row.file_name,
        "model": row.model,
        "label": row.label,
        "k": row.k,
        "acceptance_length": row.acceptance_length,
        "acceptance_rate": row.acceptance_rate,
        "survival": row.survival,
        "steps": row.steps,
        "imported_at": row.imported_at.isoformat(),
    }
