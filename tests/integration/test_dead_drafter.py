"""A dead drafter pages whatever its baseline, and with none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor.core.incidents import Transition
from monitor.core.judge import Outcome
from tests.factories import DOMAIN, make_alerting, make_config
from tests.integration.story import BOTH, WELL, Story, outcomes

if TYPE_CHECKING:
    from monitor.store.database import Database

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
