"""What recording a run does: baselines by policy, bumps, and each run once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from monitor.core.judge import Outcome
from monitor.core.records import Identity, Reason
from monitor.service.jobs import ProbeJob
from monitor.store import baselines, identities
from tests.factories import DOMAIN, IDENTITY, REPLICA, ROUTE, make_alerting, make_config, make_route
from tests.integration.story import DROPPED, WELL, Story, outcomes

if TYPE_CHECKING:
    from monitor.store.database import Database


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
