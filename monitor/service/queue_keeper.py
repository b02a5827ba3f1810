"""The queue in good order: the jobs of dead workers are handed on, old ones leave."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import procrastinate
from procrastinate.exceptions import ConnectorException

from monitor.errors import StoreError
from monitor.service.jobs import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
STALLED_AFTER_SECONDS = 10.0
"""A worker silent for so long is dead: its jobs are handed to another."""
MOST_ATTEMPTS = 10
"""A job that so many workers left unfinished may be what kills them: it is not handed to another."""
CLEAN_EVERY = timedelta(hours=1)
KEEP_JOBS_HOURS = 24
"""How long a failed job stays in the queue's table, to be looked at."""


class QueueKeeper:
    """Speaks for this process's worker and looks after those of others. `given_up` counts jobs that killed workers."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.worker_id: int | None = None
        self.given_up = 0

    async def run(self, app: procrastinate.App) -> None:
        """Hands jobs of workers that died without a word to the living, and says that this one lives.

        Procrastinate's worker is silent from the moment it is told to stop, while its last jobs may run for long.
        """
        clean_at = self.now()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                if self.worker_id is not None:
                    await app.job_manager.update_heartbeat(self.worker_id)
                await self._rescue(app)
                if self.now() >= clean_at:
                    clean_at = self.now() + CLEAN_EVERY
                    await app.job_manager.delete_old_jobs(
                        nb_hours=KEEP_JOBS_HOURS, include_failed=True, include_aborted=True
                    )
            except ConnectorException as error:
                logger.debug("the queue is not kept: %s", error)

    async def _rescue(self, app: procrastinate.App) -> None:
        for job in await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=STALLED_AFTER_SECONDS):
            key = cast("dict[str, Any]", job.task_kwargs["job"])["key"]
            if job.attempts < MOST_ATTEMPTS:
                logger.warning("job %s of a dead worker is taken up again", key)
                await app.job_manager.retry_job(job)
            else:
                self.given_up += 1
                logger.error("job %s is given up: workers died of it, or with it, %s times", key, job.attempts)
                await app.job_manager.finish_job(job, procrastinate.jobs.Status.FAILED, delete_job=False)


class HandBack(procrastinate.BaseRetryStrategy):
    """A job cut short by our own stopping or our own database goes back to the queue; other errors are bugs."""

    def get_retry_decision(
        self, *, exception: BaseException, job: procrastinate.jobs.Job
    ) -> procrastinate.RetryDecision | None:
        del job
        ours = (asyncio.CancelledError, procrastinate.exceptions.JobAborted, StoreError, ConnectorException)
        if isinstance(exception, ours):
            return procrastinate.RetryDecision(retry_at=datetime.now(UTC))
        return None
