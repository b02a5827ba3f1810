"""Slots in the queue: each once, and none behind a probe of its own that nobody has begun."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob, defer
from monitor.service.scheduler import Scheduler
from monitor.store import queue
from tests.factories import DOMAIN, REPLICA, ROUTE, START, make_route

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from monitor.store.database import Database

EVERY = timedelta(minutes=40)


class Schedule:
    """A scheduler on a clock that the test moves."""

    def __init__(self, database: Database, **route) -> None:
        self.database = database
        self.route = make_route(**route)
        self.now = START
        self.scheduler = Scheduler(database, [self.route], lambda: self.now)

    def queue(self, domain: str = DOMAIN, after: timedelta = timedelta(0)) -> bool:
        self.now += after
        return self.scheduler.queue_slot(self.route, domain)

    def set_state(self, state: str) -> None:
        with self.database.transaction() as connection:
            connection.execute(text(f"UPDATE procrastinate_jobs SET status = '{state}'"))


@pytest.fixture
def schedule(database: Database) -> Schedule:
    return Schedule(database)


def test_a_slot_is_queued_once(schedule: Schedule) -> None:
    assert [schedule.queue(), schedule.queue(), schedule.queue("math")] == [True, False, True]
    assert schedule.scheduler.left_out == 0


def test_a_slot_whose_earlier_probe_still_waits_is_left_out_and_counted(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    assert schedule.queue()
    assert [schedule.queue(after=EVERY), schedule.queue(after=EVERY)] == [False, False]
    assert schedule.scheduler.left_out == 2
    assert caplog.messages == [
        "chat-prod · coding: a slot is left out, the probe before it still waits for http://vllm-0:8000; probes take "
        "longer than every 40m allows, or --workers is too low (told once an hour)"
    ]


def test_a_slot_that_comes_soon_after_a_start_is_no_sign_of_slow_probes(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    assert schedule.queue()
    schedule.scheduler.leads_since = START
    assert [schedule.queue(after=EVERY - timedelta(minutes=1)), schedule.scheduler.left_out] == [False, 0]
    assert caplog.messages == []
    assert [schedule.queue(after=EVERY), schedule.scheduler.left_out] == [False, 1]
    assert "a slot is left out" in caplog.text


def test_a_slot_is_queued_behind_a_probe_that_is_under_way(schedule: Schedule) -> None:
    schedule.queue()
    schedule.set_state("doing")
    assert schedule.queue(after=EVERY)


def test_a_probe_that_waits_for_one_replica_keeps_none_off_another(database: Database) -> None:
    schedule = Schedule(database, replicas=[REPLICA, "http://vllm-1:8000"])
    assert [schedule.queue(), schedule.queue(after=EVERY), schedule.queue(after=EVERY)] == [True, True, False]


def test_only_a_scheduled_probe_stands_for_a_slot(schedule: Schedule) -> None:
    with schedule.database.transaction() as connection:
        defer(connection, ProbeJob("c", ROUTE, DOMAIN, REPLICA, Reason.CONFIRM), START)
    assert schedule.queue()


def test_speedup_is_due_at_its_own_period_and_keeps_no_run_back(database: Database) -> None:
    schedule = Schedule(database, plain_twin="http://twin:8000", speedup_every="6h")

    def queue(hours: int) -> tuple[bool, bool]:
        schedule.now += timedelta(hours=hours)
        queue_slot = schedule.scheduler.queue_slot
        return queue_slot(schedule.route, DOMAIN, Reason.SPEEDUP), queue_slot(schedule.route, DOMAIN)

    assert queue(0) == (True, True)
    schedule.set_state("succeeded")
    assert queue(3)[1]
    schedule.set_state("succeeded")
    assert queue(3) == (True, True)
    assert queue(6) == (False, False)


def test_waiting_jobs_are_found_without_reading_those_that_ended(connection: Connection) -> None:
    """Thousands of failed jobs may stay for a day; what waits is at most one per route, domain and replica."""
    connection.execute(
        text(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, status, args) "
            "SELECT 'probes', 'probe', 'failed', '{\"job\": {}}' FROM generate_series(1, 5000)"
        )
    )
    connection.execute(text("ANALYZE procrastinate_jobs"))
    statement = text(f"EXPLAIN {queue.WAITING.text}")
    values = {"route": "a", "domain": "b", "replica": "c", "reason": "scheduled"}
    plan = connection.execute(statement, values).scalars().all()
    assert any("priority_idx" in line or "id_lock_idx" in line for line in plan), plan
    assert not any("Seq Scan" in line for line in plan), plan
