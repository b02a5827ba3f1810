"""Of several replicas one falls: it is named, and the others neither heal it nor are blamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.core.incidents import Transition
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob
from monitor.service.recording import Recorder
from tests.factories import make_config, make_route
from tests.integration.story import DROPPED, WELL, Story

if TYPE_CHECKING:
    from monitor.store.database import Database

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
