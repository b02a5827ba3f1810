"""From a finished run to baseline, trip, confirmation, incident and outbox, each time in one transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from monitor.core.incidents import Transition
from monitor.core.judge import Outcome
from monitor.core.records import Identity, Reason, Run
from monitor.errors import StoreError
from monitor.service.jobs import LATER, QUEUE, ProbeJob, defer, queue_app
from monitor.service.judging import MOST_CONFIRMATIONS
from monitor.service.recording import Recorder
from monitor.store import baselines, identities, incidents, trips
from tests.factories import (
    DOMAIN,
    IDENTITY,
    REPLICA,
    ROUTE,
    START,
    Lengths,
    make_alerting,
    make_config,
    make_route,
    make_run,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from procrastinate import App

    from monitor.config.load import Config
    from monitor.service.case import Recorded
    from monitor.store.database import Database

WELL, DROPPED = 2.4, 1.92
"""Acceptance lengths of a well run and of one that lost 20 percent."""
EVERY = timedelta(minutes=40)
BOTH = {"console", "hook"}


class Story:
    """Runs as they come in, 40 minutes apart unless they say otherwise, each recorded in a transaction of its own."""

    def __init__(self, database: Database, config: Config | None = None) -> None:
        self.database = database
        self.recorder = Recorder(config or make_config())
        self.now = START
        self.told = 0

    def run(self, lengths: Lengths = WELL, *, job: ProbeJob | None = None, **changes: Any) -> Recorded:
        recorded = self.try_run(lengths, job=job, **changes)
        assert recorded is not None
        return recorded

    def try_run(self, lengths: Lengths = WELL, *, job: ProbeJob | None = None, **changes: Any) -> Recorded | None:
        """None when the job's run was stored before."""
        run = self.made(lengths, **changes)
        if job is None:
            self.told += 1
            job = ProbeJob(f"run {self.told}", run.route, run.domain, run.replica, run.reason)
        self.now = run.finished_at
        try:
            return self.record(job, run)
        finally:
            self.now = run.started_at + EVERY

    def made(self, lengths: Lengths, **changes: Any) -> Run:
        """The run that is recorded now."""
        return make_run(lengths, started_at=self.now, **changes)

    def record(self, job: ProbeJob, run: Run) -> Recorded | None:
        with self.database.transaction() as connection:
            return self.recorder.record(connection, job, run, self.now)

    def confirm(self, lengths: Lengths = DROPPED, **changes: Any) -> Recorded:
        """The next queued confirmation run is taken from the queue and made at its time."""
        due = next(job for job in self.jobs() if job["reason"] == "confirm")
        self.query("DELETE FROM procrastinate_jobs WHERE id = :id", id=due["id"])
        job = ProbeJob.from_dict(due["job"])
        self.now = due["scheduled_at"]
        changes = {"route": job.route, "domain": job.domain, "replica": job.replica, **changes}
        return self.run(lengths, job=job, reason=Reason.CONFIRM, **changes)

    def baseline(self, lengths: Lengths = WELL, **changes: Any) -> None:
        """Ten well runs: the policy approves a baseline from them."""
        assert [self.run(lengths, **changes).baseline_id for _ in range(10)][-1] is not None

    def incident(self, **changes: Any) -> int:
        """A drop of 20 percent, confirmed; the id of its incident."""
        self.run(DROPPED, **changes)
        self.confirm()
        [(incident_id, _)] = self.confirm().transitions
        return incident_id

    def query(self, statement: str, **values: Any) -> list[Any]:
        with self.database.transaction() as connection:
            result = connection.execute(text(statement), values)
            return [row._mapping for row in result] if result.returns_rows else []

    def count(self, table: str) -> int:
        [row] = self.query(f"SELECT count(*) AS n FROM {table}")
        return int(row["n"])

    def jobs(self) -> list[dict[str, Any]]:
        """What waits in the queue, the first queued first, with the keys of the probe job beside the queue's own."""
        rows = self.query(
            "SELECT id, queue_name, task_name, priority, lock, scheduled_at, args -> 'job' AS job "
            "FROM procrastinate_jobs ORDER BY id"
        )
        return [{**row, **row["job"]} for row in rows]

    def trip(self) -> tuple[str, int]:
        [row] = self.query("SELECT state, confirmations_queued FROM trips ORDER BY id DESC LIMIT 1")
        return row["state"], row["confirmations_queued"]

    def get_incident(self, incident_id: int) -> dict[str, Any]:
        with self.database.transaction() as connection:
            found = incidents.get_incident(connection, incident_id)
        assert found is not None
        return found


@pytest.fixture
def story(database: Database) -> Story:
    return Story(database)


@pytest.fixture
def well_story(story: Story) -> Story:
    """A route whose coding domain has its baseline."""
    story.baseline()
    return story


def outcomes(recorded: Recorded) -> list[Outcome]:
    return [verdict.outcome for _, verdict in recorded.verdicts]


# -- baselines by policy


def test_the_first_ten_valid_runs_become_the_baseline_by_policy(story: Story) -> None:
    recorded = [story.run() for _ in range(4)]
    recorded.append(story.run(invalid_reason="busy"))
    recorded += [story.run() for _ in range(7)]
    assert [r.baseline_id is not None for r in recorded] == [False] * 10 + [True, False]
    with story.database.transaction() as connection:
        [document] = baselines.list_baselines(connection)
    assert document["run_ids"] == [r.run_id for r in recorded if r is not recorded[4]][:10]
    assert (document["created_by"], document["approved_by"]) == ("specwatch", "specwatch")
    assert document["why"] == "routes.yaml: baseline.approve_after 10"


def test_until_there_is_a_baseline_every_verdict_is_invalid_and_says_so(story: Story) -> None:
    first = story.run()
    assert [(v.outcome, v.reason) for _, v in first.verdicts] == [(Outcome.INVALID, "no approved baseline")]
    for _ in range(9):
        story.run()
    assert outcomes(story.run()) == [Outcome.OK]


def test_without_a_policy_no_baseline_is_approved_by_itself(database: Database) -> None:
    story = Story(database, make_config(make_route(baseline={})))
    assert {story.run().baseline_id for _ in range(12)} == {None}


def test_each_domain_has_a_baseline_of_its_own(well_story: Story) -> None:
    assert outcomes(well_story.run(domain="math")) == [Outcome.INVALID]


# -- trips and confirmations


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


# -- severities


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


# -- absolute rules

DEAD = 1.01
"""An acceptance length of which one step in a hundred had its first draft token accepted."""


def with_floor(database: Database) -> Story:
    rules = [
        {"name": "drop", "drop": "15%"},
        {"name": "dead", "metric": "first_position_survival", "below": "5%"},
    ]
    return Story(database, make_config(alerting=make_alerting(rules=rules)))


def test_a_dead_drafter_pages_before_there_is_a_baseline(database: Database) -> None:
    story = with_floor(database)
    assert outcomes(story.run(DEAD)) == [Outcome.INVALID, Outcome.TRIPPED]
    assert story.confirm(DEAD).transitions == []
    [(incident_id, transition)] = story.confirm(DEAD).transitions
    incident = story.get_incident(incident_id)
    assert transition is Transition.OPENED
    assert (incident["severity"], incident["domains"][DOMAIN]["rule"]) == ("page", "dead")
    event = incident["events"][0]
    assert event["summary"] == (
        "PAGE chat-prod · coding: first-position survival 1% by request: the drafter proposes nothing the target "
        f"accepts, since 2026-03-02 10:00:00 UTC; next: specwatch incidents {incident_id}"
    )
    assert "1.0% of steps had their first draft token accepted, over runs 1-3 of 24 prompts" in " ".join(
        event["text"].split()
    )
    assert "dead: first_position_survival below 5%, whatever the baseline" in event["text"]
    assert {delivery["receiver"] for delivery in event["deliveries"]} == BOTH


def test_a_dead_drafter_is_seen_where_no_drop_can_be(database: Database) -> None:
    story = with_floor(database)
    story.baseline(1.12)
    story.run(DEAD)
    story.confirm(DEAD)
    [(incident_id, _)] = story.confirm(DEAD).transitions
    assert story.get_incident(incident_id)["domains"][DOMAIN]["rule"] == "dead"


def test_where_a_drop_trips_too_the_dead_drafter_is_told_and_heals_only_with_the_drop(database: Database) -> None:
    story = with_floor(database)
    story.baseline()
    story.run(DEAD)
    story.confirm(DEAD)
    [(incident_id, _)] = story.confirm(DEAD).transitions
    assert story.get_incident(incident_id)["domains"][DOMAIN]["rule"] == "dead"
    for _ in range(3):  # alive again, and far below its baseline
        assert story.run(1.5).transitions == []
    story.run()
    [(healed, transition)] = story.run().transitions
    assert (healed, transition) == (incident_id, Transition.RESOLVED)
    assert story.count("incidents") == 1
    summary = story.get_incident(incident_id)["events"][-1]["summary"]
    assert summary.startswith("RESOLVED chat-prod · coding: first-position survival is back at 100% by request, after ")


def test_runs_of_a_dead_drafter_become_no_baseline(database: Database) -> None:
    story = with_floor(database)
    for _ in range(12):
        assert story.run(DEAD).baseline_id is None
    story.baseline()
    [row] = story.query("SELECT metrics -> 'acceptance_length' -> 'values' ->> 'q00' AS length FROM baselines")
    assert float(row["length"]) == pytest.approx(WELL)


def test_a_drafter_that_is_alive_at_its_confirmation_pages_nobody(database: Database) -> None:
    story = with_floor(database)
    story.run(DEAD)
    story.confirm(DEAD)
    assert story.confirm(1.3).transitions == []
    assert (story.trip()[0], story.count("incidents")) == ("not_confirmed", 0)


def test_invalid_runs_neither_confirm_nor_heal_a_dead_drafter(database: Database) -> None:
    story = with_floor(database)
    assert outcomes(story.run(DEAD, invalid_reason="busy")) == [Outcome.INVALID] * 2
    story.run(DEAD)
    story.confirm(DEAD, invalid_reason="busy")
    story.confirm(DEAD)
    [(incident_id, _)] = story.confirm(DEAD).transitions
    for _ in range(3):
        assert story.run(WELL, invalid_reason="busy").transitions == []
    assert story.get_incident(incident_id)["state"] == "open"


# -- resolving


def test_two_valid_runs_above_the_resolve_line_resolve_the_incident(well_story: Story) -> None:
    incident_id = well_story.incident()
    first = well_story.run(WELL)
    second = well_story.run(WELL * 0.95)
    assert (first.transitions, second.transitions) == ([], [(incident_id, Transition.RESOLVED)])
    incident = well_story.get_incident(incident_id)
    assert (incident["state"], incident["domains"][DOMAIN]["left_at"]) == ("resolved", incident["resolved_at"])
    assert incident["domains"][DOMAIN]["worst"]["change"] == pytest.approx(-0.2)
    verdict = incident["events"][1]["verdict"]
    assert verdict["run_ids"] == [first.run_id, second.run_id], "the figure judged is that of both runs that healed it"
    assert verdict["change"] == pytest.approx(0.95**0.5 - 1, abs=1e-4)
    assert incident["resolved_at"] == (well_story.now - EVERY + timedelta(seconds=60)).isoformat()
    assert [event["transition"] for event in incident["events"]] == ["opened", "resolved"]
    assert {d["receiver"] for d in incident["events"][1]["deliveries"]} == BOTH


A, B, C = (f"http://vllm-{number}:8000" for number in range(3))
"""A is REPLICA."""


@pytest.fixture
def three_replicas(database: Database) -> Story:
    story = Story(database, make_config(make_route(replicas=[A, B, C])))
    story.baseline()
    return story


def taken(story: Story, key: str) -> ProbeJob:
    """The waiting job whose key begins so, taken from the queue."""
    [due] = [job for job in story.jobs() if job["key"].startswith(key)]
    story.query("DELETE FROM procrastinate_jobs WHERE id = :id", id=due["id"])
    return ProbeJob.from_dict(due["job"])


def test_the_first_alert_says_that_only_one_replica_fell(three_replicas: Story) -> None:
    story = three_replicas
    story.run(WELL, replica=B)
    story.run(WELL, replica=C)
    story.run(DROPPED, replica=A)
    beside = taken(story, "beside")
    assert beside.replica in (B, C)
    assert (beside.reason, beside.trip_id) == (Reason.CONFIRM, None)
    story.run(WELL, job=beside, reason=Reason.CONFIRM, replica=beside.replica)
    story.confirm(replica=A)
    [(incident_id, _)] = story.confirm(replica=A).transitions
    [event] = story.get_incident(incident_id)["events"]
    assert event["replica_difference"]["replica"] == A
    assert f"  cause      replica (strong evidence): only {A}: -20.0% " in event["text"]
    assert event["last_good_run"]["run_id"] == event["verdict"]["run_ids"][0] - 1, "not the well run beside it"


def test_where_the_other_replicas_fell_too_no_replica_is_blamed(three_replicas: Story) -> None:
    story = three_replicas
    story.run(WELL, replica=B)
    story.run(WELL, replica=C)
    story.run(DROPPED, replica=A)
    beside = taken(story, "beside")
    story.run(DROPPED, job=beside, reason=Reason.CONFIRM, replica=beside.replica)
    story.confirm(replica=A)
    [(incident_id, _)] = story.confirm(replica=A).transitions
    [event] = story.get_incident(incident_id)["events"]
    assert event["replica_difference"] is None
    assert "replica (" not in event["text"]


def test_well_replicas_do_not_heal_the_one_that_is_ill_and_it_is_looked_at_again(three_replicas: Story) -> None:
    story = three_replicas
    incident_id = story.incident(replica=A)
    assert story.run(WELL, replica=B).transitions == []
    assert [job["key"] for job in story.jobs() if job["key"].startswith("heal")] == []
    assert story.run(WELL, replica=C).transitions == []
    again = taken(story, "heal")
    assert again.replica == A
    assert story.run(DROPPED, job=again, reason=Reason.CONFIRM, replica=A).transitions == []
    for replica in (B, C):
        assert story.run(WELL, replica=replica).transitions == []
    again = taken(story, "heal")
    healed = story.run(WELL, job=again, reason=Reason.CONFIRM, replica=A)
    assert healed.transitions == [(incident_id, Transition.RESOLVED)]
    assert story.get_incident(incident_id)["events"][-1]["replica_difference"] is None


def test_a_replica_that_has_left_the_route_keeps_no_incident_open(three_replicas: Story) -> None:
    story = three_replicas
    incident_id = story.incident(replica=A)
    story.recorder = Recorder(make_config(make_route(replicas=[B, C])))
    story.run(WELL, replica=B)
    assert story.run(WELL, replica=C).transitions == [(incident_id, Transition.RESOLVED)]


def test_runs_between_the_drop_and_the_resolve_line_keep_the_incident_open(well_story: Story) -> None:
    incident_id = well_story.incident()
    for length in (WELL, WELL * 0.91, WELL, WELL * 0.91):
        assert well_story.run(length).transitions == []
    assert well_story.get_incident(incident_id)["domains"][DOMAIN]["well_runs"] == 0


def test_invalid_runs_move_nothing(well_story: Story) -> None:
    incident_id = well_story.incident()
    well_story.run(WELL)
    before = well_story.get_incident(incident_id)
    for reason in ("unreachable", "busy", "too_few_prompts"):
        assert well_story.run(invalid_reason=reason).transitions == []
    assert well_story.get_incident(incident_id) == before
    assert well_story.run(WELL).transitions == [(incident_id, Transition.RESOLVED)]


def test_a_run_that_still_trips_says_nothing_new(well_story: Story) -> None:
    incident_id = well_story.incident()
    assert well_story.run(DROPPED).transitions == []
    assert (well_story.jobs(), len(well_story.get_incident(incident_id)["events"])) == ([], 1)


def test_whoever_was_told_of_the_opening_is_told_of_the_end_though_routed_no_more(well_story: Story) -> None:
    well_story.incident()
    quiet = make_alerting(receivers=[{"name": "console", "log": {}}, {"name": "new", "log": {}}])
    well_story.recorder = Recorder(make_config(alerting=quiet))
    well_story.run(WELL)
    [(incident_id, _)] = well_story.run(WELL).transitions
    resolved = well_story.get_incident(incident_id)["events"][-1]
    assert {d["receiver"] for d in resolved["deliveries"]} == {"console", "hook", "new"}


def test_a_domain_broken_by_a_rule_that_was_renamed_is_healed_by_the_rule_that_judges_it_now(well_story: Story) -> None:
    incident_id = well_story.incident()
    renamed = make_alerting(rules=[{"name": "new-name", "drop": "15%"}])
    well_story.recorder = Recorder(make_config(alerting=renamed))
    assert well_story.run(WELL).transitions == []
    assert well_story.run(WELL).transitions == [(incident_id, Transition.RESOLVED)]


def test_a_drop_soon_after_a_resolution_is_the_same_incident_again(well_story: Story) -> None:
    first = well_story.incident()
    well_story.run(WELL)
    well_story.run(WELL)
    assert well_story.incident() == first
    incident = well_story.get_incident(first)
    assert (incident["state"], incident["resolved_at"]) == ("open", None)
    assert [event["transition"] for event in incident["events"]] == ["opened", "resolved", "reopened"]
    again = incident["events"][-1]
    assert again["summary"].startswith("PAGE, AGAIN chat-prod · coding: acceptance length 1.92 by request, 20% below")
    assert again["summary"].endswith(f"; again, 51 min 0 s after it was resolved; next: specwatch incidents {first}")
    assert {delivery["receiver"] for delivery in again["deliveries"]} == BOTH
    well_story.run(WELL)
    assert well_story.run(WELL).transitions == [(first, Transition.RESOLVED)]


def test_a_drop_long_after_a_resolution_is_an_incident_of_its_own(well_story: Story) -> None:
    first = well_story.incident()
    well_story.run(WELL)
    well_story.run(WELL)
    well_story.now += timedelta(hours=2)
    assert well_story.incident() != first


def test_with_reopening_off_every_drop_is_an_incident_of_its_own(database: Database) -> None:
    story = Story(database, make_config(alerting=make_alerting(reopen_within="off")))
    story.baseline()
    first = story.incident()
    story.run(WELL)
    story.run(WELL)
    assert story.incident() != first


def test_a_second_domain_updates_the_incident_and_it_resolves_only_after_both(well_story: Story) -> None:
    well_story.baseline(domain="math")
    incident_id = well_story.incident()
    well_story.run(DROPPED, domain="math")
    well_story.confirm()
    assert well_story.confirm().transitions == [(incident_id, Transition.UPDATED)]
    assert well_story.run(WELL).transitions == []
    assert well_story.run(WELL).transitions == [], "math is still broken"
    domains = well_story.get_incident(incident_id)["domains"]
    assert {name: domain["left_at"] is None for name, domain in domains.items()} == {"coding": False, "math": True}
    assert well_story.run(WELL, domain="math").transitions == []
    assert well_story.run(WELL, domain="math").transitions == [(incident_id, Transition.RESOLVED)]
    events = well_story.get_incident(incident_id)["events"]
    assert [(event["transition"], event["domain"], event["domains"]) for event in events] == [
        ("opened", "coding", ["coding"]),
        ("updated", "math", ["coding", "math"]),
        ("resolved", "math", []),
    ]


def test_two_routes_have_incidents_of_their_own(database: Database) -> None:
    story = Story(database, make_config(make_route(), make_route("batch")))
    story.baseline()
    story.baseline(route="batch")
    assert story.incident() != story.incident(route="batch")


# -- bumps


def test_a_changed_identity_is_a_bump_and_every_other_domain_is_probed_at_once(database: Database) -> None:
    story = Story(database, make_config(make_route(domains=["coding", "math", "qa"])))
    story.run()
    recorded = story.run(identity=replace(IDENTITY, drafter="org/other"))
    assert recorded.bump_id is not None
    with database.transaction() as connection:
        bump = identities.last_bump(connection, ROUTE)
    assert bump is not None
    assert (bump["id"], bump["replica"]) == (recorded.bump_id, REPLICA)
    assert bump["changes"] == {"drafter": ["org/drafter", "org/other"]}
    jobs = story.jobs()
    assert [(job["key"], job["domain"], job["reason"]) for job in jobs] == [
        (f"bump {recorded.bump_id} math", "math", "bump"),
        (f"bump {recorded.bump_id} qa", "qa", "bump"),
    ]
    assert {(job["scheduled_at"], job["lock"], job["priority"]) for job in jobs} == {(None, f"replica {REPLICA}", 10)}
    assert story.run(identity=replace(IDENTITY, drafter="org/other"), domain="math").bump_id is None


def test_an_incident_names_the_bump_before_it(well_story: Story) -> None:
    swapped = replace(IDENTITY, drafter="org/other")
    well_story.run(DROPPED, identity=swapped)
    well_story.query("DELETE FROM procrastinate_jobs WHERE args -> 'job' ->> 'reason' = 'bump'")
    well_story.confirm(identity=swapped)
    [(incident_id, _)] = well_story.confirm(identity=swapped).transitions
    [event] = well_story.get_incident(incident_id)["events"]
    assert event["last_bump"]["changes"] == {"drafter": ["org/drafter", "org/other"]}
    assert "changed    drafter org/drafter → org/other, noticed" in event["text"]


def test_a_replica_is_compared_only_with_its_own_past(story: Story) -> None:
    story.run()
    other = story.run(replica="http://vllm-1:8000", identity=replace(IDENTITY, version="0.30.0"))
    assert other.bump_id is None


def test_a_found_replica_that_is_new_is_compared_with_what_the_route_ran_before(database: Database) -> None:
    found = make_route(replicas={"dns": "http://vllm.svc:8000"})
    story = Story(database, make_config(found))
    story.run(replica="http://10.0.0.1:8000")
    assert story.run(replica="http://10.0.0.2:8000").bump_id is None
    rolled_out = replace(IDENTITY, version="0.30.0")
    assert story.run(replica="http://10.0.0.3:8000", identity=rolled_out).bump_id is not None
    assert story.run(replica="http://10.0.0.4:8000", identity=rolled_out).bump_id is None


def test_a_run_that_measured_nothing_is_no_bump(story: Story) -> None:
    story.run()
    assert story.run(identity=Identity(engine="other"), invalid_reason="unreachable").bump_id is None


def test_a_field_unknown_for_one_run_neither_is_nor_hides_a_bump(story: Story) -> None:
    story.run()
    assert story.run(identity=replace(IDENTITY, version=None)).bump_id is None
    assert story.run(identity=IDENTITY).bump_id is None
    story.run(identity=replace(IDENTITY, version=None))
    assert story.run(identity=replace(IDENTITY, version="0.30.0")).bump_id is not None


def test_another_k_is_a_bump_and_its_runs_are_not_comparable_rather_than_well_or_ill(well_story: Story) -> None:
    deep = well_story.run(1.2, k=5, identity=replace(IDENTITY, k=5))
    assert deep.bump_id is not None
    [(_, verdict)] = deep.verdicts
    assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, "not comparable: K 5 is not the baseline's 3")
    assert (well_story.count("trips"), deep.transitions, deep.baseline_id) == (0, [], None)


# -- once only


def test_the_same_job_twice_changes_nothing(well_story: Story) -> None:
    job = ProbeJob("slot 7", ROUTE, DOMAIN, REPLICA, Reason.SCHEDULED)
    assert well_story.try_run(DROPPED, job=job, identity=replace(IDENTITY, k=3, version="0.30.0")) is not None
    tables = ("runs", "samples", "verdicts", "trips", "bumps", "procrastinate_jobs", "baselines")
    before = {table: well_story.count(table) for table in tables}
    assert well_story.try_run(WELL, job=job) is None
    assert {table: well_story.count(table) for table in tables} == before


def test_a_confirmation_that_runs_twice_after_a_crash_is_one_confirmation(well_story: Story) -> None:
    well_story.run(DROPPED)
    job = ProbeJob.from_dict(well_story.jobs()[0]["job"])
    well_story.confirm()
    assert well_story.try_run(DROPPED, job=job, reason=Reason.CONFIRM) is None
    assert well_story.trip() == ("pending", 2)
    well_story.confirm()
    assert Counter(event["transition"] for event in well_story.get_incident(1)["events"]) == {"opened": 1}


# -- the queue


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[App]:
    app = queue_app(database.conninfo())
    async with app.open_async():
        yield app


async def fetched(app: App) -> list[str]:
    """Keys of the jobs a worker may start now, each left running."""
    worker = await app.job_manager.register_worker()
    keys = []
    while job := await app.job_manager.fetch_job([QUEUE], worker):
        keys.append(job.task_kwargs["job"]["key"])
    return keys


def queued(story: Story, key: str, reason: Reason, at: datetime | None = None, replica: str = REPLICA) -> None:
    with story.database.transaction() as connection:
        defer(connection, ProbeJob(key, ROUTE, DOMAIN, replica, reason), at)


async def test_one_probe_at_a_time_runs_on_a_replica_confirmations_first(story: Story, queue: App) -> None:
    queued(story, "slot", Reason.SCHEDULED)
    queued(story, "elsewhere", Reason.SCHEDULED, replica="http://vllm-1:8000")
    queued(story, "confirm", Reason.CONFIRM)
    assert await fetched(queue) == ["confirm", "elsewhere"]


async def test_a_job_whose_time_has_come_takes_its_place_though_the_replica_is_busy(story: Story, queue: App) -> None:
    queued(story, "slot", Reason.SCHEDULED)
    assert await fetched(queue) == ["slot"]
    queued(story, "confirm", Reason.CONFIRM, START)
    [job] = [job for job in story.jobs() if job["task_name"] == LATER]
    assert await fetched(queue) == [job["key"]]


async def test_a_confirmation_that_is_not_due_yet_does_not_keep_other_probes_waiting(story: Story, queue: App) -> None:
    queued(story, "confirm", Reason.CONFIRM, datetime(2999, 1, 1, tzinfo=START.tzinfo))
    queued(story, "slot", Reason.SCHEDULED)
    assert await fetched(queue) == ["slot"]


def test_a_job_survives_the_queue_as_it_was() -> None:
    job = ProbeJob("k", ROUTE, DOMAIN, REPLICA, Reason.CONFIRM, 3, "2026-03-02T10:00:00+00:00")
    assert ProbeJob.from_dict(job.as_dict()) == job


def test_a_database_lost_while_a_job_is_queued_is_told_as_such(story: Story) -> None:
    def queue_while_the_database_goes_away() -> None:
        with story.database.transaction() as connection:
            [[own]] = connection.exec_driver_sql("SELECT pg_backend_pid()")
            story.query("SELECT pg_terminate_backend(:pid)", pid=own)
            defer(connection, ProbeJob("k", ROUTE, DOMAIN, REPLICA, Reason.MANUAL))

    with pytest.raises(StoreError, match="does not answer"):
        queue_while_the_database_goes_away()
    assert story.jobs() == []


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


@pytest.mark.parametrize("metric", ["accepted_per_step", "acceptance_rate", "throughput"])
def test_a_baseline_of_an_earlier_version_judges_metrics_that_it_does_not_hold(database: Database, metric: str) -> None:
    rule = {"name": "other", "metric": metric, "drop": "20%"}
    story = Story(database, make_config(alerting=make_alerting(rules=[rule])))
    story.baseline()
    story.query("ALTER TABLE baselines DISABLE TRIGGER USER")  # immutable since
    story.query("UPDATE baselines SET metrics = metrics - CAST(:metric AS text)", metric=metric)
    [(name, verdict)] = story.run(1.7).verdicts
    assert (name, verdict.metric, verdict.outcome) == ("other", metric, Outcome.TRIPPED)
    expected = {"accepted_per_step": 0.7 / 1.4 - 1, "acceptance_rate": 0.7 / 1.4 - 1, "throughput": 1.7 / 2.4 - 1}
    assert verdict.estimate is not None
    assert verdict.estimate.change == pytest.approx(expected[metric], abs=1e-3)


def test_a_drafter_that_dies_during_a_page_is_told(database: Database) -> None:
    rules = [
        {"name": "acceptance-drop", "drop": "15%"},
        {"name": "dead-drafter", "metric": "first_position_survival", "below": "5%"},
    ]
    story = Story(database, make_config(alerting=make_alerting(rules=rules)))
    story.baseline()
    incident_id = story.incident()
    for _ in range(2):
        story.run(1.01)
        while any(job["reason"] == "confirm" for job in story.jobs()):
            story.confirm(1.01)
    events = story.get_incident(incident_id)["events"]
    assert [event["transition"] for event in events] == ["opened", "updated"]
    assert events[-1]["summary"].startswith(
        "PAGE, NOW ALSO chat-prod · coding: first-position survival 1% by request: the drafter proposes nothing"
    )
    assert story.get_incident(incident_id)["domains"]["coding"]["rule"] == "dead-drafter"
