"""A receiver that takes long, or never answers, keeps nobody else's messages waiting."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from sqlalchemy import func, select

from monitor.alerting.posting import Arrival
from monitor.alerting.receivers import build_receivers
from monitor.alerting.sender import AT_ONCE, AT_ONCE_EACH, LEASE, Sender
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.errors import StoreError
from monitor.service.outgoing import Outgoing
from monitor.store import incident_events, incidents
from monitor.store.schema import deliveries
from tests.acceptance.hooks import Hook
from tests.factories import START, make_alerting, make_document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping

    from monitor.alerting.posting import Failure
    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

BROKEN = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
SOON_SECONDS = 4.0
"""Far less than the 10 s for which a receiver that never answers is waited for."""


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Of a server whose connections are taken by the kernel, and that never reads or says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as found:
        yield found.getsockname()[1]


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook().running() as found:
        yield found


def queue(database: Database, receivers: Collection[str], number: int = 1, *transitions: Transition) -> None:
    """So many incidents, each with these transitions, queued now."""
    now = datetime.now(UTC)
    with database.transaction() as connection:
        first = incidents.list_incidents(connection, limit=1)
        after = first[0]["id"] if first else 0
        for position in range(after, after + number):
            incident_id = incidents.save_state(connection, f"route-{position}", None, BROKEN, now)
            for transition in transitions or (Transition.OPENED,):
                document = make_document(transition.value)
                incident_events.add_event(connection, incident_id, transition, document, receivers, now)


def states(database: Database) -> Counter[tuple[str, str]]:
    with database.transaction() as connection:
        found = select(deliveries.c.receiver, deliveries.c.state, func.count()).group_by("receiver", "state")
        return Counter({(row[0], row[1]): row[2] for row in connection.execute(found)})


def longest_wait_seconds(database: Database, receiver: str) -> float:
    """From queued to sent."""
    waited = func.extract("epoch", deliveries.c.sent_at - deliveries.c.due_at)
    with database.transaction() as connection:
        return float(connection.execute(select(func.max(waited)).where(deliveries.c.receiver == receiver)).scalar_one())


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def sending(database: Database, receivers: Mapping[str, Any]) -> AsyncIterator[Outgoing]:
    outgoing = Outgoing(Sender(database, receivers, now))
    running = asyncio.create_task(outgoing.run())
    try:
        yield outgoing
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        met = condition()
        while not met:
            await asyncio.sleep(0.02)
            met = condition()


async def until_sent(database: Database, receiver: str, number: int) -> None:
    await until(lambda: states(database)[receiver, "sent"] >= number)


@pytest.mark.parametrize("kind", ["webhook", "email"])
async def test_messages_to_others_are_sent_at_once_while_a_receiver_hangs(
    database: Database, deaf_port: int, hook: Hook, kind: str
) -> None:
    hangs: dict[str, dict[str, Any]] = {
        "webhook": {"url": f"http://127.0.0.1:{deaf_port}/"},
        "email": {"host": "127.0.0.1", "port": deaf_port, "sender": "s@example.com", "to": ["oncall@example.com"]},
    }
    named = [{"name": "hangs", kind: hangs[kind]}, {"name": "well", "webhook": {"url": hook.url}}]
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE_EACH))  # to be free of what hangs
    queue(database, ["hangs"], 2 * AT_ONCE)
    async with sending(database, build_receivers(make_alerting(receivers=named))):
        for number in range(1, 6):
            queue(database, ["well"])
            await until_sent(database, "well", number)
        assert longest_wait_seconds(database, "well") < SOON_SECONDS
        assert states(database) == {("hangs", "pending"): 2 * AT_ONCE, ("well", "sent"): 5}
        with database.transaction() as connection:
            leased = select(func.count()).where(deliveries.c.lease_until.is_not(None), deliveries.c.state == "pending")
            assert connection.execute(leased).scalar_one() == AT_ONCE_EACH, "no more than it can be sent at once"


class Measured:
    """A receiver that takes a while, and knows how many attempts were under way in all."""

    under_way: ClassVar[Counter[str]] = Counter()
    most: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.seconds = seconds
        self.told: list[tuple[int, str]] = []

    def where(self) -> str:
        return self.name

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        self.told.append((delivery.incident_id, delivery.transition))
        for name in (self.name, "all"):
            self.under_way[name] += 1
            self.most[name] = max(self.most[name], self.under_way[name])
        await asyncio.sleep(self.seconds)
        self.under_way[self.name] -= 1
        self.under_way["all"] -= 1
        return Arrival(self.name)


@pytest.fixture(autouse=True)
def nothing_under_way() -> None:
    Measured.under_way.clear()
    Measured.most.clear()


@pytest.mark.parametrize(("number", "each"), [(1, AT_ONCE_EACH), (5, AT_ONCE_EACH), (10, 5), (60, 1)])
async def test_what_is_under_way_is_bounded_for_each_receiver_and_in_all(
    database: Database, number: int, each: int
) -> None:
    receivers = {f"r{n}": Measured(f"r{n}", 0.3) for n in range(number)}
    queue(database, list(receivers), each + 2)
    async with sending(database, receivers):
        for name in receivers:
            await until_sent(database, name, each + 2)
    assert {Measured.most[name] for name in receivers} == {each}
    assert Measured.most["all"] == number * each <= max(AT_ONCE, number)


async def test_a_slow_receiver_gets_the_transitions_of_an_incident_in_order(database: Database) -> None:
    life = (Transition.OPENED, Transition.UPDATED, Transition.RESOLVED)
    slow, fast = Measured("slow", 1.0), Measured("fast", 0.0)
    queue(database, ["slow", "fast"], 4, *life)
    async with sending(database, {"slow": slow, "fast": fast}):
        await until_sent(database, "fast", 12)
        assert states(database)["slow", "sent"] <= 4, "no turn waits for the slow one's"
        await until_sent(database, "slow", 12)
    for receiver in (slow, fast):
        assert len(receiver.told) == 12, "each once"
        for incident_id in {one for one, _ in receiver.told}:
            assert [told for one, told in receiver.told if one == incident_id] == [one.value for one in life]


async def test_what_waits_for_room_is_sent_as_soon_as_there_is_some(database: Database) -> None:
    queue(database, ["only"], 10 * AT_ONCE_EACH)
    began = time.monotonic()
    async with sending(database, {"only": Measured("only", 0.0)}):
        await until_sent(database, "only", 10 * AT_ONCE_EACH)
    assert time.monotonic() - began < 5.0, "ten shares, and no pause of a second between them"


async def test_the_end_waits_for_what_is_under_way_and_sends_what_follows_it(database: Database) -> None:
    receiver = Measured("only", 0.5)
    outgoing = Outgoing(Sender(database, {"only": receiver}, now))
    queue(database, ["only"], 1, Transition.OPENED, Transition.RESOLVED)
    running = asyncio.create_task(outgoing.run())
    await until(lambda: bool(receiver.told))
    outgoing.end()
    async with asyncio.timeout(30):
        await running
    assert states(database) == {("only", "sent"): 2}


async def test_a_mark_that_the_database_misses_is_told_by_the_next_round_and_the_message_is_sent_again(
    database: Database,
) -> None:
    class Gone(Sender):
        def _mark_sent(self, delivery: Delivery) -> None:
            if len(receiver.told) == 1:
                raise StoreError("the database does not answer")
            super()._mark_sent(delivery)

    receiver, clock = Measured("only", 0.0), [START]
    sender = Gone(database, {"only": receiver}, lambda: clock[0])
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, "route", None, BROKEN, START)
        incident_events.add_event(connection, incident_id, Transition.OPENED, make_document(), ["only"], START)
    assert await sender.begin_due() == 1
    await asyncio.wait(sender.under_way)
    with pytest.raises(StoreError):
        await sender.begin_due()
    assert await sender.begin_due() == 0, "told once; its lease runs"
    clock[0] += LEASE + timedelta(seconds=1)
    assert await sender.send_due() == 1
    assert receiver.told == [(incident_id, "opened")] * 2
    assert states(database) == {("only", "sent"): 1}
