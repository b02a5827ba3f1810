"""When messages go out: at once what this process caused, else every second, and once more before it ends."""

from __future__ import annotations

import asyncio
import contextlib
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
        """Nothing more will be queued: `run` returns when it has sent once more."""
        self._ending.set()
        self._hurried.set()

    async def run(self) -> None:
        waiting = Complaint(logger, "messages wait in the outbox", "messages are sent again")
        last = False
        while not last:
            last = self._ending.is_set()
            self._hurried.clear()
            try:
                await self._sender.send_due()
                waiting.end()
            except StoreError as error:
                waiting.raise_for(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), SEND_EVERY_SECONDS)
