"""What commands say about a store: only what is true of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.core.incidents import BrokenDomain, IncidentState, Worst
from monitor.core.judge import Line, judge_run
from monitor.core.records import Sampling
from monitor.errors import UsageError
from monitor.sim import SimulatedServer
from monitor.store import approvals, baselines, incidents, runs, verdicts
from tests.factories import DOMAIN, IDENTITY, ROUTE, START, make_run

if TYPE_CHECKING:
    from sqlalchemy import Connection

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
    assert "  coding: page by drop; at worst -20.0%, 1.92 of 2.40, in runs 31, 33; joined " in shown


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


def stored_in_turn(connection: Connection, *lengths: tuple[str, float], **changes: Any) -> None:
    """Runs on these replicas, one every 40 minutes."""
    for number, (name, length) in enumerate(lengths):
        at = START + number * timedelta(minutes=40)
        runs.store_run(connection, f"turn {number}", make_run(length, replica=name, started_at=at, **changes))


def test_routes_say_which_replica_differs(database: Database) -> None:
    with database.transaction() as connection:
        stored_in_turn(connection, ("http://a", 2.4), ("http://b", 1.8), ("http://c", 2.4), ("http://a", 2.4))
    (row,) = json.loads(specwatch(database, "routes", "--format", "json").stdout)
    found = row["replica_difference"]
    assert (found["replica"], found["others"], found["prompts"]) == ("http://b", ["http://a", "http://c"], 24)
    assert found["change"] == pytest.approx(-0.25)
    shown = specwatch(database, "routes").stdout
    assert "\nchat-prod · coding: only http://b: -25.0% (95 % interval " in shown
    assert all(len(line) <= 80 for line in shown.splitlines()[-2:])


def test_replicas_of_which_one_runs_something_else_are_not_compared(database: Database) -> None:
    with database.transaction() as connection:
        stored_in_turn(connection, ("http://a", 2.4), ("http://b", 1.8), ("http://a", 2.4))
        other = replace(IDENTITY, version="0.30.0")
        runs.store_run(
            connection, "last", make_run(2.4, replica="http://c", identity=other, started_at=START + timedelta(hours=3))
        )
    (row,) = json.loads(specwatch(database, "routes", "--format", "json").stdout)
    assert row["replica_difference"] is None
    assert "only http" not in specwatch(database, "routes").stdout


def test_a_saved_probe_of_few_prompts_is_invalid_and_makes_no_baseline(database: Database) -> None:
    with SimulatedServer().run_in_thread() as url:
        saved = specwatch(database, "probe", url, "--domain", "math", "--prompts", "4", "--save")
    assert saved.exit_code == 0, saved.output
    (run,) = json.loads(specwatch(database, "runs", "--format", "json").stdout)
    assert (run["valid"], run["invalid_reason"], run["prompts_valid"]) == (False, "too_few_valid_prompts", 4)
    assert "there is no valid run of route probe" in str(specwatch(database, "baseline", "create", "probe").exception)


def judged_run(database: Database) -> int:
    """A second run, judged by an approved baseline of the first: one prompt fell by half, one by a tenth."""
    with database.transaction() as connection:
        first = runs.store_run(connection, "one", make_run())
        assert first is not None
        baseline_id = baselines.create_baseline(connection, [first], "ann", START)
        approvals.approve_baseline(connection, baseline_id, "ann", "", START)
        lengths = {f"q{number:02}": 2.4 for number in range(24)} | {"q05": 2.16, "q11": 1.2}
        later = make_run(lengths, started_at=START + timedelta(hours=1))
        run_id = runs.store_run(connection, "two", later)
        assert run_id is not None
        line = Line("acceptance_length", 0.15)
        reference = baselines.reference_by_id(connection, baseline_id, line.metric)
        verdict = judge_run(runs.candidate(connection, run_id, line.metric), reference, line)
        verdicts.store_verdict(connection, run_id, "drop", verdict, START)
    return run_id


def lines_of(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines()]


def test_history_says_once_what_is_the_same_and_shows_the_change_from_the_baseline(database: Database) -> None:
    judged_run(database)
    shown = lines_of(specwatch(database, "history", ROUTE).stdout)
    assert shown[0] == ["domain", "coding", "·", "K", "3", "·", "source", "request"]
    assert shown[2] == ["run", "at", "(UTC)", "AL", "judged", "AL", "baseline", "change", "note"]
    assert shown[4][2:] == ["10:00", "2.40", "–", "–", "–", "baseline", "1", "approved"]
    assert shown[5][-4:] == ["2.32", "2.40", "(1)", "-3.3%"]


def test_history_names_what_was_judged_where_that_is_another_figure(database: Database) -> None:
    judged_run(database)
    shown = lines_of(specwatch(database, "history", ROUTE, "--metric", "acceptance_rate").stdout)
    assert shown[2] == ["run", "at", "(UTC)", "AR", "judged", "AL", "baseline", "change", "note"]


def test_history_says_which_rows_pool_several_identities_and_how_to_see_each_alone(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run(2.4))
        runs.store_run(connection, "two", make_run(2.0, identity=replace(IDENTITY, version="0.30.0")))
    shown = specwatch(database, "history", ROUTE, "--group-by", "day").stdout.splitlines()
    assert (shown[2].split()[-2:], shown[4].split()[-2:]) == (["valid", "identities"], ["2/2", "2"])
    told = [
        "Rows with several identities pool figures of before and after a bump;",
        "--group-by identity has each identity alone.",
    ]
    assert shown[-2:] == told
    assert specwatch(database, "history", ROUTE, "--by-context", "--group-by", "day").stdout.splitlines()[-2:] == told
    alone = specwatch(database, "history", ROUTE, "--group-by", "identity").stdout
    assert "identities" not in alone


def test_history_says_what_tells_rows_apart_that_are_not_comparable(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run(2.4))
        runs.store_run(connection, "two", make_run(2.0, sampling=Sampling(cache="warm"), concurrency=16))
    shown = specwatch(database, "history", ROUTE, "--group-by", "week").stdout.splitlines()
    assert shown[2].split()[-2:] == ["valid", "conditions"]
    assert [(line.split()[1], line.split("1/1")[1].strip()) for line in shown[4:6]] == [
        ("2.40", "concurrency 4, cache cold"),
        ("2.00", "concurrency 16, cache warm"),
    ]


def test_run_show_has_the_biggest_fall_first(database: Database) -> None:
    run_id = judged_run(database)
    shown = specwatch(database, "run", "show", str(run_id)).stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    table = [row for row in lines_of(shown) if row and row[0].startswith("q")]
    assert [row[:4] for row in table[:3]] == [
        ["q11", "1.20", "2.40", "-50.0%"],
        ["q05", "2.16", "2.40", "-10.0%"],
        ["q00", "2.40", "2.40", "0.0%"],
    ]
    document = json.loads(specwatch(database, "run", "show", str(run_id), "--format", "json").stdout)
    fallen = document["samples"][11]
    assert (fallen["question_id"], fallen["baseline_acceptance_length"], fallen["change"]) == (
        "q11",
        pytest.approx(2.4),
        pytest.approx(-0.5),
    )


def test_what_told_identities_apart_is_said_below(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
        runs.store_run(connection, "two", make_run(identity=replace(IDENTITY, drafter="org/other")))
    shown = specwatch(database, "history", ROUTE, "--group-by", "identity").stdout
    assert shown.splitlines()[-2:] == [
        "identity 1: version 0.29.1, k 3, drafter org/drafter",
        "identity 2: version 0.29.1, k 3, drafter org/other",
    ]


def test_a_domain_that_was_never_recorded_is_not_just_empty(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
    for command in (("history", ROUTE), ("runs", "--route", ROUTE)):
        result = specwatch(database, *command, "--domain", "codign")
        assert isinstance(result.exception, UsageError)
        assert str(result.exception) == (
            f"there is no domain codign of route {ROUTE} in this store; recorded are: coding"
        )
    assert specwatch(database, "history", ROUTE, "--domain", DOMAIN, "--until", "2020-01-01").exit_code == 0


def test_a_second_approval_says_who_approved_before(database: Database) -> None:
    judged_run(database)
    result = specwatch(database, "baseline", "approve", "1", "--by", "bob")
    assert result.stdout == "baseline 1 was already approved by ann at 2026-03-02 10:00:00 UTC\n"


def test_tables_of_names_of_ordinary_length_fit_a_terminal_of_80_columns(database: Database) -> None:
    judged_run(database)
    with database.transaction() as connection:
        one = runs.store_run(connection, "three", make_run(domain="summarization"))
        assert one is not None
        runs.store_run(connection, "four", make_run(route="batch-prod", domain="summarization"))
        baseline_id = baselines.create_baseline(connection, [one], "ann", START)
        approvals.approve_baseline(connection, baseline_id, "ann", "", START + timedelta(minutes=5))
    for command in (("routes",), ("runs",), ("baseline", "list"), ("history", ROUTE, "--group-by", "day")):
        shown = specwatch(database, *command).stdout
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80, shown


def test_what_each_source_says_of_a_run_is_shown_with_it_and_with_its_route(database: Database) -> None:
    lengths = {"request": 2.4, "stream": 2.389, "counters": 2.4}
    with database.transaction() as connection:
        run_id = runs.store_run(connection, "one", make_run(acceptance_by_source=lengths))
        bare = runs.store_run(connection, "two", make_run(domain="math"))
    shown = specwatch(database, "run", "show", str(run_id)).stdout
    assert "  sources   AL 2.40 by request, AL 2.39 by stream, AL 2.40 by counters\n" in shown
    assert "sources" not in specwatch(database, "run", "show", str(bare)).stdout
    (coding, math) = json.loads(specwatch(database, "routes", "--format", "json").stdout)
    assert (coding["acceptance_by_source"], math["acceptance_by_source"]) == (lengths, {})


def test_run_show_says_how_the_run_was_asked(database: Database) -> None:
    sampling = Sampling(extra_body=(("priority", 10),), prompt_keys=("response_format", "tools"))
    with database.transaction() as connection:
        plain = runs.store_run(connection, "one", make_run())
        constrained = runs.store_run(connection, "two", make_run(sampling=sampling))
    assert (
        "  sampling  chat of up to 128 tokens, temperature 0, cache cold, concurrency 4\n"
        in specwatch(database, "run", "show", str(plain)).stdout
    )
    shown = " ".join(specwatch(database, "run", "show", str(constrained)).stdout.split())
    assert 'concurrency 4, extra_body {"priority": 10}, prompts with response_format and tools' in shown
