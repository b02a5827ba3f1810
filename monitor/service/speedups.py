"""One speedup job: the twin is reserved, replica and twin are measured in turn, what was found is stored and judged."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from monitor.core.format import speedup_line
from monitor.core.speedup import Speedup
from monitor.errors import UsageError
from monitor.probing.sweep import BUSY
from monitor.service.jobs import ProbeJob, defer
from monitor.service.probes import run_speedup, sampling_of
from monitor.store import slots, speedups

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.config.routes import Route
    from monitor.prompts.sets import PromptSet
    from monitor.service.losing import SpeedupJudging
    from monitor.store.database import Database

logger = logging.getLogger(__name__)


class SpeedupProber:
    """Measures beside a plain twin one job at a time; the queue holds its replica for the job meanwhile.

    A twin that others measure beside is waited for: one job of each route, domain and replica is in the queue at most.
    """

    def __init__(self, database: Database, now: Callable[[], datetime], judging: SpeedupJudging) -> None:
        self._database = database
        self._judging = judging
        self._now = now

    async def work(self, route: Route, job: ProbeJob, prompt_set: PromptSet) -> None:
        """Measures and stores, once for the job's key, or queues the job for later. Raises StoreError."""
        if route.plain_twin is None:
            logger.info("job %s is dropped: %s has no plain_twin any more", job.key, route.name)
            return
        if await asyncio.to_thread(self._is_recorded, job):
            return
        async with slots.measuring(self._database.conninfo(), route.plain_twin) as ours:
            found = await self._measure(route, job, prompt_set, route.plain_twin) if ours else None
        if found is None:
            await self._later(route, job)
        elif found.invalid_reason == BUSY and not self._waited_enough(route, job):
            logger.info("standing aside: %s", found.invalid_detail)
            await self._later(route, replace(job, waiting_since=job.waiting_since or self._now().isoformat()))
        elif await asyncio.to_thread(self._store, route, job, found):
            level = logging.INFO if found.invalid_reason is None else logging.WARNING
            logger.log(level, "%s", speedup_line(found.as_dict()))

    async def _measure(self, route: Route, job: ProbeJob, prompt_set: PromptSet, twin: str) -> Speedup:
        began = self._now()
        try:
            return await run_speedup(route, job, prompt_set, twin)
        except UsageError as error:
            return Speedup(
                route=route.name,
                domain=job.domain,
                replica=job.replica,
                plain_twin=twin,
                prompt_set_hash=prompt_set.content_hash,
                concurrency=route.concurrency,
                sampling=sampling_of(route).as_dict(),
                started_at=began,
                finished_at=self._now(),
                invalid_reason="configuration",
                invalid_detail=str(error),
            )

    def _waited_enough(self, route: Route, job: ProbeJob) -> bool:
        since = None if job.waiting_since is None else datetime.fromisoformat(job.waiting_since)
        return since is not None and self._now() - since >= route.stand_aside.give_up_after

    async def _later(self, route: Route, job: ProbeJob) -> None:
        await asyncio.to_thread(self._defer, job, self._now() + route.stand_aside.retry_after)

    def _defer(self, job: ProbeJob, at: datetime) -> None:
        with self._database.transaction() as connection:
            defer(connection, job, at)

    def _is_recorded(self, job: ProbeJob) -> bool:
        with self._database.transaction() as connection:
            return speedups.is_recorded(connection, job.key)

    def _store(self, route: Route, job: ProbeJob, found: Speedup) -> bool:
        with self._database.transaction() as connection:
            speedup_id = speedups.store_speedup(connection, job.key, found)
            if speedup_id is not None:
                self._judging.judge(connection, route, speedup_id, found, self._now())
        return speedup_id is not None
