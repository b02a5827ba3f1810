"""Removes old samples and passive readings as routes.yaml says: once a day, batch by batch, by who leads."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.config.units import format_duration
from monitor.core.format import count
from monitor.store import retention

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monitor.config.retention import Retention
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

EVERY = timedelta(days=1)
LOOK_EVERY_SECONDS = 60.0
RUNS_AT_ONCE = 100
"""Samples of so many runs go in one transaction: three or four thousand rows."""
READINGS_AT_ONCE = 5000
PAUSE_SECONDS = 0.1
"""Between two batches, so that recording runs finds the disk free."""


@dataclass
class Pruned:
    """What was removed."""

    runs: int = 0
    samples: int = 0
    organic: int = 0


class Pruning:
    """Prunes once a day; of several processes one does. `removed`: since it was made."""

    def __init__(self, database: Database, settings: Retention, now: Callable[[], datetime]) -> None:
        self._database = database
        self._settings = settings
        self._now = now
        self._last: datetime | None = None
        self.removed = Pruned()

    async def look(self) -> None:
        """Prunes when that was a day ago; what a lost database left undone is done at the next look."""
        if self._last is None or self._now() - self._last >= EVERY:
            await self.prune()
            self._last = self._now()

    async def prune(self) -> Pruned:
        """Removes everything that is old enough now, and says so when that was something. Raises StoreError."""
        pruned, now = Pruned(), self._now()
        if (age := self._settings.samples) is not None:
            await self._remove_samples(now - age, pruned)
            if pruned.runs:
                logger.info("samples of %s older than %s removed", count(pruned.runs, "run"), format_duration(age))
        if (age := self._settings.organic) is not None:
            await self._remove_organic(now - age, pruned)
            if pruned.organic:
                older = f"older than {format_duration(age)}"
                logger.info("%s %s removed", count(pruned.organic, "passive reading"), older)
        return pruned

    async def _remove_samples(self, before: datetime, pruned: Pruned) -> None:
        after: int | None = 0
        while after is not None:
            removed, after = await asyncio.to_thread(self._one_batch, before, after)
            for total in (pruned, self.removed):
                total.runs += removed.runs
                total.samples += removed.samples
            await asyncio.sleep(PAUSE_SECONDS)

    async def _remove_organic(self, before: datetime, pruned: Pruned) -> None:
        removed = READINGS_AT_ONCE
        while removed == READINGS_AT_ONCE:
            removed = await asyncio.to_thread(self._some_readings, before)
            for total in (pruned, self.removed):
                total.organic += removed
            await asyncio.sleep(PAUSE_SECONDS)

    def _one_batch(self, before: datetime, after: int) -> tuple[retention.Removed, int | None]:
        with self._database.transaction() as connection:
            return retention.remove_samples(connection, before, after, RUNS_AT_ONCE)

    def _some_readings(self, before: datetime) -> int:
        with self._database.transaction() as connection:
            return retention.remove_organic(connection, before, READINGS_AT_ONCE)
