"""The state of everything now, in four small queries: what /metrics and `routes` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, select, true, tuple_

from monitor.store.incidents import list_incidents, outbox_counts
from monitor.store.runs import run_document
from monitor.store.schema import runs

if TYPE_CHECKING:
    from sqlalchemy import CTE, Connection, Select


@dataclass(frozen=True)
class Snapshot:
    """`valid_runs`: latest valid run per route and domain. `last_finished`: (route, domain, valid, unix seconds)."""

    valid_runs: list[dict[str, Any]]
    last_finished: list[tuple[str, str, bool, float]]
    open_incidents: list[dict[str, Any]]
    outbox: dict[tuple[str, str], int]


def snapshot(connection: Connection) -> Snapshot:
    rows = [row for valid in (True, False) for row in connection.execute(latest_statement(valid))]
    return Snapshot(
        valid_runs=[run_document(row) for row in rows if row.valid],
        last_finished=[(row.route, row.domain, row.valid, row.finished_at.timestamp()) for row in rows],
        open_incidents=list_incidents(connection, open_only=True, limit=10_000),
        outbox=outbox_counts(connection),
    )


def latest_statement(valid: bool) -> Select[Any]:
    """Guarantee: a few index entries per route and domain (its plan is tested), however many runs are stored."""
    pairs = _pairs()
    its_own = and_(runs.c.route == pairs.c.route, runs.c.domain == pairs.c.domain)
    such = runs.c.valid if valid else ~runs.c.valid
    latest = select(runs).where(its_own, such).order_by(runs.c.id.desc()).limit(1).lateral("latest")
    return select(latest).select_from(pairs.join(latest, true())).order_by(latest.c.route, latest.c.domain)


def _pairs() -> CTE:
    """Every route and domain with a run, each found by one step in the index from the one before it."""
    pair = (runs.c.route, runs.c.domain)
    first = select(*pair).order_by(*pair).limit(1).cte("pairs", recursive=True)
    beyond = tuple_(*pair) > tuple_(first.c.route, first.c.domain)
    following = select(*pair).where(beyond).order_by(*pair).limit(1).lateral("following")
    return first.union_all(select(following).select_from(first.join(following, true())))
