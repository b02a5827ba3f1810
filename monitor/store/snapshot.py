"""The state of everything now, in a few small queries: what /metrics and `routes` show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_

from monitor.store.incidents import is_broken, list_incidents
from monitor.store.newest import newest
from monitor.store.outbox import oldest_waiting, outbox_counts
from monitor.store.runs import run_document
from monitor.store.schema import SERVING, runs
from monitor.store.speedups import newest_speedups
from monitor.store.verdicts import verdicts_of

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Select


@dataclass(frozen=True)
class Snapshot:
    """The latest valid and the latest invalid run of every route and domain, as documents, and what hangs on them.

    `verdicts`: run id → verdicts of the valid runs. `speedups`: the newest valid of every route and domain.
    `oldest_waiting`: receiver → since when its oldest message waits.
    """

    valid_runs: list[dict[str, Any]]
    invalid_runs: list[dict[str, Any]]
    verdicts: dict[int, list[dict[str, Any]]]
    open_incidents: list[dict[str, Any]]
    outbox: dict[tuple[str, str], int]
    speedups: list[dict[str, Any]] = field(default_factory=list)
    oldest_waiting: dict[str, datetime] = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every route and domain with a run, sorted."""
        return sorted({(run["route"], run["domain"]) for run in (*self.valid_runs, *self.invalid_runs)})

    def valid(self, route: str, domain: str) -> dict[str, Any] | None:
        return _of(self.valid_runs, route, domain)

    def invalid(self, route: str, domain: str) -> dict[str, Any] | None:
        return _of(self.invalid_runs, route, domain)

    def broken_in(self, route: str, domain: str) -> set[str]:
        """The kinds of open incidents that the domain is broken in."""
        return {one["kind"] for one in self.open_incidents if one["route"] == route and is_broken(one, domain)}


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
        speedups=newest_speedups(connection, valid_only=True),
        oldest_waiting=oldest_waiting(connection),
    )


def latest_statement(valid: bool) -> Select[Any]:
    """Guarantee: a few index entries per route and domain (its plan is tested), however many runs are stored."""
    return newest(runs, and_(runs.c.valid if valid else ~runs.c.valid, SERVING))
