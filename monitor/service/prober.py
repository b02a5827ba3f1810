"""One probe job: the run is made, then recorded however long the database takes to come back."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from monitor.core.address import url_and_rank
from monitor.core.records import Identity, Reason, Run
from monitor.errors import StoreError, UsageError
from monitor.probing.replay import StandAside
from monitor.service.complaint import Complaint
from monitor.service.discovery import Replicas
from monitor.service.jobs import ProbeJob, defer
from monitor.service.losing import SpeedupJudging
from monitor.service.probes import run_probe, sampling_of
from monitor.service.speedups import SpeedupProber
from monitor.store import gate_requests, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from monitor.config.routes import Route
    from monitor.prompts.sets import PromptSet
    from monitor.service.case import Recorded
    from monitor.service.recording import Recorder
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

STORE_RETRY_SECONDS = 1.0
STORE_PATIENCE = timedelta(minutes=30)
"""How long a finished run is kept in memory while the database is away."""
AFTER_A_GATE = timedelta(seconds=10)
"""Until a replica that a gate measures is tried again."""
INTERNAL_ERROR = "internal_error"
"""Invalid reason of a run that Specwatch itself failed to measure or to judge; its samples are kept."""


class Prober:
    """Works on jobs, any number at once. `errors` counts what went wrong by a mistake of Specwatch itself."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        prompt_sets: Mapping[str, PromptSet],
        *,
        on_recorded: Callable[[Run, Recorded], None],
        now: Callable[[], datetime],
        replicas: Replicas | None = None,
    ) -> None:
        self.database = database
        self.recorder = recorder
        self.prompt_sets = prompt_sets
        self.on_recorded = on_recorded
        self.now = now
        self.errors = 0
        self.replicas = replicas or Replicas(recorder.routes.values())
        self._speedups = SpeedupProber(database, now, SpeedupJudging(recorder.alerting, self.replicas))

    async def work(self, wanted: ProbeJob) -> None:
        """Makes and records the job's run. Raises StoreError when the database stays away for half an hour."""
        try:
            await self._probe(wanted)
        except StoreError:
            raise
        except Exception:
            self._mistake(f"job {wanted.key} failed and its run is lost")
            raise

    async def take_its_turn(self, job: ProbeJob) -> None:
        """A probe that waited for its time takes its place among those of its replica."""
        await asyncio.to_thread(self._defer, job, None)

    async def _probe(self, wanted: ProbeJob) -> None:
        route = self.recorder.routes.get(wanted.route)
        prompt_set = self.prompt_sets.get(wanted.domain)
        if route is None or prompt_set is None or wanted.domain not in route.domains:
            logger.info("job %s is dropped: %s/%s is no longer configured", wanted.key, wanted.route, wanted.domain)
            return
        if await self._moved(route, wanted):
            return
        if await asyncio.to_thread(self._kept_off, route, wanted):
            return
        if wanted.reason is Reason.SPEEDUP:
            await self._speedups.work(route, wanted, prompt_set)
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

    async def _moved(self, route: Route, job: ProbeJob) -> bool:
        """Queues the job for a replica that is there where its own has left the route since: the route is judged."""
        found = await self.replicas.look(route)
        if isinstance(route.replicas, tuple) or job.replica in found or not found:
            return False
        replica = found[zlib.crc32(job.key.encode()) % len(found)]
        logger.info("%s has left route %s: its probe of %s goes to %s", job.replica, job.route, job.domain, replica)
        await asyncio.to_thread(self._defer, replace(job, replica=replica), None)
        return True

    def _kept_off(self, route: Route, job: ProbeJob) -> bool:
        """Queues the job for later while a gate measures its server, perhaps as the candidate, or its plain twin."""
        servers = [url_and_rank(job.replica)[0]]
        if job.reason is Reason.SPEEDUP and route.plain_twin is not None:
            servers.append(route.plain_twin)
        with self.database.transaction() as connection:
            gated = gate_requests.is_measured(connection, *servers)
            if gated:
                defer(connection, job, self.now() + AFTER_A_GATE)
        return gated

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


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
