"""The state of everything now, in four small queries: what /metrics and `routes` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, select, true, tuple_

from monitor.store.incidents import is_broken, list_incidents
from monitor.store.outbox import outbox_counts
from monitor.store.runs import run_document
from monitor.store.schema import runs
from monitor.store.verdicts import verdicts_of

if TYPE_CHECKING:
    from sqlalchemy import CTE, Connection, Select


@dataclass(frozen=True)
class Snapshot:
    """The latest valid and the latest invalid run of every route and domain, as documents, and what hangs on them.

    `verdicts`: run id → verdicts of the valid runs.
    """

    valid_runs: list[dict[str, Any]]
    invalid_runs: list[dict[str, Any]]
    verdicts: dict[int, list[dict[str, Any]]]
    open_incidents: list[dict[str, Any]]
    outbox: dict[tuple[str, str], int]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every route and domain with a run, sorted."""
        return sorted({(run["route"], run["domain"]) for run in (*self.valid_runs, *self.invalid_runs)})

    def valid(self, route: str, domain: str) -> dict[str, Any] | None:
        return _of(self.valid_runs, route, domain)

    def invalid(self, route: str, domain: str) -> dict[str, Any] | None:
        return _of(self.invalid_runs, route, domain)

    def is_broken(self, route: str, domain: str) -> bool:
        return any(found["route"] == route and is_broken(found, domain) for found in self.open_incidents)


def _of(found: list[dict[str, Any]], route: str, domain: str) -> dict[str, Any] | None:
    return next((run for run in found if run["route"] == route and run["domain"] == domain), None)


def snapshot(connection: Connection) -> Snapshot:
    valid, invalid = (
        [run_document(row) for row in connection.execute(latest_statement(state))] for state in (True, False)
    )
    return Snapshot(
        valid_runs=valid,
        invalid_runs=invalid,
        verdicts=verdicts_of(connection, [run["id"] for run in valid]),
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
