"""The heartbeat against a real database and a real HTTP server."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.service.heartbeat import HeartbeatCaller
from monitor.store import incident_events, incidents, runs, silences
from tests.factories import ROUTE, START, make_alerting, make_config, make_document, make_route, make_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.store.database import Database

MINUTE = timedelta(minutes=1)


class Switch:
    """A dead-man's switch: what it was called with, and what it answers."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.answer = 200

    @contextmanager
    def listening(self) -> Iterator[str]:
        switch = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                switch.calls.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(switch.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
                return

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/ping/secret"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class Watch:
    """One caller with a clock that is set by hand."""

    def __init__(self, database: Database) -> None:
        self.now = START
        config = make_config(
            make_route(domains=["coding"]), alerting=make_alerting(heartbeat={"url": {"env": "HEARTBEAT_URL"}})
        )
        self.caller = HeartbeatCaller(database, config, lambda: self.now)

    async def beats(self, after: timedelta) -> bool:
        self.now = START + after
        return await self.caller.beat(START)


@pytest.fixture
def switch() -> Switch:
    return Switch()


@pytest.fixture
def watch(database: Database, switch: Switch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    with switch.listening() as url:
        monkeypatch.setenv("HEARTBEAT_URL", url)
        yield Watch(database)


async def test_it_beats_while_runs_finish_valid_or_not_and_is_withheld_when_they_stay_away(
    database: Database, watch: Watch, switch: Switch, caplog: pytest.LogCaptureFixture
) -> None:
    assert await watch.beats(0 * MINUTE)
    with database.transaction() as connection:
        run = make_run(domain="coding", started_at=START + 60 * MINUTE, invalid_reason="busy")
        runs.store_run(connection, "one", run)
    assert await watch.beats(141 * MINUTE)
    assert not await watch.beats(142 * MINUTE)
    assert not await watch.beats(143 * MINUTE)
    assert switch.calls == [b'{"status": "ok"}'] * watch.caller.calls == [b'{"status": "ok"}'] * 2
    assert (watch.caller.trouble or "").startswith("withheld: chat-prod · coding: no run has finished since ")
    assert [record.message for record in caplog.records if "heartbeat" in record.message] == [
        "the heartbeat is withheld: chat-prod · coding: no run has finished since 2026-03-02 11:01:00+00:00"
    ]


async def test_it_is_withheld_while_a_message_does_not_arrive_and_not_for_one_that_is_silenced(
    database: Database, watch: Watch
) -> None:
    state = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, ROUTE, None, state, START)
        incident_events.add_event(connection, incident_id, Transition.OPENED, make_document(), ["hook"], START)
    assert await watch.beats(5 * MINUTE)
    assert not await watch.beats(6 * MINUTE)
    with database.transaction() as connection:
        silences.add_silence(connection, "ann", "known", START + 60 * MINUTE, START)
        silences.apply_silences(connection, START + 6 * MINUTE)
    assert await watch.beats(7 * MINUTE)


async def test_a_switch_that_refuses_is_told_by_host_alone(
    watch: Watch, switch: Switch, caplog: pytest.LogCaptureFixture
) -> None:
    switch.answer = 500
    assert not await watch.beats(0 * MINUTE)
    [line] = [record.message for record in caplog.records if "heartbeat" in record.message]
    assert line.startswith("the heartbeat does not arrive: 127.0.0.1:")
    assert line.endswith(": HTTP 500")
    assert "secret" not in line
