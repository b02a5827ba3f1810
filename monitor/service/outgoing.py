"""When messages go out: at once what was queued here or waited for another, else every second, and before the end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from monitor.errors import StoreError
from monitor.service.complaint import Complaint

if TYPE_CHECKING:
    from monitor.alerting.sender import Sender

logger = logging.getLogger(__name__)

SEND_EVERY_SECONDS = 1.0


class Outgoing:
    """Calls the sender. A database that is away ends nothing: what waits in it is sent when it is back."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._hurried = asyncio.Event()
        self._ending = asyncio.Event()

    def hurry(self) -> None:
        """Something was queued just now."""
        self._hurried.set()

    def end(self) -> None:
        """Nothing more will be queued: `run` returns when nothing is left that is due."""
        self._ending.set()
        self._hurried.set()

    async def run(self) -> None:
        """Until `end`: then until what is due, and what follows it, was tried."""
        waiting = Complaint(logger, "messages wait in the outbox", "messages are sent again")
        while True:
            ends = self._ending.is_set()
            self._hurried.clear()
            try:
                await self._sender.begin_due()
                waiting.end()
            except StoreError as error:
                waiting.raise_for(error)
            if ends and not self._sender.under_way:
                return
            await self._pause()

    async def _pause(self) -> None:
        """For a second, or until something is queued here or settled: there is room then, and its next may be due."""
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait(
                {hurried, *self._sender.under_way}, timeout=SEND_EVERY_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            for task in self._sender.under_way:
                task.cancel()
            raise
        finally:
            hurried.cancel()
