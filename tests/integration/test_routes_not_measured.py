"""A route that is not measured has an incident of its own, opened by the clock and ended by a valid run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.organic import Organic
from monitor.core.records import Reason
from monitor.core.stale import Measured
from monitor.service.jobs import ProbeJob, defer
from monitor.service.recording import Recorder
from monitor.service.removed import close_removed
from monitor.service.stale import StaleWatch
from monitor.store import incidents
from monitor.store.organic import store_organic
from monitor.store.stale import measured
from tests.factories import REPLICA, ROUTE, START, make_alerting, make_config, make_route, make_run

if TYPE_CHECKING:
    from monitor.service.case import Recorded
    from monitor.store.database import Database

MINUTE = timedelta(minutes=1)
LONG_AGO = START - timedelta(days=1)
CODING = make_config(make_route(domains=["coding"]))


class Watched:
    """A route with one domain, or as configured, whose clock the test sets."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = START
        self.number = 0

    def run(
        self,
        at: datetime,
        reason: str | None = None,
        domain: str = "coding",
        lengths: float = 2.4,
        replica: str = REPLICA,
    ) -> Recorded:
        self.number += 1
        run = make_run(lengths, started_at=at, invalid_reason=reason, domain=domain, replica=replica)
        with self.database.transaction() as connection:
            job = ProbeJob(f"run {self.number}", run.route, run.domain, run.replica, run.reason)
            recorded = Recorder(CODING).record(connection, job, run, run.finished_at)
        assert recorded is not None
        return recorded

    def look(self, at: datetime, watched_since: datetime = LONG_AGO, config: Any = CODING) -> list[dict[str, Any]]:
        """Incidents after the look, newest first."""
        self.now = at
        StaleWatch(self.database, config, lambda: self.now).look(watched_since)
        return self.incidents()

    def incidents(self) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            found = [incidents.get_incident(connection, row["id"]) for row in incidents.list_incidents(connection)]
        return [one for one in found if one is not None]


@pytest.fixture
def watched(database: Database) -> Watched:
    return Watched(database)


def after(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def test_a_route_not_measured_for_two_periods_opens_one_incident_that_the_first_valid_run_ends(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.run(START)
    watched.run(after(40), "unreachable")
    watched.run(after(79), "unreachable")
    assert watched.look(after(80)) == []
    [opened] = watched.look(after(82))
    assert caplog.messages == [], "receivers tell it, the log among them"
    assert (opened["kind"], opened["severity"], opened["state"]) == ("stale", "warning", "open")
    [event] = opened["events"]
    assert event["summary"] == (
        f"WARNING {ROUTE} · coding: not measured for 1 h 21 min, no valid run since 2026-03-02 10:01:00 UTC: "
        f"unreachable; next: specwatch incidents {opened['id']}"
    )
    assert "2 × unreachable; run 3: all prompts: unreachable" in event["text"]
    assert {delivery["receiver"] for delivery in event["deliveries"]} == {"console", "hook"}
    assert len(watched.look(after(83))[0]["events"]) == 1, "told once"
    watched.run(after(120), "unreachable")
    assert watched.incidents()[0]["state"] == "open", "an invalid run does not end it"
    recorded = watched.run(after(130))
    [ended] = watched.incidents()
    assert recorded.transitions == [(ended["id"], "resolved")]
    assert (ended["state"], ended["resolved_at"]) == ("resolved", after(131).isoformat())
    assert ended["events"][-1]["summary"] == (
        f"RESOLVED {ROUTE} · coding: measured again; whether it is well is not judged: no approved baseline; "
        f"no valid run from 2026-03-02 10:01:00 UTC to 2026-03-02 12:11:00 UTC; incident {ended['id']}"
    )


def test_an_invalid_run_knows_when_its_own_replica_was_measured_last(watched: Watched) -> None:
    watched.run(START)
    watched.run(after(40), "unreachable")
    watched.run(after(80), replica="http://vllm-1:8000")
    recorded = watched.run(after(120), "unreachable")
    assert recorded.measured is not None
    assert (recorded.measured.last_valid_at, recorded.measured.invalid) == (after(1), {"unreachable": 2})
    assert watched.run(after(160)).measured is None


def test_the_message_says_which_servers_answer_and_whether_anybody_takes_the_probes_that_wait(watched: Watched) -> None:
    watched.run(START)
    other = "http://vllm-1:8000"
    with watched.database.transaction() as connection:
        for at, replica, reads, failures, why in (
            (after(50), REPLICA, 10, 0, None),
            (after(60), REPLICA, 4, 6, "connection refused"),
            (after(61), other, 10, 0, None),
            (after(10), "http://vllm-2:8000", 10, 0, None),
        ):
            seen = Organic(ROUTE, replica, at, at + 10 * MINUTE, reads, failures, last_failure=why)
            store_organic(connection, [seen])
        defer(connection, ProbeJob("slot 1", ROUTE, "coding", REPLICA, Reason.SCHEDULED))
        defer(connection, ProbeJob("slot 2", "another", "coding", REPLICA, Reason.SCHEDULED))
    [incident] = watched.look(after(82))
    text = " ".join(incident["events"][0]["text"].split())
    assert (
        f"servers {REPLICA} answered 4 of 10 readings of its metrics page until 2026-03-02 11:10:00 UTC; the last "
        f"failure: connection refused {other} answered 10 of 10 readings of its metrics page until 2026-03-02 "
        "11:11:00 UTC workers none lives, 1 probe of this route due and not begun: "
        "start 'specwatch serve' or 'specwatch worker' rule"
    ) in text
    assert text.count("specwatch run now") == 0, "nobody would take it"
    assert f" curl -sS -m 5 {REPLICA}/health link" in text, "of the one that did not always answer"


def test_a_route_that_is_measured_again_and_is_not_well_is_not_told_as_well(watched: Watched) -> None:
    for number in range(10):
        watched.run(after(number))
    watched.look(after(100))
    run = watched.run(after(110), lengths=1.92)
    [ended] = watched.incidents()
    assert ended["state"] == "resolved"
    assert ended["events"][-1]["summary"] == (
        f"MEASURED AGAIN AND DOWN {ROUTE} · coding: acceptance length 1.92 by request, 20% below its baseline 2.40; "
        "an alert follows if confirmation runs agree; no valid run from 2026-03-02 10:10:00 UTC to 2026-03-02 11:51:00 "
        f"UTC; next: specwatch run show {run.run_id}"
    )


def test_a_route_that_is_measured_again_by_a_run_that_its_floor_cannot_judge_says_why(database: Database) -> None:
    rules = [{"name": "dead-drafter", "metric": "first_position_survival", "below": "5%"}]
    config = make_config(make_route(domains=["coding"]), alerting=make_alerting(rules=rules))
    watched = Watched(database)
    [opened] = watched.look(after(180), watched_since=START, config=config)
    run = make_run(prompts=3, started_at=after(190))
    with database.transaction() as connection:
        job = ProbeJob("few", run.route, run.domain, run.replica, run.reason)
        assert Recorder(config).record(connection, job, run, run.finished_at) is not None
    [ended] = watched.incidents()
    assert (ended["id"], ended["state"]) == (opened["id"], "resolved")
    assert ended["events"][-1]["summary"].startswith(
        f"RESOLVED {ROUTE} · coding: measured again; whether it is well is not judged: only 3 valid prompts, "
    )


def test_a_start_after_a_long_stop_opens_nothing_for_one_period(watched: Watched) -> None:
    watched.run(LONG_AGO)
    assert watched.look(after(39), watched_since=START) == []
    assert len(watched.look(after(41), watched_since=START)) == 1


def test_domains_that_follow_join_the_open_incident(watched: Watched) -> None:
    config = make_config()
    watched.run(START)
    watched.run(after(20), domain="math")
    watched.look(after(82), config=config)
    [found] = watched.look(after(102), config=config)
    assert sorted(found["domains"]) == ["coding", "math"]
    assert [event["domains"] for event in found["events"]] == [["coding"]]


def test_a_removed_route_ends_it_too(watched: Watched) -> None:
    watched.run(START)
    watched.look(after(82))
    with watched.database.transaction() as connection:
        [(subject, kind)] = incidents.open_subjects(connection)
        closed = close_removed(connection, make_config(make_route("other")), subject, kind, after(90))
    assert watched.incidents()[0]["id"] == closed


def test_what_is_known_of_a_domain_counts_its_invalid_runs_since_the_last_valid_one(watched: Watched) -> None:
    with watched.database.transaction() as connection:
        assert measured(connection, ROUTE, "coding") == Measured()
    watched.run(START, "busy")
    with watched.database.transaction() as connection:
        assert measured(connection, ROUTE, "coding") == Measured(START, None, None, {"busy": 1}, 1, "all prompts: busy")
    watched.run(after(40))
    watched.run(after(80), "unreachable")
    with watched.database.transaction() as connection:
        assert measured(connection, ROUTE, "coding") == Measured(
            None, 2, after(41), {"unreachable": 1}, 3, "all prompts: unreachable"
        )
