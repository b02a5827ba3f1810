"""Takes probe jobs from the queue, makes the runs, and records what follows."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import procrastinate
from procrastinate.exceptions import ConnectorException, ProcrastinateException

from monitor.core.records import Identity, Run
from monitor.errors import StoreError, UsageError
from monitor.probing.replay import StandAside
from monitor.service.jobs import LATER, QUEUE, TASK, ProbeJob, defer, queue_app
from monitor.service.probes import run_probe, sampling_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from monitor.config.routes import Route
    from monitor.prompts.sets import PromptSet
    from monitor.service.recording import Recorded, Recorder
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
STALLED_AFTER_SECONDS = 10.0
"""A worker silent for so long is dead: its jobs are handed to another."""
STORE_RETRY_SECONDS = 1.0
STORE_PATIENCE = timedelta(minutes=30)
"""How long a finished run is kept in memory while the database is away."""
KEEP_JOBS_HOURS = 24


class Worker:
    """Runs probe jobs until stopped; jobs in flight finish, or go back to the queue after the grace period."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        prompt_sets: Mapping[str, PromptSet],
        *,
        concurrency: int,
        grace_seconds: float,
        on_recorded: Callable[[Run, Recorded], None],
        now: Callable[[], datetime],
    ) -> None:
        self.database = database
        self.recorder = recorder
        self.prompt_sets = prompt_sets
        self.concurrency = concurrency
        self.grace_seconds = grace_seconds
        self.on_recorded = on_recorded
        self.now = now
        self._stopping = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Works until `stop`; a lost database is waited for, and the jobs of a dead worker are taken up."""
        while not self._stopping.is_set():
            try:
                await self._work()
            except (ProcrastinateException, OSError) as error:
                logger.warning("not working: the queue does not answer (%s)", error)
            await self._pause(STORE_RETRY_SECONDS)

    def stop(self) -> None:
        self._stopping.set()

    async def _work(self) -> None:
        app = queue_app(self.database.conninfo())
        app.task(name=TASK, queue=QUEUE, retry=HandBack())(self.probe)
        app.task(name=LATER, queue=QUEUE, retry=HandBack())(self.probe_now)
        async with app.open_async():
            working = asyncio.create_task(
                app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=self.concurrency,
                    install_signal_handlers=False,
                    fetch_job_polling_interval=1.0,
                    abort_job_polling_interval=60.0,
                    update_heartbeat_interval=HEARTBEAT_SECONDS,
                    stalled_worker_timeout=STALLED_AFTER_SECONDS,
                    shutdown_graceful_timeout=self.grace_seconds,
                    delete_jobs="successful",
                )
            )
            rescuing = asyncio.create_task(self._rescue(app))
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({working, rescuing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            rescuing.cancel()
            stopping.cancel()
            working.cancel()
            results = await asyncio.gather(working, rescuing, stopping, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _rescue(self, app: procrastinate.App) -> None:
        """Hands jobs of workers that died without a word to the living."""
        while True:
            for job in await app.job_manager.get_stalled_jobs(
                queue=QUEUE, seconds_since_heartbeat=STALLED_AFTER_SECONDS
            ):
                logger.warning("job %s of a dead worker is taken up again", job.id)
                await app.job_manager.retry_job(job)
            await app.job_manager.delete_old_jobs(nb_hours=KEEP_JOBS_HOURS, include_failed=True, include_aborted=True)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def probe(self, job: dict[str, Any]) -> None:
        """One job: the run is made, then recorded however long the database takes to come back."""
        wanted = ProbeJob.from_dict(job)
        route = self.recorder.routes.get(wanted.route)
        prompt_set = self.prompt_sets.get(wanted.domain)
        if route is None or prompt_set is None or wanted.domain not in route.domains:
            logger.info("job %s is dropped: %s/%s is no longer configured", wanted.key, wanted.route, wanted.domain)
            return
        try:
            run = await run_probe(route, wanted, prompt_set)
        except UsageError as error:
            run = self._not_measured(route, wanted, prompt_set, "configuration", str(error))
        if isinstance(run, StandAside):
            if not await self._give_up(route, wanted):
                return
            detail = f"{run.waiting:.0f} requests waited for {route.stand_aside.give_up_after}"
            run = self._not_measured(route, wanted, prompt_set, "busy", detail)
        await self._record(wanted, run)

    async def probe_now(self, job: dict[str, Any]) -> None:
        """A probe that waited for its time takes its place among those of its replica."""
        await asyncio.to_thread(self._defer, ProbeJob.from_dict(job), None)

    async def _record(self, job: ProbeJob, run: Run) -> None:
        deadline = self.now() + STORE_PATIENCE
        while True:
            try:
                recorded = await asyncio.to_thread(self._record_once, job, run)
            except StoreError as error:
                if self.now() > deadline:
                    raise
                logger.warning("a finished run of %s/%s waits for the database: %s", run.route, run.domain, error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
                continue
            if recorded is not None:
                self.on_recorded(run, recorded)
            return

    def _record_once(self, job: ProbeJob, run: Run) -> Recorded | None:
        with self.database.transaction() as connection:
            return self.recorder.record(connection, job, run, self.now())

    async def _give_up(self, route: Route, job: ProbeJob) -> bool:
        """Queues the job again for later; True instead when it has stood aside long enough."""
        now = self.now()
        since = datetime.fromisoformat(job.waiting_since) if job.waiting_since else now
        if now - since >= route.stand_aside.give_up_after:
            return True
        logger.info("standing aside on %s: requests wait there", job.replica)
        later = replace(job, waiting_since=since.isoformat())
        await asyncio.to_thread(self._defer, later, now + route.stand_aside.retry_after)
        return False

    def _defer(self, job: ProbeJob, at: datetime | None) -> None:
        with self.database.transaction() as connection:
            defer(connection, job, at)

    def _not_measured(self, route: Route, job: ProbeJob, prompt_set: PromptSet, reason: str, detail: str) -> Run:
        now = self.now()
        return Run(
            route=route.name,
            domain=job.domain,
            replica=job.replica,
            prompt_set_hash=prompt_set.content_hash,
            concurrency=route.concurrency,
            sampling=sampling_of(route),
            reason=job.reason,
            started_at=now,
            finished_at=now,
            identity=Identity(),
            samples=(),
            invalid_reason=reason,
            invalid_detail=detail,
        )

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


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
