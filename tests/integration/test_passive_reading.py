"""Passive reading of simulated servers: what they did for everybody, stored and shown."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from monitor.cli import cli
from monitor.core.organic import Organic
from monitor.engines.vllm import VllmEngine
from monitor.errors import ConfigError, StoreError, UsageError
from monitor.probing.passive import ReplicaReader
from monitor.probing.target import Target
from monitor.service.passive import PassiveReading
from monitor.store.organic import organic_history, store_organic
from monitor.store.runs import store_run
from tests.factories import make_route
from tests.integration.replicas import run_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from monitor.sim.server import SimulatedServer
    from monitor.store.database import Database

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
SILENT = "http://127.0.0.1:9"


def reader_of(url: str) -> ReplicaReader:
    return ReplicaReader("chat", url, lambda: Target(url), VllmEngine(), lambda: START)


def organic(began_at: datetime = START, replica: str = "http://a", **changes) -> Organic:
    return Organic("chat", replica, began_at, began_at + timedelta(minutes=10), **{"reads": 10, **changes})


async def test_what_the_counters_move_by_between_looks_is_added_up(url: str) -> None:
    reader = reader_of(url)
    await reader.read()
    first = await run_of(url)
    await reader.read()
    second = await run_of(url)
    await reader.read()
    taken = reader.take()
    assert taken is not None
    assert (taken.reads, taken.failures, taken.resets) == (3, 0, 0)
    samples = first.samples + second.samples
    assert taken.steps == sum(sample.counts.steps for sample in samples)
    assert taken.accepted == sum(sample.counts.accepted for sample in samples)
    assert taken.generated_tokens == sum(sample.completion_tokens for sample in samples)
    assert taken.accepted == sum(taken.accepted_at)
    assert taken.running_max == 0.0


async def test_the_next_take_begins_where_the_last_one_ended(url: str) -> None:
    reader = reader_of(url)
    await reader.read()
    assert reader.take() is not None
    assert reader.take() is None
    run = await run_of(url)
    await reader.read()
    taken = reader.take()
    assert taken is not None
    assert (taken.reads, taken.steps) == (1, sum(sample.counts.steps for sample in run.samples))


async def test_a_restart_counts_for_nothing_and_is_told(server: SimulatedServer, url: str) -> None:
    reader = reader_of(url)
    await run_of(url)
    await reader.read()
    server.restart()
    await reader.read()
    taken = reader.take()
    assert taken is not None
    assert (taken.resets, taken.steps, taken.generated_tokens) == (1, 0, 0)
    assert "start time changed" in str(taken.last_failure)


async def test_what_others_count_while_they_look_is_not_ours(url: str) -> None:
    reader = reader_of(url)
    await reader.read()
    await run_of(url)
    reader.forget()
    await reader.read()
    taken = reader.take()
    assert taken is not None
    assert taken.steps == 0


async def test_a_replica_that_does_not_answer_is_a_failure_with_its_reason() -> None:
    reader = reader_of(SILENT)
    await reader.read()
    taken = reader.take()
    assert taken is not None
    assert (taken.reads, taken.failures, taken.steps) == (0, 1, 0)
    assert str(taken.last_failure).startswith(f"{SILENT}/metrics: no connection")


async def test_a_key_that_cannot_be_had_is_a_failure_until_it_can(url: str) -> None:
    keys = iter([ConfigError("file /run/key cannot be read"), Target(url), Target(url)])

    def target() -> Target:
        found = next(keys)
        if isinstance(found, ConfigError):
            raise found
        return found

    reader = ReplicaReader("chat", url, target, VllmEngine(), lambda: START)
    await reader.read()
    await reader.read()
    run = await run_of(url)
    await reader.read()
    taken = reader.take()
    assert taken is not None
    assert (taken.reads, taken.failures, taken.last_failure) == (2, 1, "file /run/key cannot be read")
    assert taken.steps == sum(sample.counts.steps for sample in run.samples)


async def test_a_page_that_breaks_the_reader_ends_neither_it_nor_the_service(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0
    thrice = asyncio.Event()

    async def glance(*_: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            thrice.set()
        raise ZeroDivisionError

    monkeypatch.setattr(VllmEngine, "glance", glance)
    reading = PassiveReading(database, [make_route(replicas=[url])], lambda: START, lambda: True, 0.02, 10)
    task = asyncio.create_task(reading.run())
    await thrice.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.message.split(" could")[0] for record in caplog.records] == [url]


async def test_what_cannot_be_stored_waits(url: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def away() -> Iterator[None]:
        raise StoreError("away")
        yield

    route = make_route(name="chat", replicas=[url])
    reading = PassiveReading(database, [route], lambda: datetime.now(UTC), lambda: True, 0.02, 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(database, "transaction", away)
        task = asyncio.create_task(reading.run())
        async with asyncio.timeout(10):
            while len(reading._waiting) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        waiting = list(reading._waiting)[:3]
    await ended(task)
    with database.transaction() as connection:
        rows = organic_history(connection, "chat", group_by="reading")
    assert [datetime.fromisoformat(row["bucket"]) for row in rows][:3] == [began_at for _, _, began_at in waiting]


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def rows_with(database: Database, steps: int) -> list[dict[str, Any]]:
    """The rows of the route as soon as they count so many steps together."""
    async with asyncio.timeout(10):
        while sum(row["steps"] for row in rows_of(database)) < steps:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return rows_of(database)


async def test_a_killed_service_has_stored_every_look_and_the_next_counts_from_its_own_start(
    server: SimulatedServer, url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading() -> PassiveReading:
        return PassiveReading(database, [route], lambda: datetime.now(UTC), lambda: True, 0.02, 600)

    async def read_once(one: PassiveReading) -> None:
        async with asyncio.timeout(10):
            while not any(reader._sum.reads for reader in one._readers):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    route = make_route(name="chat", replicas=[url])
    killed = reading()
    task = asyncio.create_task(killed.run())
    await read_once(killed)
    before = sum(sample.counts.steps for sample in (await run_of(url)).samples)
    (row,) = await rows_with(database, before)
    assert (row["steps"], row["resets"]) == (before, 0)
    with monkeypatch.context() as patched:
        patched.setattr(killed, "_store", lambda _: None)  # what it stores at its end, a killed process does not
        await ended(task)
    await run_of(url)  # while nobody looks
    again = reading()
    task = asyncio.create_task(again.run())
    await read_once(again)
    after = sum(sample.counts.steps for sample in (await run_of(url)).samples)
    first, second = await rows_with(database, before + after)
    assert (first["steps"], second["steps"], second["resets"]) == (before, after, 0)
    assert first["last_at"] < second["first_at"]
    await asyncio.to_thread(server.restart)
    async with asyncio.timeout(10):
        while rows_of(database)[-1]["resets"] == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await ended(task)
    assert [(row["steps"], row["resets"]) for row in rows_of(database)] == [(before, 0), (after, 1)]


def rows_of(database: Database) -> list[dict[str, Any]]:
    with database.transaction() as connection:
        return organic_history(connection, "chat", group_by="reading")


async def test_a_row_ends_with_the_look_nearest_to_its_length_and_the_next_goes_on_from_there(
    url: str, database: Database
) -> None:
    reading = PassiveReading(database, [], lambda: START, lambda: True, 60, 100)
    minutes = [START]
    reader = ReplicaReader("chat", url, lambda: Target(url), VllmEngine(), lambda: minutes[-1])
    for minute in range(5):
        minutes.append(START + timedelta(minutes=minute))
        await reader.read()
        reading._note(reader)
    assert [(row.began_at, row.ended_at, row.reads) for row in reading._waiting.values()] == [
        (START, START + timedelta(minutes=2), 3),
        (START + timedelta(minutes=2), START + timedelta(minutes=4), 2),
    ]


async def test_the_time_in_which_others_looked_is_in_no_row(url: str) -> None:
    minutes = [START]
    reader = ReplicaReader("chat", url, lambda: Target(url), VllmEngine(), lambda: minutes[-1])
    await reader.read()
    minutes.append(START + timedelta(hours=5))
    reader.forget()
    await reader.read()
    seen = reader.seen()
    assert seen is not None
    assert (seen.began_at, seen.reads) == (minutes[-1], 1)


def test_a_row_stored_again_takes_the_place_of_what_it_was(connection: Connection) -> None:
    store_organic(connection, [organic(steps=100), organic(replica="http://b", steps=7)])
    store_organic(connection, [organic(steps=130, reads=11), organic(START + timedelta(minutes=10), steps=5)])
    rows = organic_history(connection, "chat", group_by="reading")
    assert [(row["replicas"], row["steps"], row["reads"]) for row in rows] == [
        (["http://a"], 130, 11),
        (["http://b"], 7, 10),
        (["http://a"], 5, 10),
    ]


async def test_a_dead_and_a_slow_replica_delay_no_other(url: str, database: Database) -> None:
    route = make_route(name="chat", replicas=[url, SILENT])
    reading = PassiveReading(database, [route], lambda: datetime.now(UTC), lambda: True, 0.05, 0.3)
    task = asyncio.create_task(reading.run())
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with database.transaction() as connection:
        rows = organic_history(connection, "chat", group_by="reading")
    reads = {row["replicas"][0]: 0 for row in rows}
    for row in rows:
        reads[row["replicas"][0]] += row["reads"]
    assert reads[url] >= 5
    assert reads[SILENT] == 0


async def test_who_does_not_lead_reads_nothing(url: str, database: Database) -> None:
    reading = PassiveReading(database, [make_route(replicas=[url])], lambda: START, lambda: False, 0.02, 0.05)
    task = asyncio.create_task(reading.run())
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with database.transaction() as connection:
        assert organic_history(connection, make_route().name, group_by="reading") == []


def test_history_pools_replicas_by_the_hour(connection: Connection) -> None:
    counts = {"steps": 100, "drafted": 300, "accepted": 150, "accepted_at": (80, 50, 20), "running_mean": 2.0}
    store_organic(
        connection,
        [
            organic(**counts, running_max=4.0),
            organic(replica="http://b", steps=300, drafted=900, accepted=150, accepted_at=(100, 50), running_mean=6.0),
            organic(START + timedelta(hours=1), failures=3, reads=0),
        ],
    )
    first, second = organic_history(connection, "chat", group_by="hour")
    assert first["replicas"] == ["http://a", "http://b"]
    assert (first["acceptance_length"], first["acceptance_rate"]) == (1.75, 0.25)
    assert (first["reads"], first["running_mean"], first["running_max"]) == (20, 4.0, 4.0)
    assert (second["acceptance_length"], second["reads"], second["failures"]) == (None, 0, 3)
    assert len(organic_history(connection, "chat", group_by="reading")) == 3
    assert organic_history(connection, "chat", since=START + timedelta(minutes=30)) == [second]
    assert organic_history(connection, "other") == []


def test_the_shell_shows_organic_history_beside_probes(database: Database) -> None:
    with database.transaction() as connection:
        store_organic(connection, [organic(steps=100, drafted=300, accepted=150, accepted_at=(80, 50, 20))])
    environment = {"DATABASE_URL": database.url.render_as_string(hide_password=False)}
    shown = CliRunner().invoke(cli, ["history", "chat", "--organic", "--format", "json"], env=environment)
    table = CliRunner().invoke(cli, ["history", "chat", "--organic"], env=environment)
    (row,) = json.loads(shown.stdout)
    assert (row["source"], row["group_by"], row["acceptance_length"]) == ("organic", "reading", 2.5)
    assert "2.50" in table.stdout
    with_domain = CliRunner().invoke(cli, ["history", "chat", "--organic", "--domain", "math"], env=environment)
    assert with_domain.exit_code == 2
    assert "--organic is of all traffic; it has no domains" in with_domain.output
    unknown = CliRunner().invoke(cli, ["history", "chut", "--organic"], env=environment)
    assert isinstance(unknown.exception, UsageError)
    assert "nothing was read of route chut" in str(unknown.exception)


async def watch(database: Database, route: Any, server: SimulatedServer, **changes: Any) -> list[Any]:
    """The jobs queued within a few looks after the server was started again with these changes."""
    reading = PassiveReading(database, [route], lambda: datetime.now(UTC), lambda: True, 0.05, 10)
    task = asyncio.create_task(reading.run())

    async def looked() -> None:
        while not reading._readers or any(reader.may_be_another for reader in reading._readers):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async with asyncio.timeout(10):
        await looked()
        resets = [reader._sum.resets for reader in reading._readers]
        await asyncio.to_thread(lambda: server.restart(**changes))
        while [reader._sum.resets for reader in reading._readers] == resets:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await looked()
        await asyncio.sleep(0.2)  # for what the look led to
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with database.transaction() as connection:
        found = connection.execute(text("SELECT args -> 'job' AS job FROM procrastinate_jobs ORDER BY id"))
        return [row.job for row in found]


async def test_a_replica_that_shows_itself_as_another_after_a_restart_is_probed_at_once(
    server: SimulatedServer, url: str, database: Database
) -> None:
    route = make_route(replicas=[url])
    run = replace(await run_of(url), route=route.name, replica=url)
    with database.transaction() as connection:
        store_run(connection, "before", run)
    jobs = await watch(database, route, server, version="0.99.0")
    assert [(job["domain"], job["replica"], job["reason"]) for job in jobs] == [
        (domain, url, "bump") for domain in route.domains
    ]


async def test_a_restart_alone_is_no_bump(server: SimulatedServer, url: str, database: Database) -> None:
    route = make_route(replicas=[url])
    run = replace(await run_of(url), route=route.name, replica=url)
    with database.transaction() as connection:
        store_run(connection, "before", run)
    assert await watch(database, route, server) == []
