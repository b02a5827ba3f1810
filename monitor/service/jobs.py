"""Probe jobs and the queue they wait in: Procrastinate on the same Postgres, deferred inside our own transactions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException

from monitor.core.address import url_and_rank
from monitor.core.records import Reason
from monitor.errors import StoreError
from monitor.store.queue import server_lock

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

QUEUE = "probes"
TASK = "probe"
LATER = "probe later"
"""Waits without the replica's lock until it is due, then queues the probe: a job that holds a lock while it is not due
would keep every other probe off the replica."""
GATE, GATE_LATER = "gate", "gate later"
"""As with probes: what waits for its time holds no lock meanwhile."""
GATE_PRIORITY = 15
"""A pipeline waits for it: before scheduled probes, after confirmations, which decide an alert."""
POOL_SECONDS = 3.0
"""How long the worker waits for a connection: twice that much is the most a lost database adds to stopping."""
PRIORITIES = {
    Reason.CONFIRM: 20,
    Reason.BUMP: 10,
    Reason.MANUAL: 10,
    Reason.ASKED: 10,
    Reason.SCHEDULED: 0,
    Reason.SPEEDUP: -10,
}
"""A confirmation decides an alert, so it overtakes scheduled probes waiting for the same replica; speedup waits for all
of them."""


@dataclass(frozen=True)
class ProbeJob:
    """One run to make; `key` is the run's key, so that a job that runs twice stores once.

    `waiting_since` (ISO time): when the job first stood aside for a busy replica.
    """

    key: str
    route: str
    domain: str
    replica: str
    reason: Reason
    trip_id: int | None = None
    waiting_since: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "reason": self.reason.value}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> ProbeJob:
        return cls(**{**document, "reason": Reason(document["reason"])})


@dataclass(frozen=True)
class GateJob:
    """One gate to measure. `replica`: whose scheduled probes wait until it is over; the other side is claimed."""

    key: str
    route: str
    gate_id: int
    replica: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_deferrer = App(connector=SyncPsycopgConnector())


def defer(connection: Connection, job: ProbeJob, at: datetime | None = None) -> None:
    """Queues the job when the transaction commits; jobs of one server run one after the other, whatever its rank.

    `at`: not before this time. Raises StoreError when the database is lost meanwhile.
    """
    _defer(connection, TASK if at is None else LATER, job, at, PRIORITIES[job.reason])


def defer_gate(connection: Connection, job: GateJob, at: datetime | None = None) -> None:
    """Queues the gate as `defer` does a probe: in line with the probes of its replica. Raises StoreError."""
    _defer(connection, GATE if at is None else GATE_LATER, job, at, GATE_PRIORITY)


def _defer(connection: Connection, name: str, job: ProbeJob | GateJob, at: datetime | None, priority: int) -> None:
    task = _deferrer.configure_task(
        name,
        queue=QUEUE,
        lock=server_lock(url_and_rank(job.replica)[0]) if at is None else None,
        schedule_at=at,
        priority=priority,
        connection=connection.connection.driver_connection,
    )
    try:
        task.defer(job=job.as_dict())
    except ConnectorException as error:
        raise StoreError(f"the job queue does not answer: {error.__cause__ or error}") from error


def queue_app(conninfo: str) -> App:
    """The worker's side of the queue, with a pool of its own."""
    return App(connector=PsycopgConnector(conninfo=conninfo, min_size=1, max_size=4, timeout=POOL_SECONDS))
