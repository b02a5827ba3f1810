"""Work done again and again: only while this process leads, since when it does, and on past a database that is away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from monitor.errors import StoreError
from monitor.service.rounds import Rounds, in_thread
from tests.factories import START

if TYPE_CHECKING:
    from datetime import datetime

EVERY_SECONDS = 0.01


async def ran(rounds: Rounds, done: asyncio.Event) -> None:
    """Runs them until that is set, ten seconds at most; what ends them is raised."""
    task = asyncio.create_task(rounds.run())
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait([task, waiting], timeout=10, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_the_first_round_is_at_once_and_a_database_that_is_away_ends_none_of_the_next() -> None:
    seen: list[datetime] = []
    done, loop = asyncio.Event(), asyncio.get_running_loop()

    def work(since: datetime) -> None:
        seen.append(since)
        if len(seen) == 2:
            raise StoreError("the database does not answer")
        if len(seen) == 4:
            loop.call_soon_threadsafe(done.set)

    await ran(Rounds(in_thread(work), EVERY_SECONDS, lambda: True, lambda: START), done)
    assert seen[:4] == [START] * 4


async def test_whoever_leads_again_is_given_since_when_it_leads_now() -> None:
    hours = (START + timedelta(hours=number) for number in count())
    leading = iter([False, True, True, False, True])
    seen: list[datetime] = []
    done = asyncio.Event()

    async def work(since: datetime) -> None:
        seen.append(since)
        if len(seen) == 3:
            done.set()

    await ran(Rounds(work, EVERY_SECONDS, lambda: next(leading, False), lambda: next(hours)), done)
    assert seen == [START, START, START + timedelta(hours=1)]


async def test_what_is_no_trouble_of_the_database_is_raised() -> None:
    async def work(_since: datetime) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ran(Rounds(work, EVERY_SECONDS, lambda: True, lambda: START), asyncio.Event())
