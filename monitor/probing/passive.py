"""Passive reading: one replica's metrics page, looked at again and again, and what its counters moved by in between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from monitor.core.organic import Organic, added_counts, highest
from monitor.engines.counters import difference
from monitor.errors import TargetError, UsageError
from monitor.probing.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monitor.core.records import Identity
    from monitor.engines.base import Engine, Load
    from monitor.engines.counters import Change, Counters
    from monitor.probing.target import Target


class ReplicaReader:
    """Adds up what one replica does, from look to look, in `seen`; `take` hands it over and begins anew."""

    def __init__(
        self, route: str, replica: str, target: Callable[[], Target], engine: Engine, now: Callable[[], datetime]
    ) -> None:
        """`target` is asked before each look, so that a rotated key is followed."""
        self.route, self.replica = route, replica
        self._target, self._engine, self._now = target, engine, now
        self._counters: Counters | None = None
        self._sum = self._nothing()
        self._running: list[float] = []
        self.may_be_another = True
        """Since who answers was last looked at, the server may have been started with something else."""

    def _nothing(self) -> Organic:
        return Organic(self.route, self.replica, self._now(), self._now())

    async def read(self) -> None:
        """One look. What goes wrong is counted, and told by `take` as `last_failure`; nothing is raised."""
        try:
            target = self._target()
            async with Client(target, connections=1) as client:
                glance = await self._engine.glance(client, target.model)
        except UsageError as error:  # a key or CA file that cannot be used now
            self._fail(error)
            return
        counters = glance.counters
        if isinstance(counters, TargetError):
            self._fail(counters)
            return
        before, self._counters = self._counters, counters
        self._see(glance.load)
        if before is None:
            return
        try:
            change = difference(before, counters, target.base_url)
        except TargetError as error:
            self._sum = replace(self._sum, resets=self._sum.resets + 1, last_failure=str(error))
            self.may_be_another = True
            return
        self._add(change)

    def forget(self) -> None:
        """Somebody else looks from now on: what is counted meanwhile is theirs, and the time is not ours either."""
        self._counters = None
        self._sum, self._running = self._nothing(), []
        self.may_be_another = True

    async def look_closer(self, declared: Identity) -> Identity | None:
        """Who answers now, once after each (re)start seen by `read`; None when there is nothing new to look at.

        A look that fails is made again at the next call. Nothing is generated, so that a fingerprint stays unknown.
        """
        if not self.may_be_another or self._counters is None:
            return None
        try:
            target = self._target()
            async with Client(target, connections=1) as client:
                found = await self._engine.observe(client, target.model, declared)
        except (TargetError, UsageError):
            return None
        self.may_be_another = False
        return found.identity

    def _fail(self, error: Exception) -> None:
        self._sum = replace(self._sum, failures=self._sum.failures + 1, last_failure=str(error), ended_at=self._now())

    def _see(self, load: Load) -> None:
        if load.running is not None:
            self._running.append(load.running)
        self._sum = replace(
            self._sum,
            ended_at=self._now(),
            reads=self._sum.reads + 1,
            running_mean=sum(self._running) / len(self._running) if self._running else None,
            running_max=highest(self._sum.running_max, load.running),
            waiting_max=highest(self._sum.waiting_max, load.waiting),
            kv_cache_usage_max=highest(self._sum.kv_cache_usage_max, load.kv_cache_usage_ratio),
            server_started_at=load.started_at,
        )

    def _add(self, change: Change) -> None:
        now = self._sum
        self._sum = replace(
            now,
            steps=now.steps + change.steps,
            drafted=now.drafted + (change.drafted or 0),
            accepted=now.accepted + change.accepted,
            accepted_at=added_counts(now.accepted_at, change.accepted_at),
            generated_tokens=now.generated_tokens + change.generated_tokens,
            prompt_tokens=now.prompt_tokens + change.prompt_tokens,
            preemptions=now.preemptions + change.preemptions,
        )

    def seen(self) -> Organic | None:
        """What was seen since the last take; None when nobody has looked."""
        return self._sum if self._sum.reads + self._sum.failures else None

    def take(self) -> Organic | None:
        """What was seen, which is not seen again."""
        taken = self.seen()
        if taken is not None:
            self._sum, self._running = self._nothing(), []
        return taken
