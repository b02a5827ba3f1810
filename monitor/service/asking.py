"""Runs that a person asks for: queued like scheduled ones, at once, and waited for."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from monitor.core.records import Reason
from monitor.core.schedule import current_slot, replica_index
from monitor.service.jobs import ProbeJob, defer
from monitor.service.queue_keeper import STALLED_AFTER_SECONDS
from monitor.store import queue, runs, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.routes import Route
    from monitor.store.database import Database

LOOK_EVERY_SECONDS = 0.5


def ask(
    database: Database,
    route: Route,
    domains: Sequence[str],
    replicas: Sequence[str],
    replica: str | None,
    now: datetime,
) -> tuple[list[ProbeJob], bool]:
    """Queues a probe of each domain; with it, whether any process lives that takes probes from this queue.

    `replica`: where; None: where of the route's `replicas` each domain's current slot went, so that asking
    again an hour later visits others.
    """
    number = uuid.uuid4().hex[:12]
    jobs = [
        ProbeJob(
            f"asked {number} {domain}", route.name, domain, replica or _due(route, domain, replicas, now), Reason.ASKED
        )
        for domain in domains
    ]
    with database.transaction() as connection:
        for job in jobs:
            defer(connection, job)
        return jobs, is_served(connection)


def is_served(connection: Connection) -> bool:
    """Whether any process lives that takes probes from this queue."""
    return queue.worker_lives(connection, STALLED_AFTER_SECONDS)


def _due(route: Route, domain: str, replicas: Sequence[str], now: datetime) -> str:
    slot = current_slot(route.name, domain, route.every, now)
    return replicas[replica_index(slot, route.every, route.domains.index(domain), len(replicas))]


class Nobody(Exception):  # noqa: N818  (it is no error of the program)
    """For as long as the caller's patience nobody was there to take the probes."""


def recorded(
    database: Database, jobs: Sequence[ProbeJob], *, timeout_seconds: float, alone_seconds: float
) -> Iterator[tuple[ProbeJob, dict[str, Any] | None, list[dict[str, Any]]]]:
    """Each job with its run's document and verdicts as soon as they are stored; None when it left the queue without.

    Raises Nobody after `alone_seconds` in which no process lived that takes probes, TimeoutError after
    `timeout_seconds`, and StoreError.
    """
    open_jobs = {job.key: job for job in jobs}
    began = seen = time.monotonic()
    while open_jobs:
        found, lives = _look(database, list(open_jobs))
        for key, (run, judged) in found.items():
            yield open_jobs.pop(key), run, judged
        now = time.monotonic()
        seen = now if lives else seen
        if open_jobs and now - seen >= alone_seconds:
            raise Nobody
        if open_jobs and now - began >= timeout_seconds:
            raise TimeoutError
        if open_jobs:
            time.sleep(LOOK_EVERY_SECONDS)


def _look(
    database: Database, keys: list[str]
) -> tuple[dict[str, tuple[dict[str, Any] | None, list[dict[str, Any]]]], bool]:
    """What has become of those that have an end, and whether anybody works."""
    with database.transaction() as connection:
        # In this order: a run is stored before its job leaves the queue, and each statement sees a later moment.
        states = queue.job_states(connection, keys)
        stored = runs.runs_by_key(connection, keys)
        judged = verdicts.verdicts_of(connection, [run["id"] for run in stored.values()])
        lives = queue.worker_lives(connection, STALLED_AFTER_SECONDS)
    ended = [key for key in keys if key in stored or states.get(key, "failed") == "failed"]
    return {key: (run := stored.get(key), judged.get(run["id"], []) if run else []) for key in ended}, lives
