"""Receivers that fail in every way: nothing is lost, out of order or under another key."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.receivers import build_receivers
from monitor.alerting.sender import Sender
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.store import incident_events, incidents, outbox
from tests.factories import ROUTE, START, make_alerting, make_document
from tests.smtp import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from monitor.store.database import Database

HOUR = timedelta(hours=1)
STATE = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
LIFE = (Transition.OPENED, Transition.UPDATED, Transition.RESOLVED)
TOLD = [transition.value for transition in LIFE]
FAILURES = ["429", "500", "503", "reset", "silence", "silence after taking it", "reset after taking it"]
MAIL_FAILURES: list[dict[str, str | None]] = [{"RCPT": "451 later"}, {"MAIL": None}, {"DATA": "452 full"}, {".": None}]


class Clock:
    """The sender's time, which the test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class FailingServer:
    """Fails each message once in every way of `failures`, then takes it; `bodies` are those it took, repeats too."""

    def __init__(self, failures: list[str], down: Callable[[], bool] = lambda: False) -> None:
        self.failures = failures
        self.down = down
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self._tries: dict[str, int] = {}
        self._end = threading.Event()

    @contextmanager
    def running(self) -> Iterator[FailingServer]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/s3cret"
        try:
            yield self
        finally:
            self._end.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def behaviour(self, body: dict[str, Any]) -> str:
        if self.down():
            return "500"
        key = json.dumps(body, sort_keys=True)
        number = self._tries[key] = self._tries.get(key, -1) + 1
        found = self.failures[number] if number < len(self.failures) else "200"
        if found == "200" or found.endswith("after taking it"):
            self.bodies.append(body)
        return found

    def wait(self) -> None:
        self._end.wait(10)


def _handler(server: FailingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            behaviour = server.behaviour(body)
            if behaviour.startswith("silence"):
                server.wait()
            if not behaviour.isdecimal():
                self.close_connection = True
                return
            self.send_response(int(behaviour))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
            return

    return Handler


def incident_told_to(database: Database, receiver: str, life: Sequence[Transition]) -> None:
    """An incident whose transitions are all still to be delivered."""
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, ROUTE, None, STATE, START)
        for minutes, transition in enumerate(life):
            happened_at = START + timedelta(minutes=minutes)
            document = make_document(transition.value, happened_at=happened_at.isoformat())
            incident_events.add_event(connection, incident_id, transition, document, [receiver], happened_at)


async def delivered(
    database: Database,
    kind: dict[str, Any],
    clock: Clock,
    before_each: Callable[[], None] = lambda: None,
    life: Sequence[Transition] = LIFE,
) -> dict[tuple[str, str], int]:
    """Sends until nothing is pending, an hour of the sender's time a step; how many deliveries ended how."""
    receivers = build_receivers(make_alerting(receivers=[{"name": "there", **kind}]))
    incident_told_to(database, "there", life)
    sender = Sender(database, receivers, clock)
    for _ in range(60):
        clock.now += HOUR
        before_each()
        await sender.send_due()
        with database.transaction() as connection:
            counts = outbox.outbox_counts(connection)
        if ("there", "pending") not in counts:
            return counts
    raise AssertionError(counts)


def first_arrivals(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.timeout(120)
async def test_pagerduty_hears_everything_in_order_under_one_key(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "R0123")
    with FailingServer(FAILURES).running() as server:
        kind = {"pagerduty": {"routing_key": {"env": "KEY"}, "url": server.url, "timeout": "200ms"}}
        life = (Transition.OPENED, Transition.UPDATED, Transition.ACKNOWLEDGED, Transition.RESOLVED)
        assert await delivered(database, kind, clock, life=life) == {("there", "sent"): 4}
    assert first_arrivals([body["payload"]["summary"].split()[0] for body in server.bodies]) == [*life]
    assert first_arrivals([body["event_action"] for body in server.bodies]) == ["trigger", "acknowledge", "resolve"]
    assert {(body["routing_key"], body["dedup_key"]) for body in server.bodies} == {
        ("R0123", server.bodies[0]["dedup_key"])
    }
    assert len(server.bodies) == 12, "each was taken twice by a server that then failed, and once for good"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["slack", "teams", "webhook"])
async def test_others_that_are_posted_to_hear_everything_in_order(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with FailingServer(FAILURES).running() as server:
        monkeypatch.setenv("URL", server.url)
        settings = {kind: {"url": {"env": "URL"}, "timeout": "200ms"}}
        assert await delivered(database, settings, clock) == {("there", "sent"): 3}
    texts = [json.dumps(body) for body in server.bodies]
    arrived = first_arrivals([next(word for word in TOLD if f'"{word} {ROUTE}' in text) for text in texts])
    assert arrived == TOLD


async def test_a_server_that_is_down_for_hours_hears_of_it_when_it_is_back(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "R0123")
    with FailingServer([], down=lambda: clock.now < START + 6 * HOUR).running() as server:
        kind = {"pagerduty": {"routing_key": {"env": "KEY"}, "url": server.url}}
        assert await delivered(database, kind, clock) == {("there", "sent"): 3}
    assert [body["payload"]["summary"].split()[0] for body in server.bodies] == TOLD


async def test_what_is_refused_for_good_is_dead_and_shown_and_what_follows_is_sent(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FailingServer(["400"]).running() as server:
        monkeypatch.setenv("URL", server.url)
        assert await delivered(database, {"slack": {"url": {"env": "URL"}}}, clock) == {("there", "dead"): 3}
    with database.transaction() as connection:
        found = incidents.get_incident(connection, 1)
    assert found is not None
    errors = {delivery["last_error"] for event in found["events"] for delivery in event["deliveries"]}
    assert errors == {f"{server.url.split('/')[2]}: HTTP 400"}
    assert server.bodies == []


@pytest.mark.timeout(120)
async def test_mail_hears_everything_in_order_in_one_thread(database: Database, clock: Clock) -> None:
    with Mailbox().running() as mailbox:
        failures = iter(MAIL_FAILURES * 3)

        def misbehave() -> None:
            mailbox.replies = next(failures, {})

        mail = {"host": "127.0.0.1", "port": mailbox.port, "security": "none", "sender": "s@example.com"}
        kind = {"email": {**mail, "to": ["oncall@example.com"]}}
        assert await delivered(database, kind, clock, misbehave) == {("there", "sent"): 3}
    assert first_arrivals([message["Subject"].split()[0] for message in mailbox.messages]) == TOLD
    assert len({message["References"] for message in mailbox.messages}) == 1
    assert len({message["Message-ID"] for message in mailbox.messages}) == 3
    assert len(mailbox.messages) == 6, "each was taken by a server that then cut the connection, and came again"
