"""How long one request is waited for, phase by phase."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from monitor.engines.failures import failure

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from monitor.probing.client import Timeouts

Result = TypeVar("Result")


class Patience:
    """Limits of one request: until the first token, then between events, and in all. Counts from `sent()`."""

    def __init__(self, url: str, timeouts: Timeouts) -> None:
        self.url = url
        self._timeouts = timeouts
        self.sent()

    def sent(self) -> None:
        """The request goes out now, for the first time or again."""
        self._sent_at = asyncio.get_running_loop().time()
        self._phase = ("first_token_timeout", f"no token within {self._timeouts.first_token_seconds:g} s")
        self._until = self._sent_at + self._timeouts.first_token_seconds

    def progressed(self) -> None:
        """A token came: from now on silence counts."""
        self._phase = ("stalled", f"the stream fell silent for {self._timeouts.stall_seconds:g} s")
        self._until = asyncio.get_running_loop().time() + self._timeouts.stall_seconds

    async def wait(self, awaitable: Awaitable[Result]) -> Result:
        """The result, or TargetError `first_token_timeout`, `stalled` or `total_timeout`."""
        end = self._sent_at + self._timeouts.total_seconds
        try:
            async with asyncio.timeout_at(min(self._until, end)):
                return await awaitable
        except TimeoutError:
            if end <= self._until:
                whole = f"not complete after {self._timeouts.total_seconds:g} s"
                raise failure("total_timeout", self.url, whole) from None
            raise failure(self._phase[0], self.url, self._phase[1]) from None
