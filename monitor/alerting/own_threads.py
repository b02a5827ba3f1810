"""Threads of one receiver alone, for libraries that block: one that hangs takes none from the store or from others."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from monitor.alerting.sender import AT_ONCE_EACH

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class OwnThreads:
    """As many as the sender has under way at one receiver. A call that nobody waits for any more keeps its thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE_EACH)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's answer, called in a thread and in a context of its own."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)
