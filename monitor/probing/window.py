"""The server's counters, read before and after one prompt: what they moved by is that prompt's, if nobody else asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monitor.engines.counters import difference
from monitor.engines.failures import failure
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.engines.base import Engine, Replica
    from monitor.engines.counters import Change, Counters

SETTLE_SECONDS = 15.0
"""How long the server may take to count what it has sent: vLLM a step, Ray up to its export interval of ten seconds."""
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0


class CounterWindow:
    """One window after the other: each begins with the look that ended the one before."""

    def __init__(self, engine: Engine, replica: Replica, model: str, monotonic: Callable[[], float]) -> None:
        self._engine, self._replica, self._model = engine, replica, model
        self._monotonic = monotonic
        self._begin: Counters | None = None
        self._resets = 0

    @property
    def is_open(self) -> bool:
        return self._begin is not None

    async def open(self) -> None:
        """Begins the next window. Raises TargetError when the counters cannot be had."""
        if self._begin is None:
            self._begin = await self._look()

    async def close(self, own_tokens: int, settle_seconds: float | None = None) -> Change:
        """Ends the window once the server has counted our `own_tokens`; what it counted meanwhile.

        It is waited for SETTLE_SECONDS, or as long as said.

        Raises TargetError: `counters_behind` when it does not count them in time, `counters_reset`, `load_balancer`.
        """
        assert self._begin is not None  # an open window has a begin
        begin, self._begin = self._begin, None
        settle_seconds = SETTLE_SECONDS if settle_seconds is None else settle_seconds
        deadline, pause_seconds = self._monotonic() + settle_seconds, FIRST_PAUSE_SECONDS
        while True:
            end = await self._look()
            change = self._difference(begin, end)
            if change.generated_tokens >= own_tokens:
                self._begin = end
                return change
            if self._monotonic() > deadline:
                what = f"its counters show {change.generated_tokens} of our {own_tokens} tokens"
                raise failure("counters_behind", self._replica.url, f"{what} {settle_seconds:g} s after the answer")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    async def _look(self) -> Counters:
        return await self._engine.counters(self._replica, self._model)

    def _difference(self, begin: Counters, end: Counters) -> Change:
        try:
            return difference(begin, end, self._replica.url)
        except TargetError as error:
            self._resets += error.reason == "counters_reset"
            if self._resets > 1:
                what = f"its counters fell or began anew {self._resets} times in one run"
                raise failure("load_balancer", self._replica.url, what) from None
            raise
