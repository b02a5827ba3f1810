"""Calls a dead-man's switch while the monitor does its work, and says why when it does not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import TYPE_CHECKING

from monitor.alerting.posting import Failure, Post, post
from monitor.core.heartbeat import Probed, Waiting, why_not_beating
from monitor.errors import ConfigError, StoreError
from monitor.service.complaint import Complaint
from monitor.store.outbox import oldest_waiting
from monitor.store.stale import last_finished

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monitor.config.load import Config
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0


class HeartbeatCaller:
    """Calls where a heartbeat is configured; of several processes one does.

    `calls`: how many arrived. `trouble`: why the last one was withheld or did not arrive, None when it did.
    """

    def __init__(self, database: Database, config: Config, now: Callable[[], datetime]) -> None:
        self._database = database
        self._config = config
        self._now = now
        self.calls = 0
        self.trouble: str | None = None
        self._withheld = Complaint(logger, "the heartbeat is withheld", "the heartbeat is called again")
        self._unheard = Complaint(logger, "the heartbeat does not arrive", "the heartbeat arrives again")

    async def beat(self, watched_since: datetime) -> bool:
        """One call, unless something is wrong; whether it arrived."""
        try:
            reason = await asyncio.to_thread(self._why_not, watched_since)
        except StoreError as error:
            reason = str(error)
        if reason is not None:
            self.trouble = f"withheld: {reason}"
            self._withheld.raise_for(reason)
            return False
        self._withheld.end()
        failed = await self._call()
        if failed is not None:
            self.trouble = f"does not arrive: {failed}"
            self._unheard.raise_for(failed)
            return False
        self._unheard.end()
        self.trouble = None
        self.calls += 1
        return True

    def _why_not(self, watched_since: datetime) -> str | None:
        every = {(route.name, domain): route.every for route in self._config.routes for domain in route.domains}
        with self._database.transaction() as connection:
            finished = last_finished(connection, list(every), valid_only=False)
            waiting = [Waiting(*one) for one in oldest_waiting(connection).items()]
        probed = [Probed(*one, period, finished[one]) for one, period in every.items()]
        oldest = min(waiting, key=lambda one: one.since, default=None)
        return why_not_beating(probed, oldest, watched_since, self._now())

    async def _call(self) -> str | None:
        """What went wrong, or None; the address may be a secret and is not said."""
        heartbeat = self._config.alerting.heartbeat
        assert heartbeat is not None, "nobody calls a heartbeat that is not configured"
        try:
            url = heartbeat.url.reveal(os.environ)
        except ConfigError as error:
            return str(error)
        answer = await post(Post(url, json.dumps({"status": "ok"}).encode()), TIMEOUT_SECONDS)
        return answer.error if isinstance(answer, Failure) else None
