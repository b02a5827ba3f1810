"""The queue of probes: one at a time per replica, confirmations first, nothing before its time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from monitor.core.records import Reason
from monitor.errors import StoreError
from monitor.service.jobs import LATER, QUEUE, ProbeJob, defer, queue_app
from tests.factories import DOMAIN, REPLICA, ROUTE, START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from procrastinate import App

    from monitor.store.database import Database
    from tests.integration.story import Story


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[App]:
    app = queue_app(database.conninfo())
    async with app.open_async():
        yield app


async def fetched(app: App) -> list[str]:
    """Keys of the jobs a worker may start now, each left running."""
    worker = await app.job_manager.register_worker()
    keys = []
    while job := await app.job_manager.fetch_job([QUEUE], worker):
        keys.append(job.task_kwargs["job"]["key"])
    return keys


def queued(story: Story, key: str, reason: Reason, at: datetime | None = None, replica: str = REPLICA) -> None:
    with story.database.transaction() as connection:
        defer(connection, ProbeJob(key, ROUTE, DOMAIN, replica, reason), at)


async def test_one_probe_at_a_time_runs_on_a_replica_confirmations_first(story: Story, queue: App) -> None:
    queued(story, "slot", Reason.SCHEDULED)
    queued(story, "elsewhere", Reason.SCHEDULED, replica="http://vllm-1:8000")
    queued(story, "confirm", Reason.CONFIRM)
    assert await fetched(queue) == ["confirm", "elsewhere"]


async def test_a_job_whose_time_has_come_takes_its_place_though_the_replica_is_busy(story: Story, queue: App) -> None:
    queued(story, "slot", Reason.SCHEDULED)
    assert await fetched(queue) == ["slot"]
    queued(story, "confirm", Reason.CONFIRM, START)
    [job] = [job for job in story.jobs() if job["task_name"] == LATER]
    assert await fetched(queue) == [job["key"]]


async def test_a_confirmation_that_is_not_due_yet_does_not_keep_other_probes_waiting(story: Story, queue: App) -> None:
    queued(story, "confirm", Reason.CONFIRM, datetime(2999, 1, 1, tzinfo=START.tzinfo))
    queued(story, "slot", Reason.SCHEDULED)
    assert await fetched(queue) == ["slot"]


def test_a_job_survives_the_queue_as_it_was() -> None:
    job = ProbeJob("k", ROUTE, DOMAIN, REPLICA, Reason.CONFIRM, 3, "2026-03-02T10:00:00+00:00")
    assert ProbeJob.from_dict(job.as_dict()) == job


def test_a_database_lost_while_a_job_is_queued_is_told_as_such(story: Story) -> None:
    def queue_while_the_database_goes_away() -> None:
        with story.database.transaction() as connection:
            [[own]] = connection.exec_driver_sql("SELECT pg_backend_pid()")
            story.query("SELECT pg_terminate_backend(:pid)", pid=own)
            defer(connection, ProbeJob("k", ROUTE, DOMAIN, REPLICA, Reason.MANUAL))

    with pytest.raises(StoreError, match="does not answer"):
        queue_while_the_database_goes_away()
    assert story.jobs() == []
