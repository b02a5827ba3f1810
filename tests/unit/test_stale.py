"""When a route counts as not measured, and what is said of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monitor.alerting.alertmanager import webhook_body
from monitor.alerting.stale import measured_event, stale_event
from monitor.core.incidents import IncidentState, Transition
from monitor.core.stale import Measured, on_measured, on_stale, stale_since
from tests.factories import START

EVERY = timedelta(minutes=40)
LONG_AGO = START - timedelta(days=1)
MINUTE = timedelta(minutes=1)


def since(measured: Measured, minutes: float, *, watched: Any = LONG_AGO, every: timedelta = EVERY) -> Any:
    return stale_since(measured, every, 2, watched, START + minutes * MINUTE)


def test_a_domain_is_stale_after_two_periods_without_a_valid_run() -> None:
    measured = Measured(last_valid_run_id=1, last_valid_at=START)
    assert since(measured, 80) is None
    assert since(measured, 80.1) == START


def test_after_a_long_stop_there_is_one_period_to_measure_before_anything_is_said() -> None:
    measured = Measured(last_valid_run_id=1, last_valid_at=LONG_AGO)
    assert since(measured, 40, watched=START) is None
    assert since(measured, 40.1, watched=START) == LONG_AGO


def test_a_domain_without_any_valid_run_counts_from_its_first_run_or_from_the_start() -> None:
    assert since(Measured(first_run_at=START), 81) == START
    assert since(Measured(), 80, watched=START) is None
    assert since(Measured(), 81, watched=START) == START


def test_periods_of_seconds_are_given_two_minutes_in_all() -> None:
    measured = Measured(last_valid_run_id=1, last_valid_at=START)
    assert since(measured, 2, every=timedelta(seconds=5)) is None
    assert since(measured, 2.1, every=timedelta(seconds=5)) == START


def test_one_incident_opens_for_all_stale_domains_and_those_that_follow_join_silently() -> None:
    state, transition = on_stale(IncidentState(), {"math", "coding"}, "warning", START)
    assert (sorted(state.domains), transition) == (["coding", "math"], Transition.OPENED)
    state, transition = on_stale(state, {"math", "coding", "qa"}, "warning", START)
    assert (sorted(state.domains), transition) == (["coding", "math", "qa"], None)
    assert {domain.rule for domain in state.domains.values()} == {"stale"}


def test_the_last_domain_that_is_measured_again_resolves_it() -> None:
    state, _ = on_stale(IncidentState(), {"math", "coding"}, "warning", START)
    assert on_measured(state, "qa", START) == (state, None)
    state, transition = on_measured(state, "math", START)
    assert (list(state.domains), transition) == (["coding"], None)
    state, transition = on_measured(state, "coding", START)
    assert (list(state.domains), transition) == ([], Transition.RESOLVED)


def opening(**stale: Measured) -> dict[str, Any]:
    return stale_event(
        incident_id=13,
        route="chat-prod",
        labels={"team": "chat"},
        severity="warning",
        stale={name: (measured.last_valid_at or START, measured) for name, measured in stale.items()},
        involved={name: {"rule": "stale"} for name in stale},
        every=EVERY,
        periods=2,
        opened_at=START + timedelta(minutes=81),
        now=START + timedelta(minutes=81),
        external_url="https://specwatch.example.com",
        runbook_url=None,
    )


def test_the_message_says_since_when_nothing_is_measured_why_and_what_to_do() -> None:
    coding = Measured(None, 41, START, {"unreachable": 2, "busy": 1}, 46, "http://vllm-0:8000: connection refused")
    math = Measured(None, 42, START + MINUTE, {"unreachable": 2}, 45, "http://vllm-0:8000: timed out")
    assert opening(coding=coding, math=math)["text"] == (
        "WARNING chat-prod · coding, math: no valid run for 1 h 21 min, since 2026-03-02 10:00:00 UTC: "
        "unreachable, busy\n"
        "  measured   coding: last valid run 41, at 2026-03-02 10:00:00 UTC\n"
        "             math: last valid run 42, at 2026-03-02 10:01:00 UTC\n"
        "  invalid    4 × unreachable, 1 × busy; run 46: http://vllm-0:8000: connection refused\n"
        "  rule       stale: 2 periods of 40m without a valid run\n"
        "  next       specwatch incidents 13\n"
        "             specwatch runs --route chat-prod\n"
        "             specwatch run show 46\n"
        "             specwatch run now chat-prod\n"
        "  link       https://specwatch.example.com/incidents/13\n"
        "  runbook    specwatch runbook"
    )


def test_where_no_run_was_made_at_all_the_workers_are_asked_after() -> None:
    lines = opening(coding=Measured())["text"].splitlines()
    assert lines[0].endswith("since 2026-03-02 10:00:00 UTC: no run was made")
    assert lines[1] == "  measured   coding: never, since 2026-03-02 10:00:00 UTC"
    assert lines[2].startswith("  invalid    no run was made: is a worker running")


def test_the_end_says_that_it_is_measured_and_not_that_it_is_well() -> None:
    document = measured_event(
        incident_id=13,
        route="chat-prod",
        labels={},
        severity="warning",
        domain="math",
        run_id=50,
        replica="http://vllm-0:8000",
        involved={"coding": {}, "math": {}},
        opened_at=START,
        now=START + timedelta(minutes=5),
        external_url=None,
    )
    assert document["text"] == (
        "RESOLVED chat-prod · coding, math: measured again, run 50 of math, the last, is valid, after 5 min 0 s\n"
        "  next       specwatch incidents 13\n"
        "             specwatch run show 50"
    )


@pytest.mark.parametrize(
    ("changes", "name"), [({}, "SpecwatchNotMeasured"), ({"kind": None}, "SpecwatchAcceptanceDrop")]
)
def test_alertmanager_has_another_alert_for_a_route_that_is_not_measured(changes: dict[str, Any], name: str) -> None:
    document = {**opening(coding=Measured()), **changes}
    body = webhook_body("hook", 13, document, None)
    assert body["commonLabels"]["alertname"] == name
    assert body["commonAnnotations"]["domains"] == "coding"
