"""How an incident goes on and ends: valid runs above the line, one domain and one route at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monitor.core.incidents import Transition
from monitor.service.recording import Recorder
from tests.factories import DOMAIN, make_alerting, make_config, make_route
from tests.integration.story import BOTH, DROPPED, EVERY, WELL, Story

if TYPE_CHECKING:
    from monitor.store.database import Database


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
