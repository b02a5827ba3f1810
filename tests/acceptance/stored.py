"""What a test looks up in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from monitor.store.database import Database


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.transaction() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def runs(database: Database) -> list[tuple[str, str | None]]:
    """(key, invalid reason or None) of every run, oldest first."""
    return [(key, reason) for key, reason in rows(database, "SELECT key, invalid_reason FROM runs ORDER BY id")]


def jobs(database: Database) -> list[tuple[str, str]]:
    """(key, status) of every job in the queue; a successful job is no longer in it."""
    query = "SELECT args->'job'->>'key', status::text FROM procrastinate_jobs ORDER BY id"
    return [(key, status) for key, status in rows(database, query)]


def count(database: Database, table: str) -> int:
    return int(rows(database, f"SELECT count(*) FROM {table}")[0][0])


def execute(database: Database, statement: str) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement))
