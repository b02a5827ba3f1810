"""The database goes away under `serve` and comes back: it stays up, loses no run, doubles none, and says so."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from monitor.errors import StoreError
from monitor.postgres import EmbeddedPostgres
from monitor.store.database import Database
from tests.acceptance.processes import PROMPTS, Home, Serve, eventually, requests_running
from tests.acceptance.stored import jobs, runs
from tests.acceptance.test_deliveries import queue_opened_and_resolved, unsent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.sim import SimulatedServer
    from tests.acceptance.hooks import Hook

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A Postgres of this test alone, to stop and start."""
    found = EmbeddedPostgres(tmp_path / "postgres")
    yield found
    found.stop()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path, None)
    yield found
    found.close()


def test_the_own_postgres_killed_during_a_probe_is_started_again_and_the_run_is_stored_once(
    home: Home, simulator: SimulatedServer
) -> None:
    simulator.behave(latency_seconds=0.5)
    serve = home.serve()
    eventually(lambda: requests_running(simulator), "the probe is under way")
    os.kill(int((home.data / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    eventually(lambda: serve.get("/readyz") == 503, "the loss is shown")
    eventually(lambda: serve.get("/readyz") == 200, "the database is back")
    assert serve.get("/healthz") == 200
    with EmbeddedPostgres(home.data) as url:
        database = Database(url)
        eventually(lambda: runs(database) and not jobs(database), "the run is stored")
        [(_, invalid_reason)] = runs(database)
        database.close()
    assert invalid_reason is None
    assert sum(simulator.engines[0].finished.values()) == PROMPTS
    serve.stop()


def test_the_own_postgres_killed_between_a_send_and_its_mark_loses_no_message_and_keeps_their_order(
    home: Home, simulator: SimulatedServer, hook: Hook
) -> None:
    home.receivers([{"name": "hook", "webhook": {"url": hook.url}}])
    hook.delay_seconds = 2.0
    serve = home.serve()
    with EmbeddedPostgres(home.data) as url:
        database = Database(url)
        eventually(lambda: runs(database) and not jobs(database), "nothing else is under way")
        queue_opened_and_resolved(database, "hook")
        assert hook.reached.wait(60), serve.log()
        os.kill(int((home.data / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        hook.delay_seconds = 0.0
        eventually(lambda: all_sent(database), "everything is sent, once the lease is over", 120)
        database.close()
    told = [message.transition for message in hook.messages]
    assert told in (["opened", "opened", "resolved"], ["opened", "resolved"]), "again only where it was back too late"
    assert len({message.key for message in hook.messages[:-1]}) == 1
    serve.stop()


def all_sent(database: Database) -> bool:
    """Not while the database is away."""
    try:
        return not unsent(database)
    except StoreError:
        return False


def test_a_finished_run_waits_for_a_stopped_database_longer_than_the_grace_period(
    home: Home, simulator: SimulatedServer, server: EmbeddedPostgres
) -> None:
    url = server.start()
    home.environment["DATABASE_URL"] = url
    simulator.behave(latency_seconds=0.2)
    serve = home.serve("--grace", "0.1")
    eventually(lambda: requests_running(simulator), "the probe is under way")
    server.stop()
    assert serve.get("/readyz") == 503
    eventually(lambda: "waits for the database" in serve.log(), "the finished run waits")
    assert serve.get("/healthz") == 200

    assert server.start() == url
    eventually(lambda: serve.get("/readyz") == 200, "the database is back")
    database = Database(url)
    eventually(lambda: runs(database) and not jobs(database), "the run is stored")
    [(_, invalid_reason)] = runs(database)
    assert invalid_reason is None
    assert sum(simulator.engines[0].finished.values()) == PROMPTS
    database.close()
    serve.stop()


def test_scheduling_and_probing_go_on_after_an_outage_in_between_probes(
    home: Home, simulator: SimulatedServer, server: EmbeddedPostgres
) -> None:
    url = server.start()
    home.environment["DATABASE_URL"] = url
    home.routes(every="1s")
    serve = home.serve()
    database = Database(url)
    eventually(lambda: len(runs(database)) > 1, "probes are made")
    database.close()
    server.stop()
    eventually(
        lambda: "nothing is scheduled" in serve.log() and "no probe is begun" in serve.log(), "the loss is noticed"
    )
    server.start()
    known = len(runs(database))
    eventually(lambda: len(runs(database)) > known + 1, "probes are made again")
    made = [key for key, _ in runs(database)]
    assert len(made) == len(set(made))
    database.close()
    serve.stop()


def test_sigterm_while_the_database_is_away_ends_the_process_and_the_run_is_made_after_the_restart(
    home: Home, simulator: SimulatedServer, server: EmbeddedPostgres
) -> None:
    url = server.start()
    home.environment["DATABASE_URL"] = url
    simulator.behave(latency_seconds=0.2)
    serve = home.serve("--grace", "0.5")
    eventually(lambda: requests_running(simulator), "the probe is under way")
    server.stop()
    eventually(lambda: "waits for the database" in serve.log(), "the finished run waits")
    assert serve.stop() < 15
    server.start()
    home.serve(name="restarted")
    database = Database(url)
    eventually(lambda: runs(database) and not jobs(database), "the run is made")
    assert len(runs(database)) == 1
    database.close()


def test_a_start_before_its_database_waits_for_it(
    home: Home, simulator: SimulatedServer, server: EmbeddedPostgres
) -> None:
    home.environment["DATABASE_URL"] = url = server.start()
    server.stop()
    serve = Serve(home, "serve", [])
    eventually(lambda: "waiting for it up to 60 s" in serve.log(), "it waits")
    server.start()
    database = Database(url)
    eventually(lambda: serve.get("/readyz") == 200, "it is ready")
    eventually(lambda: runs(database), "it probes")
    database.close()
    assert serve.log().count("waiting for it") == 1
    serve.stop()
