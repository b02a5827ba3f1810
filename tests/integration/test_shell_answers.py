"""What commands say about a store: only what is true of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.core.incidents import BrokenDomain, IncidentState, Worst
from monitor.sim import SimulatedServer
from monitor.store import baselines, incidents, runs
from tests.factories import DOMAIN, ROUTE, START, make_run

if TYPE_CHECKING:
    from monitor.store.database import Database


def specwatch(database: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--database-url", database.conninfo(), *arguments])


def test_an_approval_that_is_taken_back_is_not_claimed(database: Database) -> None:
    with database.transaction() as connection:
        run_id = runs.store_run(connection, "one", make_run())
        assert run_id is not None
        baseline_id = baselines.create_baseline(connection, [run_id], "ann", make_run().started_at)
    result = specwatch(database, "baseline", "approve", str(baseline_id), "999")
    assert (result.exit_code != 0, result.stdout) == (True, "")
    with database.transaction() as connection:
        assert [row["approved_at"] for row in baselines.list_baselines(connection)] == [None]


def test_runs_of_a_route_that_is_not_there_are_not_just_none(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
    assert "there is no route nope" in str(specwatch(database, "runs", "--route", "nope").exception)


def test_incidents_of_a_route_that_is_not_there_are_not_just_none(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
    assert f"there is no route nope in this store; recorded are: {ROUTE}" in str(
        specwatch(database, "incidents", "--route", "nope").exception
    )
    found = specwatch(database, "incidents", "--route", ROUTE)
    assert (found.exit_code, found.stderr) == (0, "no incidents\n")


def test_a_resolved_incident_is_listed_with_the_domains_that_were_in_it(database: Database) -> None:
    worst = Worst("acceptance_length", -0.2, 1.92, 2.4, (31, 33))
    broken = BrokenDomain("drop", "page", worst=worst, joined_at=START)
    later = START + timedelta(hours=2)
    state = IncidentState({"coding": broken, "math": broken})
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, ROUTE, None, state, START)
        incidents.save_state(connection, ROUTE, incident_id, state.without({"math"}, later), later)
    assert "coding -20.0%, math -20.0% (left)" in specwatch(database, "incidents").stdout
    with database.transaction() as connection:
        incidents.save_state(connection, ROUTE, incident_id, state.without({"coding", "math"}, later), later)
    assert "coding -20.0%, math -20.0%  " in specwatch(database, "incidents").stdout
    shown = specwatch(database, "incidents", str(incident_id)).stdout
    assert "  coding: page by drop; at worst -20.0%, 1.92 of 2.40 (runs 31, 33); joined " in shown


def test_an_incident_of_a_store_from_before_domains_were_remembered_is_read(database: Database) -> None:
    broken = IncidentState({"coding": BrokenDomain("drop", "page", 1)})
    with database.transaction() as connection:
        incidents.save_state(connection, ROUTE, None, broken, START)
        old = '{"coding": {"rule": "drop", "severity": "page", "well_runs": 1}}'
        connection.exec_driver_sql(f"UPDATE incidents SET domains = '{old}'")
        found = incidents.open_incident(connection, ROUTE)
        assert found is not None
        assert found[1] == broken
    assert "coding" in specwatch(database, "incidents", "1").stdout


def test_csv_of_nothing_has_no_line(database: Database) -> None:
    result = specwatch(database, "runs", "--format", "csv")
    assert (result.exit_code, result.stdout) == (0, "")


def standing_of(database: Database) -> tuple[str, float | None]:
    (row,) = json.loads(specwatch(database, "routes", "--format", "json").stdout)
    assert (row["route"], row["domain"]) == (ROUTE, DOMAIN)
    return row["state"], row["change"]


def test_a_route_that_nobody_judged_is_not_called_ok(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
    assert standing_of(database) == ("not judged", None)


def test_a_route_whose_newest_run_is_invalid_says_why(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
        runs.store_run(connection, "two", make_run(invalid_reason="unreachable"))
    assert standing_of(database) == ("unreachable", None)


def test_a_saved_probe_of_few_prompts_is_invalid_and_makes_no_baseline(database: Database) -> None:
    with SimulatedServer().run_in_thread() as url:
        saved = specwatch(database, "probe", url, "--domain", "math", "--prompts", "4", "--save")
    assert saved.exit_code == 0, saved.output
    (run,) = json.loads(specwatch(database, "runs", "--format", "json").stdout)
    assert (run["valid"], run["invalid_reason"], run["prompts_valid"]) == (False, "too_few_valid_prompts", 4)
    assert "there is no valid run of route probe" in str(specwatch(database, "baseline", "create", "probe").exception)
