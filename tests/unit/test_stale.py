"""When a route counts as not measured, and what is said of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monitor.alerting.alertmanager import webhook_body
from monitor.alerting.measured_again import measured_event
from monitor.alerting.stale import stale_event
from monitor.core.incidents import IncidentState, Transition
from monitor.core.stale import Around, Measured, Reading, on_measured, on_stale, stale_since
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


AROUND = Around(True, 3, [Reading("http://vllm-0:8000", 7, 3, START + 80 * MINUTE, "connection refused")])


def opening(around: Around = AROUND, **stale: Measured) -> dict[str, Any]:
    return stale_event(
        incident_id=13,
        route="chat-prod",
        labels={"team": "chat"},
        severity="warning",
        stale={name: (measured.last_valid_at or START, measured) for name, measured in stale.items()},
        involved={name: {"rule": "stale"} for name in stale},
        every=EVERY,
        periods=2,
        around=around,
        route_domains=["coding", "math"],
        opened_at=START + timedelta(minutes=81),
        now=START + timedelta(minutes=81),
        external_url="https://specwatch.example.com",
        runbook_url=None,
    )


def test_the_message_says_since_when_nothing_is_measured_why_and_what_to_do() -> None:
    coding = Measured(None, 41, START, {"unreachable": 2, "busy": 1}, 46, "http://vllm-0:8000: connection refused")
    math = Measured(None, 42, START + MINUTE, {"unreachable": 2}, 45, "http://vllm-0:8000: timed out")
    assert opening(coding=coding, math=math)["text"] == (
        "WARNING chat-prod · coding, math: not measured for 1 h 21 min, no valid run since 2026-03-02 10:00:00 UTC: "
        "unreachable, busy; next: specwatch incidents 13\n"
        "  impact     since then a drop of acceptance goes unnoticed; whether the route serves its users is\n"
        "             not judged here\n"
        "  measured   coding: last valid run 41, at 2026-03-02 10:00:00 UTC\n"
        "             math: last valid run 42, at 2026-03-02 10:01:00 UTC\n"
        "  why        4 × unreachable, 1 × busy; run 46: http://vllm-0:8000: connection refused\n"
        "  servers    http://vllm-0:8000 answered 7 of 10 readings of its metrics page until 2026-03-02\n"
        "             11:20:00 UTC; the last failure: connection refused\n"
        "  workers    at least one lives, 3 probes of this route due and not begun: does one probe take\n"
        "             longer than the period?\n"
        "  rule       stale: 2 periods of 40m without a valid run\n"
        "  next       specwatch incidents 13\n"
        "             specwatch runs --route chat-prod\n"
        "             specwatch run show 46\n"
        "             specwatch run now chat-prod\n"
        "             curl -sS -m 5 http://vllm-0:8000/health\n"
        "  link       https://specwatch.example.com/incidents/13\n"
        "  runbook    specwatch runbook"
    )


@pytest.mark.parametrize(
    ("around", "workers"),
    [
        (
            Around(False, 22),
            "none lives, 22 probes of this route due and not begun: start 'specwatch serve' or 'specwatch worker'",
        ),
        (Around(True, 0), "at least one lives, 0 probes of this route due and not begun"),
    ],
)
def test_where_no_run_was_made_at_all_the_workers_and_the_servers_are_told_of(around: Around, workers: str) -> None:
    text = opening(around=around, coding=Measured())["text"]
    assert ": no run was made; next: specwatch incidents 13\n" in text
    assert "\n  measured   coding: never, since 2026-03-02 10:00:00 UTC\n  servers  " in text
    assert (
        "servers whether they answer is not known: no reading of their metrics page since then is stored yet workers"
        in (" ".join(text.split()))
    )
    assert f"workers {workers} rule" in " ".join(text.split())


TRIPPED = {
    "run_id": 49,
    "outcome": "tripped",
    "metric": "acceptance_length",
    "value": 1.92,
    "baseline_value": 2.4,
    "change": -0.2,
    "source": "request",
}
NOT_JUDGED = {"run_id": 50, "outcome": "invalid", "reason": "no approved baseline", "change": None}
DEAD_TEXT = "first-position survival 1% by request: the drafter proposes nothing the target accepts"
DEAD = {**TRIPPED, "metric": "first_position_survival", "value": 0.01, "below": 0.05, "change": None}


def ended(current: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "incident_id": 13,
        "route": "chat-prod",
        "labels": {},
        "severity": "warning",
        "domain": "math",
        "run_id": 50,
        "replica": "http://vllm-0:8000",
        "involved": {"coding": {}, "math": {}},
        "current": current,
        "incident": None,
        "confirming": ["coding", "math"],
        "route_domains": ["coding", "math"],
        "since": (START - timedelta(hours=1)).isoformat(),
        "opened_at": START,
        "now": START + timedelta(minutes=5),
        "external_url": None,
    }
    return measured_event(**{**values, **changes})


FOLLOWS = "an alert follows if confirmation runs agree"
WITHOUT = "no valid run from 2026-03-02 09:00:00 UTC to 2026-03-02 10:05:00 UTC"


@pytest.mark.parametrize(
    ("current", "first_line", "lines"),
    [
        (
            {"coding": TRIPPED, "math": {**TRIPPED, "run_id": 50, "outcome": "ok", "value": 2.4, "change": 0.0}},
            "MEASURED AGAIN AND DOWN chat-prod · coding: acceptance length 1.92 by request, 20% below its baseline 2.40"
            f"; {FOLLOWS}; {WITHOUT}; next: specwatch run show 49",
            [
                "coding: acceptance length 1.92 by request, 20% below its baseline 2.40, run 49",
                "math: acceptance length 2.40 by request, level with its baseline 2.40, run 50",
            ],
        ),
        (
            {"coding": DEAD, "math": {**TRIPPED, "run_id": 50}},
            f"MEASURED AGAIN AND DOWN chat-prod · coding, math: coding, the worst, {DEAD_TEXT}; {FOLLOWS}; {WITHOUT}; "
            "next: specwatch run show 49",
            [
                f"coding: {DEAD_TEXT}, run 49",
                "math: acceptance length 1.92 by request, 20% below its baseline 2.40, run 50",
            ],
        ),
        (
            {name: {**TRIPPED, "outcome": "ok", "value": 2.35, "change": -0.02} for name in ("coding", "math")},
            "RESOLVED chat-prod · coding, math: measured again; coding, the worst, acceptance length 2.35 by request, "
            f"2% below its baseline 2.40; {WITHOUT}; incident 13",
            [
                "coding: acceptance length 2.35 by request, 2% below its baseline 2.40, run 49",
                "math: acceptance length 2.35 by request, 2% below its baseline 2.40, run 49",
            ],
        ),
        (
            {"coding": NOT_JUDGED},
            "RESOLVED chat-prod · coding, math: measured again; whether it is well is not judged: no approved baseline"
            f"; {WITHOUT}; incident 13",
            ["coding: not judged: no approved baseline", "math: not judged: no rule applies"],
        ),
    ],
    ids=["one fell", "dead", "well", "not judged"],
)
def test_the_end_says_how_the_worst_stands_since_measured_is_not_well(
    current: dict[str, Any], first_line: str, lines: list[str]
) -> None:
    document = ended(current)
    run_id = 49 if lines[0].endswith("run 49") else 50
    assert document["summary"] == first_line
    told = " ".join(document["text"].removeprefix(document["summary"]).split())
    steps = [f"specwatch run show {run_id}", "specwatch incidents 13"]
    ordered = steps if "next: " in first_line else reversed(steps)
    assert told == f"now {' '.join(lines)} next {' '.join(ordered)} specwatch history chat-prod --since 24h"


@pytest.mark.parametrize(
    ("changes", "name"), [({}, "SpecwatchNotMeasured"), ({"kind": None}, "SpecwatchAcceptanceDrop")]
)
def test_alertmanager_has_another_alert_for_a_route_that_is_not_measured(changes: dict[str, Any], name: str) -> None:
    document = {**opening(coding=Measured()), **changes}
    body = webhook_body("hook", 13, document, None)
    assert body["commonLabels"]["alertname"] == name
    assert body["commonAnnotations"]["domains"] == "coding"


def test_of_what_is_down_already_the_end_names_the_open_incident_and_promises_no_other_alert() -> None:
    values: dict[str, Any] = {"incident": {"id": 7, "severity": "page"}, "confirming": ["qa"]}
    summary = ended({"coding": TRIPPED}, **values)["summary"]
    assert f"20% below its baseline 2.40; incident 7 (page) is open; {WITHOUT}; next: specwatch run show 49" in summary
    level = {**TRIPPED, "outcome": "ok", "value": 2.35, "change": -0.02}
    assert "incident 7" not in ended({"coding": level}, **values)["summary"]
