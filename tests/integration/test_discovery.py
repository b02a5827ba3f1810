"""Replicas that come and go: found by name, in a file, over HTTP; scheduled, read and probed as they are by then."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from monitor.cli import cli
from monitor.core.records import Reason
from monitor.errors import ConfigError
from monitor.probing.client import Client
from monitor.probing.target import Target
from monitor.service.discovery import Replicas, addresses
from monitor.service.jobs import ProbeJob
from monitor.service.passive import PassiveReading
from monitor.service.prober import Prober
from monitor.service.probes import target_of
from monitor.service.recording import Recorder
from monitor.service.scheduler import Scheduler
from monitor.sim.server import SimulatedServer
from monitor.store.organic import organic_history
from tests.factories import START, make_config, make_route
from tests.integration.replicas import certificate, prompt_set, response, sends

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from monitor.store.database import Database


ALERTING = """\
rules: [{name: drop, metric: acceptance_length, drop: 15%, severity: page}]
receivers: [{name: console, log: {}}]
"""


class Names:
    """A name server whose answer the test changes; an error is raised."""

    def __init__(self, *answer: str) -> None:
        self.answer: Sequence[str] | OSError = answer

    async def __call__(self, host: str) -> Sequence[str]:
        assert host == "vllm.svc"
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


def by_name(**changes: object):
    return make_route(replicas={"dns": "http://vllm.svc:8000"}, **changes)


def groups(*targets: str) -> str:
    return json.dumps([{"targets": list(targets)}])


async def test_a_name_stands_for_all_its_addresses() -> None:
    route = by_name()
    replicas = Replicas([route], Names("10.0.0.2", "10.0.0.1", "10.0.0.2"))
    await replicas.start()
    assert replicas.known(route) == ("http://10.0.0.1:8000", "http://10.0.0.2:8000")
    assert replicas.number() == 2


async def test_an_address_of_ip_version_6_is_put_in_brackets() -> None:
    route = make_route(replicas={"dns": "https://vllm.svc/prefix"})
    assert await Replicas([route], Names("fd00::2")).look(route) == ("https://[fd00::2]/prefix",)


async def test_the_system_resolves_names_and_prefers_addresses_of_ip_version_4() -> None:
    assert await addresses("localhost") == ["127.0.0.1"]


async def test_replicas_stay_as_they_were_while_a_look_fails_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "monitor.service.discovery")
    route, names = by_name(), Names("10.0.0.1")
    replicas = Replicas([route], names)
    await replicas.start()
    for _ in range(2):
        names.answer = OSError(-3, "Temporary failure in name resolution")
        assert await replicas.look(route) == ("http://10.0.0.1:8000",)
    names.answer = ()
    assert await replicas.look(route) == ("http://10.0.0.1:8000",)
    names.answer = ("10.0.0.1", "10.0.0.3")
    assert await replicas.look(route) == ("http://10.0.0.1:8000", "http://10.0.0.3:8000")
    assert [record.getMessage() for record in caplog.records] == [
        "chat-prod: replicas stay those found before: http://vllm.svc:8000: vllm.svc cannot be resolved "
        "(Temporary failure in name resolution)",
        "chat-prod: replicas stay those found before: http://vllm.svc:8000 names no replica",
        "chat-prod: replicas are found again",
        "chat-prod: 2 replicas now: +http://10.0.0.3:8000",
    ]


async def test_a_route_without_replicas_at_the_start_is_refused_with_its_key_and_file(tmp_path: Path) -> None:
    (tmp_path / "vllm.json").write_text(groups())
    named, filed = by_name(), make_route("filed", replicas={"file_sd": str(tmp_path / "vllm.json")})
    with pytest.raises(ConfigError) as caught:
        await Replicas([named, filed], Names()).start()
    assert str(caught.value).splitlines() == [
        "routes.yaml: route chat-prod: replicas.dns: http://vllm.svc:8000 names no replica",
        f"routes.yaml: route filed: replicas.file_sd: {tmp_path}/vllm.json names no replica",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [("vllm.json", groups("b:1", "a:1")), ("vllm.yaml", "- targets: [b:1]\n- targets:\n  - a:1\n")],
)
async def test_a_file_of_prometheus_names_replicas(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    route = make_route(replicas={"file_sd": str(tmp_path / name)})
    assert await Replicas([route]).look(route) == ("http://a:1", "http://b:1")


async def test_a_file_is_read_again_when_its_time_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "vllm.json"
    route = make_route(replicas={"file_sd": str(file)})
    replicas = Replicas([route])
    for number, targets in enumerate((["a:1"], ["b:1"])):
        file.write_text(groups(*targets))
        os.utime(file, (1000 + number, 1000 + number))
        assert await replicas.look(route) == (f"http://{targets[0]}",)
    file.write_text(groups("c:1"))
    os.utime(file, (1001, 1001))
    assert await replicas.look(route) == ("http://b:1",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vllm.json", "[{", "vllm.json: Expecting property name"),
        ("vllm.yaml", "- [", "vllm.yaml: not valid YAML"),
        ("vllm.yaml", "targets: [a:1]", "vllm.yaml: is not a list of groups, such as [{targets: [vllm-0:8000]}]"),
        ("vllm.json", None, "vllm.json cannot be read: No such file or directory"),
    ],
)
async def test_a_file_of_another_shape_is_said_to_be_that(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        await Replicas([make_route(replicas={"file_sd": str(tmp_path / name)})]).start()
    assert message in str(caught.value)


async def test_an_http_service_names_replicas_and_is_not_given_the_key_of_the_route() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(response(groups("b:1", "a:1").encode(), Content_Type="application/json"))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/vllm?cluster=a"
        route = make_route(replicas={"http_sd": url}, headers={"X-Team": "chat"})
        replicas = Replicas([route])
        await replicas.start()
    assert replicas.known(route) == ("http://a:1", "http://b:1")
    assert asked[0].startswith(b"GET /vllm?cluster=a HTTP/1.1\r\n")
    assert b"X-Team" not in asked[0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (response(b"{}"), "/vllm: is not a list of groups"),
        (response(b"<html>"), "where JSON belongs"),
        (response(b"", "503 Service Unavailable"), "503"),
    ],
)
async def test_an_http_service_that_names_none_is_told_without_its_query(answer: bytes, message: str) -> None:
    async with sends(answer) as url:
        with pytest.raises(ConfigError) as caught:
            await Replicas([make_route(replicas={"http_sd": f"{url}/vllm?token=hidden"})]).start()
    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)


async def test_a_request_to_an_address_carries_the_name_it_was_found_by() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(response(b"{}"))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        replica = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        target = target_of(by_name(), replica)
        async with Client(target, connections=1) as client:
            await client.get_json("/version")
    assert b"\r\nhost: vllm.svc:8000\r\n" in asked[0].lower()
    assert target_of(by_name(plain_twin="http://plain:8000"), "http://plain:8000").server_name is None


async def test_tls_checks_the_certificate_for_the_name_and_not_for_the_address(tmp_path: Path) -> None:
    certfile, keyfile = certificate(tmp_path, name="vllm.svc")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certfile, keyfile)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b'{"version": "0.32.0"}'))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(Target(url, ca_file=certfile, server_name="vllm.svc:8000"), connections=1) as client:
            assert await client.get_json("/version") == {"version": "0.32.0"}


async def test_slots_go_round_the_replicas_that_are_there_by_then(database: Database) -> None:
    now = START
    route, names = by_name(domains=["coding"]), Names("10.0.0.1", "10.0.0.2")
    replicas = Replicas([route], names)
    scheduler = Scheduler(database, [route], lambda: now, replicas)
    await replicas.start()
    queued = []
    for number, answer in enumerate([("10.0.0.1", "10.0.0.2")] * 2 + [("10.0.0.3", "10.0.0.4", "10.0.0.5")] * 3):
        names.answer = answer
        now = START + number * route.every
        await scheduler._fire(route, "coding", Reason.SCHEDULED)
        with database.transaction() as connection:
            queued.append(newest_job(connection)["replica"])
    assert sorted(queued[:2]) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    assert sorted(queued[2:]) == [f"http://10.0.0.{n}:8000" for n in (3, 4, 5)]


def newest_job(connection: Connection) -> dict[str, str]:
    newest = "SELECT args FROM procrastinate_jobs ORDER BY id DESC LIMIT 1"
    return connection.exec_driver_sql(newest).scalar_one()["job"]


async def test_the_probe_of_a_replica_that_has_left_goes_to_one_that_is_there(database: Database) -> None:
    route = by_name()
    recorder = Recorder(make_config(route))
    prober = Prober(
        database,
        recorder,
        {"coding": prompt_set()},
        on_recorded=lambda run, recorded: pytest.fail("the probe was made"),
        now=lambda: START,
        replicas=Replicas([route], Names("10.0.0.7")),
    )
    job = ProbeJob("confirm 1 0", route.name, "coding", "http://10.0.0.1:8000", Reason.CONFIRM, trip_id=1)
    await prober.work(job)
    with database.transaction() as connection:
        assert newest_job(connection) == {**job.as_dict(), "replica": "http://10.0.0.7:8000"}


async def test_replicas_that_come_are_read_passively_and_those_that_go_are_not(
    database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "vllm.json"
    route = make_route(name="chat", replicas={"file_sd": str(file)})
    with SimulatedServer().run_in_thread() as first, SimulatedServer().run_in_thread() as second:
        file.write_text(groups(first))
        reading = PassiveReading(database, [route], lambda: datetime.now(UTC), lambda: True, 0.05, 0.2)
        task = asyncio.create_task(reading.run())
        await _until_read(database, {first})
        file.write_text(groups(second, second))
        os.utime(file, (1000, 1000))
        await _until_read(database, {first, second})
        assert {reader.replica for reader in reading._readers} == {second}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def _until_read(database: Database, wanted: set[str]) -> None:
    read: set[str] = set()
    async with asyncio.timeout(10):
        while read != wanted:
            await asyncio.sleep(0.05)
            with database.transaction() as connection:
                rows = organic_history(connection, "chat", group_by="reading")
            read = {row["replicas"][0] for row in rows}


def test_config_check_shows_the_replicas_that_are_found(tmp_path: Path) -> None:
    (tmp_path / "alerting.yaml").write_text(ALERTING)
    (tmp_path / "vllm.json").write_text(groups("vllm-1:8000", "vllm-0:8000"))
    (tmp_path / "routes.yaml").write_text("routes: [{name: chat, replicas: {file_sd: vllm.json}, domains: [math]}]")
    shown = CliRunner().invoke(cli, ["--config", str(tmp_path), "config", "check"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[1].endswith("generated tokens an hour over 2 replicas")
    assert shown.stdout.splitlines()[2:4] == [
        "    file_sd → http://vllm-0:8000",
        "    file_sd → http://vllm-1:8000",
    ]
    (tmp_path / "vllm.json").write_text("[]")
    refused = CliRunner().invoke(cli, ["--config", str(tmp_path), "config", "check"])
    assert isinstance(refused.exception, ConfigError)
    assert "routes.yaml: route chat: replicas.file_sd: " in str(refused.exception)
