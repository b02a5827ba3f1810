"""How long one request is waited for, phase by phase."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeVar

from monitor.engines.failures import failure

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from monitor.errors import TargetError
    from monitor.probing.target import Timeouts

Result = TypeVar("Result")

STOOD_STILL_SECONDS = 1.0
"""A timer that rings later than this tells that our own process stood still, whatever the server did meanwhile."""


class Patience:
    """Limits of one request: until the first token, then between events, and in all. Counts from `sent()`.

    With `lookup` it is a page that needs no model, and the failure is `no_answer`.

    `with Patience(…) as patience:` has one timer for the whole request, which is set again when it rings too early:
    an `asyncio.timeout` for every event would cost as much as reading the event. All of it happens in one task, which
    the timer cancels if it waits then. Time for which our own process stood still (a machine that was suspended) is
    given again: what the server sent in it may lie unread.
    """

    def __init__(self, url: str, timeouts: Timeouts, *, lookup: bool = False) -> None:
        task = asyncio.current_task()
        assert task is not None  # requests are made by coroutines, and those run in tasks
        self.url = url
        self._timeouts = timeouts
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._lookup = lookup
        self._stalled = ("stalled", f"the stream fell silent for {timeouts.stall_seconds:g} s")
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = self._ran_out = False
        self.sent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def sent(self) -> None:
        """The request goes out now, for the first time or again."""
        now, seconds = self._loop.time(), self._timeouts.first_token_seconds
        self._phase = ("first_token_timeout", f"no token within {seconds:g} s")
        if self._lookup:
            self._phase = ("no_answer", f"accepted the connection and answered nothing in {seconds:g} s")
        self._until, self._end = now + seconds, now + self._timeouts.total_seconds

    def progressed(self) -> None:
        """A token came: from now on silence counts."""
        self._phase = self._stalled
        self._until = self._loop.time() + self._timeouts.stall_seconds

    async def wait(self, awaitable: Awaitable[Result]) -> Result:
        """The result, or TargetError `first_token_timeout`, `stalled`, `total_timeout` or `no_answer`."""
        self._set_timer()
        self._waiting = True
        cancelled_by_others = self._task.cancelling()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if not self._ran_out or self._task.cancelling() > cancelled_by_others + 1:
                raise
            raise self._failure() from None
        finally:
            if self._ran_out:
                self._task.uncancel()
            self._waiting = self._ran_out = False

    def _set_timer(self) -> None:
        """It may ring before time has run out, but never after."""
        due = min(self._until, self._end)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._waiting:
            return  # the next wait sets it again
        late = self._loop.time() - min(self._until, self._end)
        if late >= STOOD_STILL_SECONDS:
            self._until, self._end = self._until + late, self._end + late
        if late < 0 or late >= STOOD_STILL_SECONDS:
            self._set_timer()
        else:
            self._ran_out = True
            self._task.cancel()

    def _failure(self) -> TargetError:
        if self._end < self._until and self._lookup:
            return failure(
                "no_answer", self.url, f"the answer was not complete after {self._timeouts.total_seconds:g} s"
            )
        if self._end < self._until:
            return failure("total_timeout", self.url, f"not complete after {self._timeouts.total_seconds:g} s")
        return failure(self._phase[0], self.url, self._phase[1])
