"""Work that one process does again and again: what is looked for, sent again or called while it leads."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from monitor.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime


class Rounds:
    """Calls `work` every so many seconds while `leads()` says so, so that of several processes one does; never twice
    at once. `work` is given since when this process leads.

    A database that is away ends no round but this one: others tell of it, and the next finds it again.
    """

    def __init__(
        self,
        work: Callable[[datetime], Awaitable[object]],
        every_seconds: float,
        leads: Callable[[], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._work = work
        self._every_seconds = every_seconds
        self._leads = leads
        self._now = now
        self._since: datetime | None = None

    async def run(self) -> None:
        """Until cancelled; the first round at once."""
        while True:
            await self._round()
            await asyncio.sleep(self._every_seconds)

    async def _round(self) -> None:
        if not self._leads():
            self._since = None
            return
        self._since = self._since or self._now()
        with suppress(StoreError):
            await self._work(self._since)


def in_thread(work: Callable[[datetime], object]) -> Callable[[datetime], Awaitable[object]]:
    """Work that blocks, for Rounds."""
    return lambda since: asyncio.to_thread(work, since)
