"""Takes probe jobs from the queue, makes the runs, and records what follows."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException, ProcrastinateException

from monitor.core.records import Identity, Run
from monitor.errors import StoreError, UsageError
from monitor.probing.replay import StandAside
from monitor.service.complaint import Complaint
from monitor.service.jobs import LATER, QUEUE, TASK, ProbeJob, defer, queue_app
from monitor.service.probes import run_probe, sampling_of
from monitor.store import runs

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
MOST_ATTEMPTS = 10
"""A job that so many workers left unfinished may be what kills them: it is not handed to another."""
STORE_RETRY_SECONDS = 1.0
STORE_PATIENCE = timedelta(minutes=30)
"""How long a finished run is kept in memory while the database is away."""
CLEAN_EVERY = timedelta(hours=1)
KEEP_JOBS_HOURS = 24
"""How long a failed job stays in the queue's table, to be looked at."""
INTERNAL_ERROR = "internal_error"
"""Invalid reason of a run that Specwatch itself failed to measure or to judge; its samples are kept."""


class Worker:
    """Runs probe jobs until stopped; jobs in flight finish, or go back to the queue after the grace period.

    `errors` counts what went wrong here by mistake, and neither at a replica nor in the database.
    """

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
        self.errors = 0
        self._stopping = asyncio.Event()
        self._probing: set[asyncio.Task[Any]] = set()
        self._worker_id: int | None = None
        self._idle = Complaint(logger, "no probe is begun", "probes are begun again")

    async def run(self) -> None:
        """Works until `stop`; a lost database is waited for, and the jobs of a dead worker are taken up."""
        handing_back = asyncio.create_task(self._hand_back_late())
        try:
            while not self._stopping.is_set():
                try:
                    await asyncio.to_thread(self.database.check_server)
                    await self._work()
                except (StoreError, ProcrastinateException, psycopg.Error, OSError) as error:
                    self._idle.raise_for(error)
                await self._pause(STORE_RETRY_SECONDS)
        finally:
            handing_back.cancel()

    def stop(self) -> None:
        """No job is begun from now on."""
        self._stopping.set()

    async def _hand_back_late(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(self.grace_seconds)
        for task in self._probing:
            task.cancel()

    async def _work(self) -> None:
        """Takes jobs until `stop` or until the database is lost; ends when those it took have ended.

        A lost database ends no probe: its run is kept until it can be stored, so only `stop` has a grace period.
        """
        app = queue_app(self.database.conninfo())
        app.task(name=TASK, queue=QUEUE, pass_context=True, retry=HandBack())(self.probe)
        app.task(name=LATER, queue=QUEUE, retry=HandBack())(self.probe_now)
        self._worker_id = None
        async with app.open_async():
            self._idle.end()
            working = asyncio.create_task(
                app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=self.concurrency,
                    install_signal_handlers=False,
                    fetch_job_polling_interval=1.0,
                    abort_job_polling_interval=60.0,
                    update_heartbeat_interval=HEARTBEAT_SECONDS,
                    stalled_worker_timeout=KEEP_JOBS_HOURS * 3600,
                    delete_jobs="successful",
                )
            )
            keeping = asyncio.create_task(self._keep_queue(app))
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({working, keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            await asyncio.wait({working})
            keeping.cancel()
            stopping.cancel()
            await asyncio.wait({keeping, stopping})
        for task in (working, keeping):
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise error

    async def _keep_queue(self, app: procrastinate.App) -> None:
        """Hands jobs of workers that died without a word to the living, and says that this one lives.

        Procrastinate's worker is silent from the moment it is told to stop, while its last jobs may run for long.
        """
        clean_at = self.now()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                if self._worker_id is not None:
                    await app.job_manager.update_heartbeat(self._worker_id)
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
            key = ProbeJob.from_dict(cast("dict[str, Any]", job.task_kwargs["job"])).key
            if job.attempts < MOST_ATTEMPTS:
                logger.warning("job %s of a dead worker is taken up again", key)
                await app.job_manager.retry_job(job)
            else:
                self.errors += 1
                logger.error("job %s is given up: workers died of it, or with it, %s times", key, job.attempts)
                await app.job_manager.finish_job(job, procrastinate.jobs.Status.FAILED, delete_job=False)

    async def probe(self, context: procrastinate.JobContext, job: dict[str, Any]) -> None:
        """One job: the run is made, then recorded however long the database takes to come back."""
        self._worker_id = context.job.worker_id
        wanted = ProbeJob.from_dict(job)
        task = asyncio.current_task()
        assert task is not None
        self._probing.add(task)
        try:
            await self._probe(wanted)
        except StoreError:
            raise
        except Exception:
            self._mistake(f"job {wanted.key} failed and its run is lost")
            raise
        finally:
            self._probing.discard(task)

    async def _probe(self, wanted: ProbeJob) -> None:
        route = self.recorder.routes.get(wanted.route)
        prompt_set = self.prompt_sets.get(wanted.domain)
        if route is None or prompt_set is None or wanted.domain not in route.domains:
            logger.info("job %s is dropped: %s/%s is no longer configured", wanted.key, wanted.route, wanted.domain)
            return
        if await asyncio.to_thread(self._is_recorded, wanted):
            return
        run = await self._measure(route, wanted, prompt_set)
        if isinstance(run, StandAside):
            if not await self._give_up(route, wanted):
                return
            detail = f"{run.waiting:.0f} requests waited for {route.stand_aside.give_up_after}"
            run = self._not_measured(route, wanted, prompt_set, "busy", detail)
        await self._record(wanted, run)

    async def probe_now(self, job: dict[str, Any]) -> None:
        """A probe that waited for its time takes its place among those of its replica."""
        await asyncio.to_thread(self._defer, ProbeJob.from_dict(job), None)

    def _is_recorded(self, job: ProbeJob) -> bool:
        """Whether an earlier attempt at this job got as far as its run: then there is nothing left to measure."""
        with self.database.transaction() as connection:
            return runs.is_recorded(connection, job.key)

    async def _measure(self, route: Route, job: ProbeJob, prompt_set: PromptSet) -> Run | StandAside:
        try:
            return await run_probe(route, job, prompt_set)
        except UsageError as error:
            return self._not_measured(route, job, prompt_set, "configuration", str(error))
        except Exception as error:  # noqa: BLE001  (logged in _mistake)
            self._mistake(f"job {job.key} could not be measured")
            return self._not_measured(route, job, prompt_set, INTERNAL_ERROR, _told(error))

    async def _record(self, job: ProbeJob, run: Run) -> None:
        """Stores and judges the run. One that cannot be judged is stored as invalid: it is not good news, nor lost."""
        try:
            recorded = await self._record_patiently(job, run)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  (logged in _mistake)
            self._mistake(f"the run of job {job.key} could not be recorded as it is")
            run = replace(run, invalid_reason=INTERNAL_ERROR, invalid_detail=_told(error))
            recorded = await self._record_patiently(job, run)
        if recorded is not None:
            self.on_recorded(run, recorded)

    async def _record_patiently(self, job: ProbeJob, run: Run) -> Recorded | None:
        deadline = self.now() + STORE_PATIENCE
        what = f"run of {run.route}/{run.domain}"
        waiting = Complaint(logger, f"a finished {what} waits for the database", f"the {what} is stored")
        while True:
            try:
                recorded = await asyncio.to_thread(self._record_once, job, run)
            except StoreError as error:
                if self.now() > deadline:
                    raise
                waiting.raise_for(error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
            else:
                waiting.end()
                return recorded

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

    def _mistake(self, what: str) -> None:
        """Logs the exception at hand; such a thing is a bug, so it comes with its traceback."""
        self.errors += 1
        logger.exception("%s; this is a mistake in Specwatch, please report it", what)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


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
