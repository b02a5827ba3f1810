"""The server's counters, read before and after one prompt: what they moved by is that prompt's, if nobody else asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monitor.engines.counters import difference
from monitor.engines.failures import failure
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.engines.counters import Change, Counters
    from monitor.probing.watch import PageWatch

SETTLE_SECONDS = 15.0
"""How long the server may take to count what it has sent: vLLM a step, Ray up to its export interval of ten seconds."""
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0


class CounterWindow:
    """One window after the other, each begun by the look that ended the one before; the first by the latest look."""

    def __init__(self, page: PageWatch, url: str, monotonic: Callable[[], float]) -> None:
        self._page, self._url = page, url
        self._monotonic = monotonic
        self._begin: Counters | TargetError | None = page.latest.counters
        self._resets = 0

    @property
    def is_open(self) -> bool:
        return self._begin is not None and not isinstance(self._begin, TargetError)

    async def open(self) -> None:
        """Begins the next window. Raises TargetError when the counters cannot be had; the next call looks again."""
        begin = (await self._page.look()).counters if self._begin is None else self._begin
        self._begin = None if isinstance(begin, TargetError) else begin
        if isinstance(begin, TargetError):
            raise begin

    async def close(self, own_tokens: int, answered_at: float, settle_seconds: float | None = None) -> Change:
        """Ends the window once the server has counted our `own_tokens`; what it counted meanwhile.

        `answered_at`: when the last of them came, by the monotonic clock. It is waited for SETTLE_SECONDS, or as long
        as said.

        Raises TargetError: `counters_behind` when it does not count them in time, `counters_reset`, `load_balancer`.
        """
        begin, self._begin = self._begin, None
        assert begin is not None  # it was opened
        assert not isinstance(begin, TargetError)
        settle_seconds = SETTLE_SECONDS if settle_seconds is None else settle_seconds
        deadline, pause_seconds = self._monotonic() + settle_seconds, FIRST_PAUSE_SECONDS
        look = await self._page.look_since(answered_at)
        while True:
            end = look.counters
            if isinstance(end, TargetError):
                raise end
            change = self._difference(begin, end)
            if change.generated_tokens >= own_tokens:
                self._begin = end
                return change
            if self._monotonic() > deadline:
                what = f"its counters show {change.generated_tokens} of our {own_tokens} tokens"
                raise failure("counters_behind", self._url, f"{what} {settle_seconds:g} s after the answer")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            look = await self._page.look()

    def _difference(self, begin: Counters, end: Counters) -> Change:
        try:
            return difference(begin, end, self._url)
        except TargetError as error:
            self._resets += error.reason == "counters_reset"
            if self._resets > 1:
                what = f"its counters fell or began anew {self._resets} times in one run"
                raise failure("load_balancer", self._url, what) from None
            raise
