"""Passive reading of every replica: a cheap look each minute, stored at once in a row of ten; who answers, after each
restart."""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from monitor.engines.registry import ENGINES
from monitor.errors import StoreError
from monitor.probing.passive import ReplicaReader
from monitor.service.bumps import probe_if_changed
from monitor.service.complaint import Complaint, Reminders
from monitor.service.discovery import Replicas
from monitor.service.probes import declared_identity, target_of
from monitor.store.organic import store_organic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from monitor.config.routes import Route
    from monitor.core.organic import Organic
    from monitor.core.records import Identity
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

READ_EVERY_SECONDS = 60.0
ROW_SECONDS = 600.0
"""A row ends with the look that is nearest to it."""
STORED_APART_SECONDS = 1.0
"""What a thousand replicas show within it is one transaction."""
KEPT_ROWS = 200_000
"""Rows held while the database is away; then the oldest go."""


class PassiveReading:
    """Reads while `leads()` says so, so that of several processes one does; `run` until cancelled."""

    def __init__(
        self,
        database: Database,
        routes: Sequence[Route],
        now: Callable[[], datetime],
        leads: Callable[[], bool],
        read_every_seconds: float = READ_EVERY_SECONDS,
        row_seconds: float = ROW_SECONDS,
        replicas: Replicas | None = None,
    ) -> None:
        self._database = database
        self._leads = leads
        self._read_every_seconds, self._row_seconds = read_every_seconds, row_seconds
        self._waiting: dict[tuple[str, str, datetime], Organic] = {}
        self._looked = asyncio.Event()
        self._storing = threading.Lock()
        self._trouble = Complaint(logger, "organic readings wait to be stored", "organic readings are stored again")
        self._reminders = Reminders()
        self._now = now
        self._replicas = replicas or Replicas(routes)
        self._routes = [route for route in routes if route.engine != "openai"]  # of whose counters nothing is known
        self._readers: set[ReplicaReader] = set()

    async def run(self) -> None:
        """Every replica by itself, spread over the minute: one that is slow or dead delays no other."""
        try:
            async with asyncio.TaskGroup() as group:
                for route in self._routes:
                    group.create_task(self._follow(route, group))
                group.create_task(self._keep())
        finally:
            with suppress(StoreError):
                self._store(self._waiting.values())

    async def _follow(self, route: Route, group: asyncio.TaskGroup) -> None:
        """Reads the replicas that the route has, and from minute to minute those that it has by then."""
        reading: dict[str, tuple[ReplicaReader, asyncio.Task[None]]] = {}
        while True:
            found = await self._replicas.look(route)
            for replica in reading.keys() - set(found):
                reader, task = reading.pop(replica)
                task.cancel()
                self._readers.remove(reader)
            for replica in set(found) - reading.keys():
                target = partial(target_of, route, replica)
                reader = ReplicaReader(route.name, replica, target, ENGINES[route.engine], self._now)
                self._readers.add(reader)
                reading[replica] = (reader, group.create_task(self._read(route, reader)))
            if isinstance(route.replicas, tuple):
                return
            await asyncio.sleep(self._read_every_seconds)

    async def _read(self, route: Route, reader: ReplicaReader) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + zlib.crc32(reader.replica.encode()) / 2**32 * self._read_every_seconds
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            if self._leads():
                await self._look(route, reader)
            else:
                reader.forget()
            due = max(due + self._read_every_seconds, loop.time())

    async def _look(self, route: Route, reader: ReplicaReader) -> None:
        """A page that nobody thought of is a mistake of ours, which must not end the probes and alerts beside it."""
        try:
            await reader.read()
            self._note(reader)
            seen = await reader.look_closer(declared_identity(route))
            if seen is not None:
                await asyncio.to_thread(self._compare, route, reader, seen)
        except StoreError:
            reader.may_be_another = True  # compared at the next look; that the database is away is told by others
        except Exception:
            if self._reminders.due(reader.replica, self._now()):
                logger.exception(
                    "%s could not be read; this is a mistake in Specwatch, please report it", reader.replica
                )

    def _compare(self, route: Route, reader: ReplicaReader, seen: Identity) -> None:
        """A restart alone is no bump; a replica that shows itself as another is probed without waiting for its slot."""
        with self._database.transaction() as connection:
            changed = probe_if_changed(connection, route, reader.replica, seen, self._now())
        if changed:
            logger.info("%s of route %s shows a change: every domain is probed on it", reader.replica, route.name)

    def _note(self, reader: ReplicaReader) -> None:
        """After each look, so that a process which is killed has lost none."""
        seen = reader.seen()
        if seen is None:
            return
        self._waiting[seen.window] = seen
        while len(self._waiting) > KEPT_ROWS:
            del self._waiting[next(iter(self._waiting))]
        if (seen.ended_at - seen.began_at).total_seconds() > self._row_seconds - self._read_every_seconds / 2:
            reader.take()
        self._looked.set()

    async def _keep(self) -> None:
        """Stores what waits when somebody has looked, looks soon after it together; what cannot be stored waits on."""
        while True:
            await self._looked.wait()
            await asyncio.sleep(STORED_APART_SECONDS)
            self._looked.clear()
            rows = self._waiting.copy()
            try:
                await asyncio.to_thread(self._store, rows.values())
            except StoreError as error:
                self._trouble.raise_for(error)
                continue
            self._trouble.end()
            for window, row in rows.items():
                if self._waiting.get(window) is row:
                    del self._waiting[window]

    def _store(self, rows: Collection[Organic]) -> None:
        """One at a time: the last, at the end, may come while another is under way, and both have the same rows."""
        with self._storing:
            if rows:
                with self._database.transaction() as connection:
                    store_organic(connection, list(rows))
