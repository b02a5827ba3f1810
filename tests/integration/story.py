"""Runs as they come in, each recorded and judged, with the jobs, trips and incidents that follow."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from monitor.core.records import Reason, Run
from monitor.service.jobs import ProbeJob
from monitor.service.recording import Recorder
from monitor.store import incidents
from tests.factories import START, Lengths, make_config, make_run

if TYPE_CHECKING:
    from monitor.config.load import Config
    from monitor.core.judge import Outcome
    from monitor.service.case import Recorded
    from monitor.store.database import Database

WELL, DROPPED = 2.4, 1.92
"""Acceptance lengths of a well run and of one that lost 20 percent."""
EVERY = timedelta(minutes=40)
BOTH = {"console", "hook"}


class Story:
    """Runs as they come in, 40 minutes apart unless they say otherwise, each recorded in a transaction of its own."""

    def __init__(self, database: Database, config: Config | None = None) -> None:
        self.database = database
        self.recorder = Recorder(config or make_config())
        self.now = START
        self.told = 0

    def run(self, lengths: Lengths = WELL, *, job: ProbeJob | None = None, **changes: Any) -> Recorded:
        recorded = self.try_run(lengths, job=job, **changes)
        assert recorded is not None
        return recorded

    def try_run(self, lengths: Lengths = WELL, *, job: ProbeJob | None = None, **changes: Any) -> Recorded | None:
        """None when the job's run was stored before."""
        run = self.made(lengths, **changes)
        if job is None:
            self.told += 1
            job = ProbeJob(f"run {self.told}", run.route, run.domain, run.replica, run.reason)
        self.now = run.finished_at
        try:
            return self.record(job, run)
        finally:
            self.now = run.started_at + EVERY

    def made(self, lengths: Lengths, **changes: Any) -> Run:
        """The run that is recorded now."""
        return make_run(lengths, started_at=self.now, **changes)

    def record(self, job: ProbeJob, run: Run) -> Recorded | None:
        with self.database.transaction() as connection:
            return self.recorder.record(connection, job, run, self.now)

    def confirm(self, lengths: Lengths = DROPPED, **changes: Any) -> Recorded:
        """The next queued confirmation run is taken from the queue and made at its time."""
        due = next(job for job in self.jobs() if job["reason"] == "confirm")
        self.query("DELETE FROM procrastinate_jobs WHERE id = :id", id=due["id"])
        job = ProbeJob.from_dict(due["job"])
        self.now = due["scheduled_at"]
        changes = {"route": job.route, "domain": job.domain, "replica": job.replica, **changes}
        return self.run(lengths, job=job, reason=Reason.CONFIRM, **changes)

    def baseline(self, lengths: Lengths = WELL, **changes: Any) -> None:
        """Ten well runs: the policy approves a baseline from them."""
        assert [self.run(lengths, **changes).baseline_id for _ in range(10)][-1] is not None

    def incident(self, **changes: Any) -> int:
        """A drop of 20 percent, confirmed; the id of its incident."""
        self.run(DROPPED, **changes)
        self.confirm()
        [(incident_id, _)] = self.confirm().transitions
        return incident_id

    def query(self, statement: str, **values: Any) -> list[Any]:
        with self.database.transaction() as connection:
            result = connection.execute(text(statement), values)
            return [row._mapping for row in result] if result.returns_rows else []

    def count(self, table: str) -> int:
        [row] = self.query(f"SELECT count(*) AS n FROM {table}")
        return int(row["n"])

    def jobs(self) -> list[dict[str, Any]]:
        """What waits in the queue, the first queued first, with the keys of the probe job beside the queue's own."""
        rows = self.query(
            "SELECT id, queue_name, task_name, priority, lock, scheduled_at, args -> 'job' AS job "
            "FROM procrastinate_jobs ORDER BY id"
        )
        return [{**row, **row["job"]} for row in rows]

    def trip(self) -> tuple[str, int]:
        [row] = self.query("SELECT state, confirmations_queued FROM trips ORDER BY id DESC LIMIT 1")
        return row["state"], row["confirmations_queued"]

    def get_incident(self, incident_id: int) -> dict[str, Any]:
        with self.database.transaction() as connection:
            found = incidents.get_incident(connection, incident_id)
        assert found is not None
        return found


def outcomes(recorded: Recorded) -> list[Outcome]:
    return [verdict.outcome for _, verdict in recorded.verdicts]
