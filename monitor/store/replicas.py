"""How the replicas of a route stand to each other, by their latest runs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from monitor.core.figures import metric_values
from monitor.core.records import Counts, Sample, Source
from monitor.core.replicas import ReplicaDifference, ReplicaRun, differing_replica
from monitor.store.retention import without_samples
from monitor.store.runs import comparability
from monitor.store.schema import SERVING, runs, samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

LATEST_RUNS = 40
"""Looked at per route and domain: two rounds over twenty replicas."""
RECENT = timedelta(days=2)


def replica_difference(
    connection: Connection, route: str, domain: str, until: int | None = None
) -> ReplicaDifference | None:
    """The replica whose acceptance length differs, among the latest runs that can be compared with the newest one.

    `until`: as it was known at that run. None, too, where samples of these runs are no longer kept: from the rest
    another replica could seem to differ.
    Guarantee: samples are read only where there is more than one replica, and at most 40 runs' without their chunks.
    """
    alike = _alike(connection, route, domain, until)
    ids = [row.id for row in alike]
    if not alike or without_samples(connection, ids):
        return None
    values = _acceptance_lengths(connection, ids)
    return differing_replica(
        [ReplicaRun(row.id, row.replica, row.started_at, values.get(row.id, {})) for row in alike],
        alike[0].source or "none",
    )


def runs_beside(connection: Connection, route: str, domain: str, until: int) -> list[int]:
    """Ids of the runs that `replica_difference` looks at; none where there is one replica."""
    return [row.id for row in _alike(connection, route, domain, until)]


def _alike(connection: Connection, route: str, domain: str, until: int | None) -> list[Row[Any]]:
    """The latest runs that can be compared with the newest one, newest first, of more than one replica."""
    statement = (
        select(runs)
        .where(runs.c.route == route, runs.c.domain == domain, runs.c.valid, SERVING)
        .order_by(runs.c.id.desc())
        .limit(LATEST_RUNS)
    )
    if until is not None:
        statement = statement.where(runs.c.id <= until)
    rows = connection.execute(statement).all()
    alike = [
        row
        for row in rows
        if row.identity_id == rows[0].identity_id
        and comparability(row) == comparability(rows[0])
        and row.started_at > rows[0].started_at - RECENT
    ]
    return alike if len({row.replica for row in alike}) > 1 else []


def _acceptance_lengths(connection: Connection, run_ids: Sequence[int]) -> dict[int, dict[str, float]]:
    """run id → question id → acceptance length, from raw counts."""
    c = samples.c
    wanted = (c.run_id, c.question_id, c.source, c.steps, c.accepted, c.invalid_reason)
    by_run: dict[int, list[Sample]] = {}
    for row in connection.execute(select(*wanted).where(c.run_id.in_(run_ids))):
        sample = Sample(
            row.question_id,
            None if row.source is None else Source(row.source),
            Counts(row.steps, None, row.accepted),
            invalid_reason=row.invalid_reason,
        )
        by_run.setdefault(row.run_id, []).append(sample)
    return {run_id: metric_values(found, "acceptance_length") for run_id, found in by_run.items()}
