"""The state of everything now, in a few small queries: what /metrics and `routes` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text

from monitor.store.incidents import list_incidents, outbox_counts
from monitor.store.runs import run_document
from monitor.store.schema import runs

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class Snapshot:
    """`valid_runs`: latest valid run per route and domain. `last_finished`: (route, domain, valid, unix seconds)."""

    valid_runs: list[dict[str, Any]]
    last_finished: list[tuple[str, str, bool, float]]
    open_incidents: list[dict[str, Any]]
    outbox: dict[tuple[str, str], int]


# Guarantee: reads as many index entries as there are routes and domains, not as there are runs (its plan is tested).
LATEST_RUNS = text("""
    WITH RECURSIVE measured AS (
        (SELECT route, domain FROM runs ORDER BY route, domain LIMIT 1)
        UNION ALL
        SELECT next.route, next.domain
        FROM measured, LATERAL (
            SELECT route, domain FROM runs
            WHERE (route, domain) > (measured.route, measured.domain)
            ORDER BY route, domain LIMIT 1
        ) AS next
    )
    SELECT latest.id
    FROM measured, (VALUES (true), (false)) AS state (valid), LATERAL (
        SELECT id FROM runs
        WHERE route = measured.route AND domain = measured.domain AND valid = state.valid
        ORDER BY id DESC LIMIT 1
    ) AS latest
""")


def snapshot(connection: Connection) -> Snapshot:
    """The latest valid and the latest invalid run of every route and domain, open incidents, and the outbox."""
    ids = list(connection.execute(LATEST_RUNS).scalars())
    rows = list(
        connection.execute(select(runs).where(runs.c.id.in_(ids)).order_by(runs.c.route, runs.c.domain, runs.c.id))
    )
    return Snapshot(
        valid_runs=[run_document(row) for row in rows if row.valid],
        last_finished=[(row.route, row.domain, row.valid, row.finished_at.timestamp()) for row in rows],
        open_incidents=list_incidents(connection, open_only=True, limit=10_000),
        outbox=outbox_counts(connection),
    )
