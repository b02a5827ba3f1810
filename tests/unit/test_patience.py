import asyncio
import socket
import time

import pytest

from monitor.errors import TargetError
from monitor.probing.patience import Patience
from monitor.probing.target import Timeouts

URL = "http://replica/v1/chat/completions"
LONG, SHORT = 60.0, 0.02


def patience(*, first: float = LONG, stall: float = LONG, total: float = LONG) -> Patience:
    return Patience(URL, Timeouts(first_token_seconds=first, stall_seconds=stall, total_seconds=total))


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def reason_of(waited: Patience) -> str:
    with pytest.raises(TargetError) as caught:
        await waited.wait(never())
    return caught.value.reason


async def test_a_request_without_a_token_ends_with_the_first_phase() -> None:
    with patience(first=SHORT) as waited:
        assert await reason_of(waited) == "first_token_timeout"


async def test_silence_after_a_token_ends_long_before_the_first_phase_would() -> None:
    with patience(stall=SHORT) as waited:
        await waited.wait(asyncio.sleep(0))
        waited.progressed()
        assert await reason_of(waited) == "stalled"


async def test_a_page_that_does_not_come_is_no_question_of_tokens() -> None:
    limits = Timeouts(first_token_seconds=SHORT, total_seconds=SHORT)
    with Patience(URL, limits, lookup=True) as waited:
        assert await reason_of(waited) == "no_answer"


async def test_progress_gives_time_anew_however_early_the_timer_was_set() -> None:
    with patience(first=0.05, stall=LONG) as waited:
        await waited.wait(asyncio.sleep(0))
        waited.progressed()
        assert await waited.wait(asyncio.sleep(0.08, "an event")) == "an event"


async def test_tokens_do_not_stretch_the_whole() -> None:
    with patience(total=SHORT) as waited:
        waited.progressed()
        assert await reason_of(waited) == "total_timeout"


async def test_a_request_sent_again_has_all_its_time_again() -> None:
    with patience(first=SHORT) as waited:
        assert await reason_of(waited) == "first_token_timeout"
        waited.sent()
        assert await waited.wait(asyncio.sleep(0, "answered")) == "answered"


async def test_time_that_runs_out_while_nobody_waits_cancels_nobody_but_ends_the_next_wait() -> None:
    with patience(first=SHORT) as waited:
        await waited.wait(asyncio.sleep(0))
        await asyncio.sleep(2 * SHORT)
        assert await reason_of(waited) == "first_token_timeout"


async def test_what_came_while_our_own_process_stood_still_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.probing.patience.STOOD_STILL_SECONDS", 0.1)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    with patience(stall=SHORT) as waited:
        waited.progressed()
        asyncio.get_running_loop().call_soon(stand_still, theirs)
        assert await waited.wait(reader.read(10)) == b"a token"
        waited.progressed()
        assert await reason_of(waited) == "stalled"
    writer.close()
    theirs.close()


def stand_still(server: socket.socket) -> None:
    time.sleep(0.2)
    server.send(b"a token")


async def test_a_task_that_ran_out_of_patience_is_not_left_cancelled() -> None:
    with patience(first=SHORT) as waited:
        await reason_of(waited)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with asyncio.timeout(LONG):
        await asyncio.sleep(0)


async def test_cancelling_from_outside_is_no_timeout() -> None:
    async def ask() -> None:
        with patience() as waited:
            await waited.wait(never())

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_timeout_around_the_request_stays_one() -> None:
    with patience() as waited, pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT):
            await waited.wait(never())


async def test_nothing_rings_after_the_request_is_over() -> None:
    with patience(first=SHORT) as waited:
        await waited.wait(asyncio.sleep(0))
        timer = waited._timer
    assert timer is not None
    assert timer.cancelled()
