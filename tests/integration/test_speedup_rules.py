"""A measured speedup is judged where it is stored: three in a row open an incident of its own, two well ones end it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from monitor.core.speedup import Speedup
from monitor.core.statistics import RatioEstimate
from monitor.core.sweep import Point, Side
from monitor.service.discovery import Replicas
from monitor.service.losing import SpeedupJudging
from monitor.store import approvals, baselines, incidents, speedups, verdicts
from monitor.store.forget import forget_route
from monitor.store.runs import store_run
from tests.factories import ROUTE, START, make_alerting, make_route, make_run
from tests.integration.test_shell_answers import specwatch

if TYPE_CHECKING:
    from monitor.store.database import Database

LOSING = {"name": "losing", "metric": "speedup", "below": 1.0, "severity": "warning"}
LESS = {"name": "less", "metric": "speedup", "drop": "15%"}
TWIN, REPLICA, OTHER = "http://twin:8000", "http://vllm-0:8000", "http://vllm-1:8000"


class Measuring:
    """Speedups of one domain as they come in, six hours apart."""

    def __init__(self, database: Database, *rules: dict[str, Any]) -> None:
        self.database = database
        self.route = make_route(replicas=[REPLICA, OTHER], plain_twin=TWIN, gpu_price_per_hour=2.0, gpus=4)
        self.judging = SpeedupJudging(make_alerting(rules=list(rules)), Replicas([self.route]))
        self.number = 0

    def measure(self, ratio: float | None, domain: str = "coding", replica: str = REPLICA) -> int:
        self.number += 1
        at = START + timedelta(hours=6 * self.number)
        found = speedup(ratio, at, domain, replica)
        with self.database.transaction() as connection:
            speedup_id = speedups.store_speedup(connection, f"speedup {self.number}", found)
            assert speedup_id is not None
            self.judging.judge(connection, self.route, speedup_id, found, found.finished_at)
        return speedup_id

    def outcomes(self, speedup_id: int) -> list[str]:
        with self.database.transaction() as connection:
            found = verdicts.verdicts_of_speedups(connection, [speedup_id]).get(speedup_id, [])
        return [verdict["outcome"] for verdict in found]

    def incidents(self) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            found = [incidents.get_incident(connection, row["id"]) for row in incidents.list_incidents(connection)]
        return [one for one in found if one is not None]

    def queued(self) -> list[tuple[str, datetime]]:
        with self.database.transaction() as connection:
            rows = connection.execute(
                text("SELECT args -> 'job' ->> 'key' AS key, scheduled_at FROM procrastinate_jobs ORDER BY id")
            )
            return [(row.key, row.scheduled_at) for row in rows]


def speedup(ratio: float | None, at: datetime, domain: str, replica: str) -> Speedup:
    values: dict[str, Any] = {}
    if ratio is None:
        values = {"invalid_reason": "busy", "invalid_detail": "requests waited"}
    else:
        estimate = RatioEstimate(ratio, ratio * 0.97, ratio * 1.03, 24, 3)
        side = Side(**dict.fromkeys(Side.__dataclass_fields__))  # type: ignore[arg-type]
        values = {"point": Point(4, 3, side, side, estimate, None, None, 1.6)}
    return Speedup(
        ROUTE, domain, replica, TWIN, "set-1", 4, {"max_tokens": 128}, at, at + timedelta(minutes=2), **values
    )


def approve(database: Database, at: datetime) -> None:
    """An approved baseline of the domain, of which only the time of its approval is looked at."""
    run = make_run()
    with database.transaction() as connection:
        run_id = store_run(connection, "its run", run)
        assert run_id is not None
        baseline_id = baselines.create_baseline(connection, [run_id], "ann", at)
        approvals.approve_baseline(connection, baseline_id, "ann", "first", at)


@pytest.fixture
def losing(database: Database) -> Measuring:
    return Measuring(database, LOSING)


def test_speculation_that_loses_three_times_in_a_row_opens_an_incident_with_its_cost(losing: Measuring) -> None:
    first = losing.measure(0.9)
    at = START + timedelta(hours=6, minutes=2)
    assert losing.queued() == [
        (f"confirm speedup {first} 0", at + timedelta(minutes=5)),
        (f"confirm speedup {first} 1", at + timedelta(minutes=10)),
    ]
    losing.measure(0.9)
    assert losing.incidents() == []
    last = losing.measure(0.9)
    assert (losing.outcomes(first), losing.outcomes(last)) == (["tripped"], ["confirmed"])
    [incident] = losing.incidents()
    assert (incident["kind"], incident["severity"], list(incident["domains"])) == ("speedup", "warning", ["coding"])
    [event] = incident["events"]
    assert event["text"] == (
        "WARNING chat-prod · coding: speculation is losing here, at 19.20 a day for each server: measured speedup "
        "0.90 [0.87, 0.93], since 2026-03-02 16:00:00 UTC; "
        f"next: specwatch incidents {incident['id']}\n"
        "  evidence   time per token of the plain twin over that of the replica, 24 prompts at concurrency 4;\n"
        "             3 measurements (1, 2, 3)\n"
        "  rule       losing: speedup below 1; replica http://vllm-0:8000, plain twin http://twin:8000\n"
        f"  next       specwatch incidents {incident['id']}\n"
        "             specwatch speedup chat-prod\n"
        "             specwatch advise chat-prod\n"
        "             switch speculation off at this load, or draft fewer tokens\n"
        f"  link       https://specwatch.example.com/incidents/{incident['id']}\n"
        "  runbook    https://specwatch.example.com/runbook"
    )
    assert len(losing.queued()) == 2, "asked for once"
    losing.measure(0.9)
    assert len(losing.incidents()[0]["events"]) == 1, "told once"


def test_two_measurements_above_the_floor_end_it_and_an_invalid_one_does_not(losing: Measuring) -> None:
    for ratio in (0.9, 0.9, 0.9, 1.2, None, 0.9, 1.2):
        losing.measure(ratio)
    assert losing.incidents()[0]["state"] == "open"
    losing.measure(1.2)
    [incident] = losing.incidents()
    assert incident["state"] == "resolved"
    assert incident["events"][-1]["summary"] == (
        f"RESOLVED chat-prod · coding: measured speedup 1.20 [1.16, 1.24], after 30 h 0 min; incident {incident['id']}"
    )


def test_a_replica_that_wins_does_not_heal_another_that_loses(losing: Measuring) -> None:
    for _ in range(3):
        losing.measure(0.9)
    for _ in range(3):
        losing.measure(1.2, replica=OTHER)
    assert losing.incidents()[0]["state"] == "open"
    losing.measure(1.2)
    assert losing.incidents()[0]["state"] == "resolved"


def test_a_measurement_that_wins_between_two_that_lose_begins_the_count_anew(losing: Measuring) -> None:
    for ratio in (0.9, 0.9, 1.2, 0.9, 0.9):
        losing.measure(ratio)
    assert losing.incidents() == []


def test_a_drop_of_speedup_is_held_against_the_first_three_since_the_baseline_was_approved(database: Database) -> None:
    measuring = Measuring(database, LESS)
    assert measuring.outcomes(measuring.measure(1.8)) == ["invalid"], "no baseline is approved"
    approve(database, START + timedelta(hours=7))
    reference = [measuring.measure(ratio) for ratio in (1.8, 1.8, 1.8)]
    assert [measuring.outcomes(one) for one in reference] == [["invalid"]] * 3
    assert measuring.outcomes(measuring.measure(1.8)) == ["ok"]
    found = [measuring.outcomes(measuring.measure(1.4)) for _ in range(3)]
    assert found == [["tripped"], ["tripped"], ["confirmed"]]
    [incident] = measuring.incidents()
    assert incident["severity"] == "page"
    assert incident["domains"]["coding"]["worst"]["change"] == pytest.approx(1.4 / 1.8 - 1)
    assert "measured speedup 1.40 [1.36, 1.44], -22% from its reference 1.80, since" in incident["events"][0]["summary"]


def test_a_route_that_is_forgotten_takes_its_verdicts_on_speedups_along(losing: Measuring) -> None:
    losing.measure(0.9)
    with losing.database.transaction() as connection:
        forget_route(connection, ROUTE)
        assert connection.execute(text("SELECT count(*) FROM verdicts")).scalar_one() == 0


def test_the_command_lists_what_the_rules_said_of_a_route_s_measurements(database: Database) -> None:
    measuring = Measuring(database, LOSING)
    measuring.measure(0.9)
    measuring.measure(1.2, domain="math")
    shown = " ".join(specwatch(database, "speedup", ROUTE).stdout.split())
    assert "coding 1 losing tripped below the floor with its whole interval" in shown
    assert "math 2 losing ok its interval is not below the floor" in shown
    [coding, math] = json.loads(specwatch(database, "speedup", "--format", "json").stdout)
    assert [verdict["outcome"] for row in (coding, math) for verdict in row["verdicts"]] == ["tripped", "ok"]


def test_an_alert_names_the_runbook_of_its_rule(database: Database) -> None:
    own = {**LOSING, "runbook_url": "https://wiki.example.com/losing"}
    measuring = Measuring(database, own)
    for _ in range(3):
        measuring.measure(0.9)
    [incident] = measuring.incidents()
    assert incident["events"][0]["runbook_url"] == "https://wiki.example.com/losing"
    assert "runbook    https://wiki.example.com/losing" in incident["events"][0]["text"]
