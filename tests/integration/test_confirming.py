"""A run that trips is confirmed by two more before anybody is told; each step in one transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monitor.core.incidents import Transition
from monitor.core.judge import Outcome
from monitor.core.records import Reason
from monitor.service.jobs import LATER, QUEUE, ProbeJob
from monitor.service.judging import MOST_CONFIRMATIONS
from monitor.store import trips
from tests.factories import DOMAIN, IDENTITY, REPLICA, ROUTE, START, make_alerting, make_config, make_route, make_run
from tests.integration.story import BOTH, DROPPED, EVERY, WELL, Story, outcomes

if TYPE_CHECKING:
    from monitor.store.database import Database


def test_a_trip_queues_two_confirmations_at_their_times(well_story: Story) -> None:
    recorded = well_story.run(DROPPED, seconds=50)
    finished_at = well_story.now - EVERY + timedelta(seconds=50)
    assert outcomes(recorded) == [Outcome.TRIPPED]
    assert recorded.transitions == []
    [trip] = well_story.query("SELECT id, run_id, rules, state, confirmations_queued FROM trips")
    assert (trip["run_id"], trip["rules"]) == (recorded.run_id, ["acceptance-drop"])
    assert (trip["state"], trip["confirmations_queued"]) == ("pending", 2)
    jobs = well_story.jobs()
    assert [job["scheduled_at"] - finished_at for job in jobs] == [timedelta(minutes=5), timedelta(minutes=10)]
    assert {(job["queue_name"], job["task_name"], job["priority"]) for job in jobs} == {(QUEUE, LATER, 20)}
    assert {job["lock"] for job in jobs} == {None}, "until they are due, others may use the replica"
    assert [ProbeJob.from_dict(job["job"]) for job in jobs] == [
        ProbeJob(f"confirm {trip['id']} {number}", ROUTE, DOMAIN, REPLICA, Reason.CONFIRM, trip["id"])
        for number in (0, 1)
    ]


def test_a_confirmed_drop_opens_an_incident_and_queues_its_messages(well_story: Story) -> None:
    trip = well_story.run(DROPPED)
    first = well_story.confirm()
    assert (outcomes(first), first.transitions) == ([Outcome.TRIPPED], [])
    second = well_story.confirm()
    assert outcomes(second) == [Outcome.TRIPPED, Outcome.CONFIRMED]
    [(incident_id, transition)] = second.transitions
    assert transition is Transition.OPENED
    assert well_story.trip() == ("confirmed", 2)
    incident = well_story.get_incident(incident_id)
    assert (incident["route"], incident["kind"], incident["state"], incident["severity"]) == (
        ROUTE,
        "acceptance",
        "open",
        "page",
    )
    [(name, domain)] = incident["domains"].items()
    assert (name, domain["rule"], domain["severity"], domain["well_runs"]) == (DOMAIN, "acceptance-drop", "page", 0)
    assert (domain["joined_at"], domain["left_at"]) == (incident["opened_at"], None)
    assert domain["worst"]["run_ids"] == [trip.run_id, first.run_id, second.run_id]
    [event] = incident["events"]
    assert event["verdict"]["run_ids"] == [trip.run_id, first.run_id, second.run_id]
    assert (event["verdict"]["value"], event["verdict"]["baseline_value"]) == pytest.approx((1.92, 2.4))
    assert event["last_good_run"] is None, "the runs that became the baseline had nothing to be judged by"
    assert event["baseline_runs"]["run_ids"] == list(range(1, 11))
    assert "last good  none since its baseline was approved; the baseline's own runs 1-10, until" in event["text"]
    assert event["link"] == f"https://specwatch.example.com/incidents/{incident_id}"
    assert [(d["receiver"], d["state"]) for d in event["deliveries"]] == [("console", "pending"), ("hook", "pending")]


def test_outputs_that_the_baseline_never_gave_point_at_the_target(well_story: Story) -> None:
    run = make_run(DROPPED)
    other = tuple(replace(sample, output_hash="other" if n < 20 else "ab12") for n, sample in enumerate(run.samples))
    well_story.run(samples=other)
    well_story.confirm(samples=other)
    [(incident_id, _)] = well_story.confirm(samples=other).transitions
    [event] = well_story.get_incident(incident_id)["events"]
    assert event["outputs"] == {"changed": 20, "compared": 24, "varying": 0.0, "points_at": "target"}
    assert "outputs changed on 20 of 24: points at the target" in " ".join(event["text"].split())


def test_outputs_that_stay_the_same_point_at_the_drafter(well_story: Story) -> None:
    [event] = well_story.get_incident(well_story.incident())["events"]
    assert event["outputs"] == {"changed": 0, "compared": 24, "varying": 0.0, "points_at": "drafter"}
    assert "outputs unchanged (24/24): points at the drafter" in " ".join(event["text"].split())


def test_the_message_tells_since_when_the_first_bad_run_started_and_when_the_domain_was_last_well(
    well_story: Story,
) -> None:
    good = well_story.run()
    started_at = well_story.now
    [event] = well_story.get_incident(well_story.incident())["events"]
    assert event["since"] == started_at.isoformat()
    assert event["last_good_run"]["run_id"] == good.run_id
    assert event["text"].splitlines()[0] == (
        "PAGE chat-prod · coding: acceptance length 1.92 by request, 20% below its baseline 2.40, "
        f"since {started_at:%Y-%m-%d %H:%M:%S} UTC; next: specwatch incidents 1"
    )


def test_when_recording_fails_at_the_end_nothing_of_it_remains(well_story: Story) -> None:
    """A crash between verdict and commit: no run, no incident, no message and no job without the others."""
    tables = ("runs", "samples", "verdicts", "trips", "incidents", "incident_events", "deliveries")
    well_story.run(DROPPED)
    well_story.confirm()
    job = next(job for job in well_story.jobs() if job["reason"] == "confirm")
    before = {table: well_story.count(table) for table in tables}
    run = make_run(DROPPED, started_at=job["scheduled_at"], reason=Reason.CONFIRM)
    with well_story.database.engine.connect() as dying:
        recorded = well_story.recorder.record(dying, ProbeJob.from_dict(job["job"]), run, run.finished_at)
        assert recorded is not None
        assert [transition for _, transition in recorded.transitions] == [Transition.OPENED]
    assert {table: well_story.count(table) for table in tables} == before
    assert well_story.trip() == ("pending", 2)
    assert [transition for _, transition in well_story.confirm().transitions] == [Transition.OPENED]


def test_a_trip_whose_queueing_fails_leaves_no_job_behind(well_story: Story) -> None:
    with well_story.database.engine.connect() as dying:
        run = make_run(DROPPED, started_at=well_story.now)
        job = ProbeJob("doomed", ROUTE, DOMAIN, REPLICA, Reason.SCHEDULED)
        assert well_story.recorder.record(dying, job, run, well_story.now) is not None
    assert (well_story.count("trips"), well_story.jobs()) == (0, [])


def test_fresh_runs_that_are_well_end_the_matter(well_story: Story) -> None:
    well_story.run(DROPPED)
    well_story.confirm(WELL)
    second = well_story.confirm(WELL)
    assert outcomes(second) == [Outcome.OK, Outcome.NOT_CONFIRMED]
    assert second.transitions == []
    assert well_story.trip() == ("not_confirmed", 2)
    assert well_story.count("incidents") == 0


def test_after_a_trip_was_refuted_the_next_one_is_confirmed_anew(well_story: Story) -> None:
    well_story.run(DROPPED)
    well_story.confirm(WELL)
    well_story.confirm(WELL)
    assert well_story.get_incident(well_story.incident())["state"] == "open"
    assert well_story.count("trips") == 2


def test_a_run_that_trips_while_confirmations_are_due_opens_no_second_trip(well_story: Story) -> None:
    well_story.run(DROPPED)
    assert outcomes(well_story.run(DROPPED)) == [Outcome.TRIPPED]
    assert (well_story.count("trips"), len(well_story.jobs())) == (1, 2)


def test_an_invalid_confirmation_queues_another_five_minutes_on(well_story: Story) -> None:
    well_story.run(DROPPED)
    well_story.confirm(invalid_reason="busy", seconds=60)
    assert well_story.trip() == ("pending", 3)
    now = well_story.now - EVERY + timedelta(seconds=60)
    assert [job["key"].split()[-1] for job in well_story.jobs()] == ["1", "2"]
    assert well_story.jobs()[-1]["scheduled_at"] == now + timedelta(minutes=5)
    assert well_story.confirm().transitions == []
    assert [transition for _, transition in well_story.confirm().transitions] == [Transition.OPENED]


def test_confirmations_that_stay_invalid_expire_the_trip(well_story: Story) -> None:
    well_story.run(DROPPED)
    made = 0
    while well_story.trip()[0] == "pending":
        assert outcomes(well_story.confirm(invalid_reason="busy")) == [Outcome.INVALID]
        made += 1
    assert well_story.trip() == ("expired", MOST_CONFIRMATIONS)
    assert made == MOST_CONFIRMATIONS - 1, "the last one queued could not bring two valid runs any more"
    assert well_story.count("incidents") == 0
    well_story.confirm(DROPPED)
    assert well_story.count("incidents") == 0, "a confirmation that comes late decides nothing"


def test_one_valid_confirmation_among_five_invalid_ones_is_not_enough(well_story: Story) -> None:
    well_story.run(DROPPED)
    well_story.confirm(DROPPED)
    for _ in range(MOST_CONFIRMATIONS - 1):
        assert well_story.trip()[0] == "pending"
        well_story.confirm(invalid_reason="busy")
    assert well_story.trip() == ("expired", MOST_CONFIRMATIONS)
    assert well_story.jobs() == []


def test_a_confirmation_under_another_k_is_not_comparable_and_decides_nothing(well_story: Story) -> None:
    well_story.run(DROPPED)
    well_story.confirm()
    deep = well_story.confirm(k=5, identity=replace(IDENTITY, k=5))
    assert outcomes(deep) == [Outcome.INVALID, Outcome.INVALID]
    assert (well_story.trip()[0], well_story.count("incidents")) == ("invalid", 0)


def test_a_connection_that_has_opened_many_trips_opens_the_next(well_story: Story) -> None:
    """Postgres plans a statement anew a few times and then keeps a plan that knows no parameters."""
    run_id, baseline_id = well_story.run(DROPPED).run_id, 1
    with well_story.database.transaction() as connection:
        for number in range(30):
            trip_id = trips.open_trip(connection, ROUTE, f"domain-{number}", ["drop"], run_id, baseline_id, START)
            again = trips.open_trip(connection, ROUTE, f"domain-{number}", ["drop"], run_id, baseline_id, START)
            assert (trip_id is not None, again) == (True, None)


def two_rules(database: Database) -> Story:
    """A page at 15 percent and, for the same metric, a warning at 10."""
    rules = [
        {"name": "slip", "drop": "10%", "severity": "warning"},
        {"name": "drop", "drop": "15%", "severity": "page"},
    ]
    routing = [{"receiver": "console"}, {"receiver": "hook", "severity": ["page"]}]
    story = Story(database, make_config(alerting=make_alerting(rules=rules, routing=routing)))
    story.baseline()
    return story


def test_two_confirmations_serve_every_rule_and_only_the_severest_confirmed_is_told(database: Database) -> None:
    story = two_rules(database)
    incident = story.get_incident(story.incident())
    assert (story.count("trips"), story.jobs()) == (1, [])
    assert (incident["severity"], incident["domains"][DOMAIN]["rule"]) == ("page", "drop")
    assert [event["transition"] for event in incident["events"]] == ["opened"]


def test_a_warning_goes_to_those_who_want_warnings_and_a_page_on_top_of_it_to_everybody(database: Database) -> None:
    story = two_rules(database)
    slipped = WELL * 0.88
    story.run(slipped)
    story.confirm(slipped)
    [(incident_id, transition)] = story.confirm(slipped).transitions
    assert transition is Transition.OPENED
    incident = story.get_incident(incident_id)
    assert (incident["severity"], incident["domains"][DOMAIN]["rule"]) == ("warning", "slip")
    assert [d["receiver"] for d in incident["events"][0]["deliveries"]] == ["console"]
    assert story.incident() == incident_id
    updated = story.get_incident(incident_id)
    assert (updated["severity"], updated["domains"][DOMAIN]["rule"]) == ("page", "drop")
    assert updated["events"][1]["transition"] == "updated"
    assert updated["events"][1]["summary"].startswith("PAGE, NOW ALSO chat-prod · coding: ")
    assert {d["receiver"] for d in updated["events"][1]["deliveries"]} == BOTH
    assert [event["raised_from"] for event in updated["events"]] == [None, "warning"]


def test_a_rule_judges_only_the_routes_and_domains_it_is_for(database: Database) -> None:
    rules = [
        {"name": "all", "drop": "15%"},
        {"name": "math-only", "drop": "15%", "domains": ["math"]},
        {"name": "gold", "drop": "15%", "match": {"tier": "gold"}},
        {"name": "elsewhere", "drop": "15%", "routes": ["batch"]},
    ]
    routes = (make_route(labels={"tier": "gold"}), make_route("batch", labels={}))
    story = Story(database, make_config(*routes, alerting=make_alerting(rules=rules)))
    assert [name for name, _ in story.run().verdicts] == ["all", "gold"]
    assert [name for name, _ in story.run(domain="math").verdicts] == ["all", "math-only", "gold"]
    assert [name for name, _ in story.run(route="batch").verdicts] == ["all", "elsewhere"]


LEAK = make_config(
    alerting=make_alerting(
        rules=[{"name": "slow-leak", "leak": True, "severity": "warning"}, {"name": "acceptance-drop", "drop": "15%"}]
    )
)


def test_a_leak_too_slow_for_any_run_opens_a_warning_without_confirmation_runs(database: Database) -> None:
    story = Story(database, LEAK)
    story.baseline()
    found = [story.run(2.28) for _ in range(20)]
    opened = next(recorded for recorded in found if recorded.transitions)
    assert [transition for _, transition in opened.transitions] == [Transition.OPENED]
    assert [job for job in story.jobs() if job["reason"] == "confirm"] == []
    incident = story.get_incident(opened.transitions[0][0])
    assert (incident["severity"], incident["domains"]["coding"]["rule"]) == ("warning", "slow-leak")
    assert [event["transition"] for event in incident["events"]] == ["opened"], "told once"
    verdict = incident["events"][0]["verdict"]
    assert (verdict["outcome"], verdict["accumulated"], verdict["drop"]) == ("confirmed", 7.0, None)
    assert verdict["accumulated_over"][0] == 11, "since the first run below the baseline"
    assert "a slow leak, since 2026-03-02 16:40:00 UTC" in incident["events"][0]["summary"]


def test_a_leak_is_over_when_what_has_accumulated_is_gone(database: Database) -> None:
    story = Story(database, LEAK)
    story.baseline()
    [incident_id] = {moved for _ in range(40) for moved, _ in story.run(2.28).transitions}
    well = []
    while story.get_incident(incident_id)["state"] == "open":
        well.append(story.run())
        assert len(well) < 10
    assert len(well) == 6, "five until nothing has accumulated, and one more"
    [event] = [e for e in story.get_incident(incident_id)["events"] if e["transition"] == "resolved"]
    assert "level with its baseline 2.40" in event["summary"]
    assert "slow-leak: acceptance_length leaking, 0.0 of 7 standard errors accumulated" in event["text"]
