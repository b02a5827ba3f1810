"""Decides when: APScheduler in the one process that holds the leader's lock, slots as rows so that none is doubled."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from monitor.config.units import format_duration
from monitor.core.records import Reason
from monitor.core.schedule import current_slot, replica_index
from monitor.errors import StoreError
from monitor.service.complaint import Complaint, Reminders
from monitor.service.discovery import Replicas
from monitor.service.jobs import ProbeJob, defer
from monitor.store import queue, slots, trips

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.routes import Route
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

TRY_TO_LEAD_EVERY_SECONDS = 1.0
TRIPS_EXPIRE_AFTER = timedelta(days=1)


class Scheduler:
    """Queues due slots while this process leads; stands by otherwise and takes over within a second or two.

    `left_out` counts slots whose earlier probe was not even begun in a whole period: the queue holds one of each,
    however slow a replica.
    """

    def __init__(
        self, database: Database, routes: Sequence[Route], now: Callable[[], datetime], replicas: Replicas | None = None
    ) -> None:
        self.database = database
        self.routes = routes
        self.replicas = replicas or Replicas(routes)
        self.now = now
        self.leads_since: datetime | None = None
        self.left_out = 0
        self._failed: Exception | None = None
        self._reminders = Reminders()
        self._idle = Complaint(logger, "nothing is scheduled", "the database answers the scheduler again")

    @property
    def leads(self) -> bool:
        return self.leads_since is not None

    async def run(self) -> None:
        """Leads whenever the lock is free, until cancelled. Losing the database ends the lead, not the process."""
        while True:
            try:
                await self._lead_once()
            except StoreError as error:
                self._idle.raise_for(error)
            await asyncio.sleep(TRY_TO_LEAD_EVERY_SECONDS)

    async def _lead_once(self) -> None:
        session = await asyncio.to_thread(self._session)
        try:
            while not await asyncio.to_thread(self._may_lead, session):  # noqa: ASYNC110  (a freed lock wakes nobody)
                await asyncio.sleep(TRY_TO_LEAD_EVERY_SECONDS)
            self._idle.end()
            logger.info("this process schedules")
            self.leads_since = self.now()
            await self._schedule_until_lost(session)
        finally:
            self.leads_since = None
            await asyncio.to_thread(session.invalidate)
            await asyncio.to_thread(session.close)

    def _session(self) -> Connection:
        with self.database.errors():
            return self.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _may_lead(self, session: Connection) -> bool:
        with self.database.errors():
            return slots.lead(session)

    async def _schedule_until_lost(self, session: Connection) -> None:
        scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        for series in self._series():
            scheduler.add_job(self._fire, self._trigger(*series), args=series)
        self._failed = None
        scheduler.start()
        try:
            await self._catch_up()
            while self._failed is None:
                await asyncio.sleep(TRY_TO_LEAD_EVERY_SECONDS)
                await asyncio.to_thread(self._still_leading, session)
            raise self._failed
        finally:
            scheduler.shutdown(wait=False)

    def _series(self) -> Iterator[tuple[Route, str, Reason]]:
        """Everything that is due again and again: runs of every domain, and its speedup where there is a plain twin."""
        for route in self.routes:
            for domain in route.domains:
                yield route, domain, Reason.SCHEDULED
                if route.plain_twin is not None:
                    yield route, domain, Reason.SPEEDUP

    def _trigger(self, route: Route, domain: str, reason: Reason) -> IntervalTrigger:
        every = _every(route, reason)
        next_slot = current_slot(route.name, _slot_name(domain, reason), every, self.now()) + every
        return IntervalTrigger(seconds=every.total_seconds(), start_date=next_slot, timezone="UTC")

    def _still_leading(self, session: Connection) -> None:
        with self.database.errors():
            session.exec_driver_sql("SELECT 1")

    async def _catch_up(self) -> None:
        """Slots that came due while nobody led: the latest of each is queued now, earlier ones are gone."""
        await asyncio.to_thread(self._expire_trips)
        for route in self.routes:
            await self.replicas.look(route)
        for series in self._series():
            await asyncio.to_thread(self.queue_slot, *series)

    async def _fire(self, route: Route, domain: str, reason: Reason) -> None:
        """A slot that cannot be queued ends the lead: whoever leads next catches up on it."""
        try:
            await self.replicas.look(route)
            await asyncio.to_thread(self.queue_slot, route, domain, reason)
        except Exception as error:  # noqa: BLE001  (APScheduler would log it and forget the slot)
            self._failed = error

    def _expire_trips(self) -> None:
        with self.database.transaction() as connection:
            trips.expire_trips(connection, self.now() - TRIPS_EXPIRE_AFTER, self.now())

    def queue_slot(self, route: Route, domain: str, reason: Reason = Reason.SCHEDULED) -> bool:
        """Queues the current slot's probe unless it was queued before, in one transaction.

        A slot whose earlier probe of the same replica still waits is left out: it would measure the same moment.
        """
        every, name = _every(route, reason), _slot_name(domain, reason)
        slot = current_slot(route.name, name, every, self.now())
        replicas = self.replicas.known(route)
        position = replica_index(slot, every, route.domains.index(domain), len(replicas))
        key = f"slot {route.name} {name} {slot.isoformat()}"
        job = ProbeJob(key, route.name, domain, replicas[position], reason)
        with self.database.transaction() as connection:
            if not slots.take_slot(connection, route.name, name, slot):
                return False
            if queue.scheduled_waits(connection, route.name, domain, job.replica, reason):
                self._leave_out(route, job)
                return False
            defer(connection, job)
        return True

    def _leave_out(self, route: Route, job: ProbeJob) -> None:
        """A probe that was caught up on, or that another process queued before this one led, tells nothing of the pace
        within the first period: the next slot may be seconds away."""
        if self.leads_since is not None and self.now() - self.leads_since < _every(route, job.reason):
            return
        self.left_out += 1
        if self._reminders.due((route.name, job.replica), self.now()):
            logger.warning(
                "%s · %s: a slot is left out, the probe before it still waits for %s; probes take longer than every %s "
                "allows, or --workers is too low (told once an hour)",
                *(job.route, job.domain, job.replica, format_duration(_every(route, job.reason))),
            )


def _every(route: Route, reason: Reason) -> timedelta:
    return route.speedup_every if reason is Reason.SPEEDUP else route.every


def _slot_name(domain: str, reason: Reason) -> str:
    """The domain's slots, or those of its speedup; a domain has no space in its name."""
    return f"{domain} speedup" if reason is Reason.SPEEDUP else domain
