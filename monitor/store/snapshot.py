"""The state of everything now, in three small queries: what /metrics and `routes` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

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


def snapshot(connection: Connection) -> Snapshot:
    latest = (
        select(runs)
        .distinct(runs.c.route, runs.c.domain, runs.c.valid)
        .order_by(runs.c.route, runs.c.domain, runs.c.valid, runs.c.id.desc())
    )
    rows = list(connection.execute(latest))
    return Snapshot(
        valid_runs=[run_document(row) for row in rows if row.valid],
        last_finished=[(row.route, row.domain, row.valid, row.finished_at.timestamp()) for row in rows],
        open_incidents=list_incidents(connection, open_only=True, limit=10_000),
        outbox=outbox_counts(connection),
    )
