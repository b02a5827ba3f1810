"""A real Prometheus Alertmanager: one alert per incident, told once, over its restart, its silences and the end."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from monitor.alerting.peer_watch import PeerWatch
from monitor.alerting.receivers import build_receivers
from monitor.alerting.resender import Resender
from monitor.alerting.sender import Sender
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.store import incident_events, incidents
from tests.acceptance.hooks import Hook
from tests.factories import ROUTE, make_alerting, make_document, make_route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from monitor.store.database import Database

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = [
    pytest.mark.skipif(ALERTMANAGER is None, reason="prometheus-alertmanager is not installed"),
    pytest.mark.timeout(120),
]
STATE = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
CONFIG = """
route: {receiver: hook, group_by: [route], group_wait: 100ms, group_interval: 300ms, repeat_interval: 4h}
receivers: [{name: hook, webhook_configs: [{url: "URL", send_resolved: true}]}]
"""


class Told:
    """What the Alertmanager's own receiver was sent: the status of each notification and its alerts."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, int]] = []

    @contextmanager
    def listening(self) -> Iterator[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(told: Told) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.notifications.append((body["status"], len(body["alerts"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
            return

    return Handler


class Alertmanager:
    """A process of its own with a directory that outlives it."""

    def __init__(self, directory: Path, hook: str) -> None:
        self.directory = directory
        (directory / "alertmanager.yml").write_text(CONFIG.replace("URL", hook))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{self.address}"

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [
            str(ALERTMANAGER),
            f"--config.file={self.directory / 'alertmanager.yml'}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
        ]
        with (self.directory / "log").open("a") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            eventually(self._ready)
            yield
        finally:
            process.terminate()
            process.wait(20)

    def alerts(self) -> list[tuple[str, str]]:
        """(incident, state: active or suppressed) of each alert that has not ended."""
        found = httpx.get(f"{self.url}/api/v2/alerts").json()
        return [(alert["labels"]["incident"], alert["status"]["state"]) for alert in found]

    def silence(self) -> None:
        now = datetime.now(UTC)
        matcher = {"name": "route", "value": ROUTE, "isRegex": False, "isEqual": True}
        times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
        body = {"matchers": [matcher], "createdBy": "test", "comment": "known", **times}
        httpx.post(f"{self.url}/api/v2/silences", json=body).raise_for_status()

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready").is_success
        except httpx.HTTPError:
            return False


def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.05)


class Specwatch:
    """An incident of the store, and what sends it."""

    def __init__(self, database: Database, urls: list[str], *others: dict[str, Any]) -> None:
        self.database = database
        alerting = make_alerting(receivers=[{"name": "am", "alertmanager": {"urls": urls}}, *others])
        receivers = build_receivers(alerting)
        self.sender = Sender(database, receivers, self._now)
        watch = PeerWatch(alerting, [make_route()])
        self.resender = Resender(database, receivers, self._now, watch=watch)
        self.opened_at = self._now()
        self.incident_id = 0

    def _now(self) -> datetime:
        return datetime.now(UTC)

    async def tell(self, transition: Transition) -> None:
        """The transition happens, and is sent."""
        now = self._now()
        times = {"opened_at": self.opened_at.isoformat(), "happened_at": now.isoformat()}
        document = make_document(transition.value, **times)
        over = transition is Transition.RESOLVED
        with self.database.transaction() as connection:
            state = IncidentState() if over else STATE
            self.incident_id = incidents.save_state(connection, ROUTE, self.incident_id or None, state, now)
            incident_events.add_event(connection, self.incident_id, transition, document, ["am"], now)
        assert await self.sender.send_due() == 1
        assert self.sender.failures.total == 0


@pytest.fixture
def told() -> Told:
    return Told()


async def test_an_incident_is_one_alert_from_its_opening_over_a_restart_to_its_end(
    tmp_path: Path, database: Database, told: Told
) -> None:
    with told.listening() as hook:
        alertmanager = Alertmanager(tmp_path, hook)
        specwatch = Specwatch(database, [alertmanager.url])
        with alertmanager.running():
            await specwatch.tell(Transition.OPENED)
            await specwatch.tell(Transition.UPDATED)
            for _ in range(3):
                await specwatch.resender.send_again()
            incident = str(specwatch.incident_id)
            assert alertmanager.alerts() == [(incident, "active")]
            eventually(lambda: told.notifications == [("firing", 1)])
        with alertmanager.running():
            assert alertmanager.alerts() == [], "it keeps no alerts"
            await specwatch.resender.send_again()
            assert alertmanager.alerts() == [(incident, "active")]
            await specwatch.tell(Transition.RESOLVED)
            eventually(lambda: ("resolved", 1) in told.notifications)
            await specwatch.resender.send_again()
            assert alertmanager.alerts() == []
    assert told.notifications == [("firing", 1), ("resolved", 1)]


async def test_what_is_silenced_there_is_told_to_nobody_and_ends_like_others(
    tmp_path: Path, database: Database, told: Told
) -> None:
    with told.listening() as hook:
        alertmanager = Alertmanager(tmp_path, hook)
        with alertmanager.running():
            alertmanager.silence()
            specwatch = Specwatch(database, [alertmanager.url])
            await specwatch.tell(Transition.OPENED)
            await specwatch.resender.send_again()
            eventually(lambda: alertmanager.alerts() == [(str(specwatch.incident_id), "suppressed")])
            await specwatch.tell(Transition.RESOLVED)
            eventually(lambda: alertmanager.alerts() == [])
    assert told.notifications == []


async def test_a_peer_that_was_away_hears_of_it_with_the_next_round(
    tmp_path: Path, database: Database, told: Told
) -> None:
    with told.listening() as hook:
        directories = [tmp_path / name for name in ("first", "second")]
        for directory in directories:
            directory.mkdir()
        first, second = (Alertmanager(directory, hook) for directory in directories)
        specwatch = Specwatch(database, [first.url, second.url])
        with first.running():
            await specwatch.tell(Transition.OPENED)
            with second.running():
                assert second.alerts() == []
                await specwatch.resender.send_again()
                assert second.alerts() == first.alerts() == [(str(specwatch.incident_id), "active")]


async def test_a_peer_that_is_down_is_counted_logged_once_and_told_and_hears_of_it_when_it_is_back(
    tmp_path: Path, database: Database, told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "monitor.alerting.peers")
    with told.listening() as hook, Hook().running() as other:
        directories = [tmp_path / name for name in ("first", "second")]
        for directory in directories:
            directory.mkdir()
        first, second = (Alertmanager(directory, hook) for directory in directories)
        specwatch = Specwatch(database, [first.url, second.url], {"name": "other", "webhook": {"url": other.url}})
        with first.running():
            await specwatch.tell(Transition.OPENED)  # which holds that it arrived, though one of two was away
            for _ in range(3):
                await specwatch.resender.send_again()
            refused = f"{second.address}: connection refused"
            assert [r.getMessage() for r in caplog.records if r.name == "monitor.alerting.peers"] == [
                f"am: a peer takes no alerts: {refused}; it is tried each minute"
            ]
            assert specwatch.resender.peer_attempts.counts == {("am", first.address): 4, ("am", second.address): 4}
            assert specwatch.resender.peer_failures.counts == {("am", first.address): 0, ("am", second.address): 4}
            assert await specwatch.sender.send_due() == 0, "ten minutes are not over"

            monkeypatch.setattr("monitor.core.peers.DOWN_AFTER", timedelta(0))
            for _ in range(2):
                await specwatch.resender.send_again()
            assert await specwatch.sender.send_due() == 2, "by the peer that is left, and by the other receiver, once"
            peer_id = specwatch.incident_id + 1
            assert (str(peer_id), "active") in first.alerts()
            [firing] = [message.body for message in other.messages]
            assert firing["commonLabels"] == {
                "alertname": "SpecwatchPeerDown",
                "incident": str(peer_id),
                "receiver": "am",
                "route": "receiver am",
                "severity": "warning",
            }
            summary, *lines = firing["commonAnnotations"]["description"].splitlines()
            assert summary.startswith(f"WARNING receiver am: {second.address} takes no alerts since 20")
            assert summary.endswith(f" UTC; {first.address} takes them; next: specwatch receivers list")
            assert {line.strip().removeprefix("peers").strip() for line in lines[:2]} == {
                f"{first.address}: HTTP 200",
                refused,
            }
            with second.running():
                await specwatch.resender.send_again()
                assert (str(specwatch.incident_id), "active") in second.alerts()
                assert await specwatch.sender.send_due() == 2
                eventually(lambda: (str(peer_id), "active") not in second.alerts())
    assert [message.body["status"] for message in other.messages] == ["firing", "resolved"]
    assert f"am: {second.address} takes alerts again" in caplog.text


async def test_an_alertmanager_of_which_no_peer_is_left_is_told_before_there_is_an_alert_for_it(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.core.peers.DOWN_AFTER", timedelta(0))
    with Hook().running() as other:
        away = Alertmanager(tmp_path, "http://nobody/")
        specwatch = Specwatch(database, [away.url], {"name": "other", "webhook": {"url": other.url}})
        await specwatch.resender.send_again()
        assert await specwatch.sender.send_due() == 2
        assert "; no other peer is left; " in other.messages[0].body["commonAnnotations"]["summary"]
        with away.running():
            assert away.alerts() == []
            await specwatch.resender.send_again()
            assert await specwatch.sender.send_due() == 1, "the receiver itself waits for its next attempt"
    assert [message.body["status"] for message in other.messages] == ["firing", "resolved"]
