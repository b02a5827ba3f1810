"""Takes probes and gates from the queue, for the prober and the gate runner, until stopped or without the database."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import psycopg
from procrastinate.exceptions import ProcrastinateException

from monitor.errors import StoreError
from monitor.service.complaint import Complaint
from monitor.service.jobs import GATE, GATE_LATER, LATER, QUEUE, TASK, GateJob, ProbeJob, queue_app
from monitor.service.queue_keeper import HEARTBEAT_SECONDS, KEEP_JOBS_HOURS, HandBack, QueueKeeper

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from procrastinate import JobContext

    from monitor.service.gate_runner import GateRunner
    from monitor.service.prober import Prober
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Between two looks at whether a lost database is back."""


class Worker:
    """Runs probes and gates until stopped; jobs in flight finish, or go back to the queue after the grace period."""

    def __init__(
        self, database: Database, prober: Prober, gates: GateRunner, *, concurrency: int, grace_seconds: float
    ) -> None:
        self.database = database
        self.prober = prober
        self.gates = gates
        self.concurrency = concurrency
        self.grace_seconds = grace_seconds
        self.keeper = QueueKeeper(prober.now)
        self._stopping = asyncio.Event()
        self._probing: set[asyncio.Task[Any]] = set()
        self._idle = Complaint(logger, "no probe is begun", "probes are begun again")

    @property
    def errors(self) -> int:
        """What went wrong here by mistake, and neither at a replica nor in the database."""
        return self.prober.errors + self.gates.errors + self.keeper.given_up

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
                await self._pause(RETRY_SECONDS)
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
        app.task(name=GATE, queue=QUEUE, pass_context=True, retry=HandBack())(self.gate)
        app.task(name=GATE_LATER, queue=QUEUE, retry=HandBack())(self.gate_now)
        self.keeper.worker_id = None
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
            keeping = asyncio.create_task(self.keeper.run(app))
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

    async def probe(self, context: JobContext, job: dict[str, Any]) -> None:
        await self._in_time(context, self.prober.work(ProbeJob.from_dict(job)))

    async def probe_now(self, job: dict[str, Any]) -> None:
        """A probe whose time has come."""
        await self.prober.take_its_turn(ProbeJob.from_dict(job))

    async def gate(self, context: JobContext, job: dict[str, Any]) -> None:
        await self._in_time(context, self.gates.work(GateJob(**job)))

    async def gate_now(self, job: dict[str, Any]) -> None:
        """A gate whose time has come."""
        await self.gates.take_its_turn(GateJob(**job))

    async def _in_time(self, context: JobContext, work: Coroutine[Any, Any, None]) -> None:
        """One job, which may be cancelled once the grace period is over."""
        self.keeper.worker_id = context.job.worker_id
        task = asyncio.current_task()
        assert task is not None
        self._probing.add(task)
        try:
            await work
        finally:
            self._probing.discard(task)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
