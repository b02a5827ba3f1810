"""kill −9 of `serve`: what it was doing is done once by the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob, defer
from tests.acceptance.processes import PROMPTS, eventually, requests_running
from tests.acceptance.stored import count, jobs, runs

if TYPE_CHECKING:
    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home

pytestmark = pytest.mark.timeout(180)


def test_a_run_cut_short_by_a_kill_is_made_once_after_the_restart(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    simulator.behave(latency_seconds=0.5)
    killed = home.serve()
    eventually(lambda: requests_running(simulator), "the probe is under way")
    killed.kill()
    [(key, status)] = jobs(database)
    assert (status, runs(database)) == ("doing", [])

    serve = home.serve(name="restarted")
    eventually(lambda: runs(database), "the run is made")
    eventually(lambda: not jobs(database), "the job is done")
    assert runs(database) == [(key, None)]
    assert count(database, "samples") == PROMPTS
    serve.stop()


def test_kills_at_any_moment_lose_no_job_and_double_no_run(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(domains=["coding", "math"], every="1s")
    simulator.behave(latency_seconds=0.02)
    queued: set[str] = set()
    for more_runs in (1, 3):
        before = len(runs(database))
        killed = home.serve()
        eventually(lambda: len(runs(database)) >= before + more_runs, "runs are made")  # noqa: B023  (called at once)
        killed.kill()
        queued |= {key for key, _ in jobs(database)}
    home.routes(domains=["coding", "math"], every="1h")
    serve = home.serve(name="last")
    eventually(lambda: not jobs(database), "every job is done", 90)
    made = [key for key, _ in runs(database)]
    assert len(made) == len(set(made))
    assert queued <= set(made)
    assert [reason for _, reason in runs(database) if reason] == []
    serve.stop()


def test_a_job_whose_run_is_stored_already_sends_no_prompt_again(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    """As after a kill between storing the run and finishing its job."""
    serve = home.serve()
    eventually(lambda: runs(database) and not jobs(database), "the run is made")
    [(key, _)] = runs(database)
    with database.transaction() as connection:
        defer(connection, ProbeJob(key, "chat-0", "coding", home.urls[0], Reason.SCHEDULED))
    eventually(lambda: not jobs(database), "the job is done")
    assert runs(database) == [(key, None)]
    assert sum(simulator.engines[0].finished.values()) == PROMPTS
    serve.stop()
