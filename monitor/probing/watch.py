"""What is watched while prompts are replayed: the replica's load, and whether we ourselves are late."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from monitor.core.records import Regime

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.engines.base import Engine, Glance, Replica

LOAD_EVERY_SECONDS = 1.0
LAG_EVERY_SECONDS = 0.05
LAG_KEPT_SECONDS = 600.0


class PageWatch:
    """Looks at the replica's metrics page. One look serves all who want to know of its moment; all make the Regime.

    `first`: the look before the first request.
    """

    def __init__(
        self, engine: Engine, replica: Replica, model: str, first: Glance, monotonic: Callable[[], float]
    ) -> None:
        self._engine, self._replica, self._model = engine, replica, model
        self._monotonic = monotonic
        self._before = first.load
        self._seen = [first.load]
        self._speculates = first.speculates
        self.latest, self._latest_began = first, -math.inf

    async def watch(self) -> None:
        """Looks once a second until cancelled; a look that fails shows nothing."""
        while True:
            await asyncio.sleep(LOAD_EVERY_SECONDS)
            await self.look()

    async def look(self) -> Glance:
        """A look now."""
        began = self._monotonic()
        glance = await self._engine.glance(self._replica, self._model)
        self._seen.append(glance.load)
        if glance.speculates is not None:
            self._speculates = self._speculates or glance.speculates
        self.latest, self._latest_began = glance, began
        return glance

    async def look_since(self, moment: float) -> Glance:
        """The latest look, if it began after `moment` (of the monotonic clock); else one now."""
        return self.latest if self._latest_began > moment else await self.look()

    @property
    def speculates(self) -> bool | None:
        """Whether any look has shown that speculation is on; None where none showed anything."""
        return self._speculates

    @property
    def restarted(self) -> bool:
        """Whether the server is another process than before the first request."""
        return len({load.started_at for load in self._seen if load.started_at is not None}) > 1

    @property
    def met_several_servers(self) -> bool:
        """Whether a start time was seen after a later one, which no restart can do."""
        starts = [load.started_at for load in self._seen if load.started_at is not None]
        return any(later < earlier for earlier, later in pairwise(starts))

    def warnings(self) -> tuple[str, ...]:
        """What was seen that a reader of the figures must know."""
        found = []
        if self._before.waiting:
            waiting = f"{self._before.waiting:g} requests were waiting"
            found.append(f"{waiting} at the replica already: the times are those of a queue")
        if self.met_several_servers:
            found.append("several servers answer under this address, as behind a load balancer: name one replica")
        elif self.restarted:
            repeats = "if it repeats, this is a load balancer: name one replica"
            found.append(f"the server was restarted during the run; {repeats}")
        return tuple(found)

    def regime(self) -> Regime:
        """`preemptions` is how many happened in between; None after a restart, which resets the counter."""
        return Regime(
            running_before=self._before.running,
            waiting_before=self._before.waiting,
            running_max=_highest([load.running for load in self._seen]),
            waiting_max=_highest([load.waiting for load in self._seen]),
            kv_cache_usage_max=_highest([load.kv_cache_usage_ratio for load in self._seen]),
            preemptions=self._preemptions(),
            server_started_at=self._before.started_at,
        )

    def _preemptions(self) -> float | None:
        counted = [load.preemptions for load in self._seen if load.preemptions is not None]
        return None if self.restarted or not counted else counted[-1] - counted[0]


class LagWatch:
    """How late this event loop wakes up: a late client must not look like a slow server."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lags: deque[tuple[float, float]] = deque(maxlen=int(LAG_KEPT_SECONDS / LAG_EVERY_SECONDS))

    async def watch(self) -> None:
        """Ticks until cancelled."""
        while True:
            due = self._monotonic() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            woke = self._monotonic()
            self._lags.append((woke, max(0.0, woke - due)))

    def worst_since(self, moment: float) -> float:
        """The longest delay, in seconds, of a tick after `moment` (of the same monotonic clock)."""
        return max((lag for woke, lag in self._lags if woke >= moment), default=0.0)


def _highest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
