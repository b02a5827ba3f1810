"""What is our own fault is told, counted, and never taken for the target's or lost without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob, defer
from tests.acceptance.processes import PROMPTS, eventually
from tests.acceptance.stored import count, execute, jobs, runs

if TYPE_CHECKING:
    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home

pytestmark = pytest.mark.timeout(180)


def break_inserts(database: Database, table: str, condition: str = "true") -> None:
    """Rows that meet the condition are refused, with an error no part of Specwatch expects."""
    execute(
        database,
        "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken by a test'; END $$",
    )
    execute(
        database,
        f"CREATE TRIGGER broken BEFORE INSERT ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION broken()",
    )


def test_a_run_that_cannot_be_recorded_as_it_is_is_stored_as_invalid_with_its_samples(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    break_inserts(database, "runs", "NEW.valid")
    serve = home.serve()
    eventually(lambda: runs(database) and not jobs(database), "the run is stored")
    [(key, reason)] = runs(database)
    assert reason == "internal_error"
    assert count(database, "samples") == PROMPTS
    assert f"the run of job {key} could not be recorded as it is" in serve.log()
    assert serve.counter("errors_total") == 1


def test_a_run_that_cannot_be_stored_at_all_leaves_its_job_as_failed_and_the_rest_at_work(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(domains=["coding", "math"])
    break_inserts(database, "runs", "NEW.domain = 'coding'")
    serve = home.serve()
    eventually(lambda: runs(database), "the other domain's run is stored")
    eventually(lambda: [status for _, status in jobs(database)] == ["failed"], "the job has failed")
    [(key, _)] = jobs(database)
    assert key.startswith("slot chat-0 coding ")
    assert f"job {key} failed and its run is lost" in serve.log()
    assert serve.counter("errors_total") == 2
    assert [serve.get(page) for page in ("/healthz", "/readyz")] == [200, 200]


def test_a_job_that_kills_its_workers_is_given_up(home: Home, simulator: SimulatedServer, database: Database) -> None:
    job = ProbeJob("the poison", "chat-0", "coding", home.urls[0], Reason.MANUAL)
    with database.transaction() as connection:
        defer(connection, job)
    execute(database, "UPDATE procrastinate_jobs SET status = 'doing', attempts = 10")
    serve = home.serve()
    eventually(lambda: jobs(database) == [("the poison", "failed")], "it is given up, and its replica is free again")
    assert [key for key, _ in runs(database)] != ["the poison"]
    assert "job the poison is given up" in serve.log()
    assert serve.counter("errors_total") == 1


def test_a_part_that_fails_ends_the_process_with_an_error_instead_of_leaving_it_half_alive(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    serve = home.serve()
    eventually(lambda: runs(database) and not jobs(database), "the first run is stored")
    execute(database, "DROP TABLE deliveries")
    assert serve.process.wait(60) == 1
    assert "the sender has failed, so everything ends" in serve.log()
    assert 'relation "deliveries" does not exist' in serve.log()
