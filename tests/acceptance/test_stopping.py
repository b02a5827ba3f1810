"""SIGTERM: running probes finish or go back to the queue, and an idle process is gone at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.postgres.cluster import folder_lock
from tests.acceptance.processes import PROMPTS, Home, Serve, eventually, requests_running
from tests.acceptance.stored import jobs, runs

if TYPE_CHECKING:
    from pathlib import Path

    from monitor.sim import SimulatedServer
    from monitor.store.database import Database

pytestmark = pytest.mark.timeout(180)

SLOW = {"latency_seconds": 0.5}
"""A run takes two seconds: four at a time, 14 prompts."""


def test_an_idle_process_ends_at_once(home: Home, simulator: SimulatedServer, database: Database) -> None:
    serve = home.serve()
    eventually(lambda: runs(database) and not jobs(database), "the first run is stored")
    # 0.3 s on a machine with nothing else to do; the grace period, which this must not wait for, is 30 s.
    assert serve.stop() < 5


def test_a_running_probe_finishes_within_the_grace_period(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    simulator.behave(**SLOW)
    serve = home.serve("--grace", "30")
    eventually(lambda: requests_running(simulator), "the probe is under way")
    assert serve.stop() < 20
    [(_, invalid_reason)] = runs(database)
    assert invalid_reason is None
    assert jobs(database) == []
    assert simulator.engines[0].finished == {"length": PROMPTS}


def test_a_probe_that_outlasts_the_grace_period_goes_back_to_the_queue_and_is_made_after_the_restart(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    simulator.behave(latency_seconds=60)
    serve = home.serve("--grace", "0.5")
    eventually(lambda: requests_running(simulator), "the probe is under way")
    assert serve.stop() < 5
    [(key, status)] = jobs(database)
    assert status == "todo"
    assert runs(database) == []
    eventually(lambda: not requests_running(simulator), "the server is rid of the requests")
    simulator.behave(latency_seconds=0)
    home.serve(name="restarted")
    eventually(lambda: runs(database), "the run is made")
    assert runs(database) == [(key, None)]
    eventually(lambda: not jobs(database), "the job is done")


def test_no_job_is_begun_after_sigterm(home: Home, simulator: SimulatedServer, database: Database) -> None:
    home.routes(domains=["coding", "math"])
    simulator.behave(**SLOW)
    serve = home.serve()
    eventually(lambda: requests_running(simulator), "the first probe is under way")
    serve.stop()
    assert len(runs(database)) == 1
    assert [status for _, status in jobs(database)] == ["todo"]


def test_sigterm_during_the_start_leaves_no_postgres_behind(tmp_path: Path) -> None:
    home = Home(tmp_path, None)
    home.routes("http://127.0.0.1:1")
    serve = Serve(home, "serve", [])
    eventually(lambda: (home.data / "postgres" / "postmaster.pid").exists(), "its own Postgres is being started")
    assert serve.stop() < 20
    with folder_lock(home.data / "postgres"):  # held by a Postgres for as long as it lives
        pass
