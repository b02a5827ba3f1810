"""What an engineer reads at three in the morning, to the character."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monitor.alerting.message import incident_event
from monitor.core.incidents import Transition
from monitor.core.judge import Line, Verdict, judge_confirmation, judge_resolution, judge_run
from tests.factories import START, make_candidate, make_reference

DRAFTER_BUMP = {
    "id": 4,
    "route": "chat-prod",
    "replica": "http://vllm-0:8000",
    "noticed_at": "2026-03-02T09:58:20+00:00",
    "changes": {"drafter": ["org/drafter", "org/other"], "k": [3, 5]},
}
LAST_GOOD = {"run_id": 27, "finished_at": "2026-03-02T09:21:00+00:00"}

BASELINE_RUNS = {"run_ids": list(range(1, 11)), "finished_at": "2026-03-02T08:41:00+00:00"}
WORST = {
    "metric": "acceptance_length",
    "change": -0.23,
    "value": 1.85,
    "baseline_value": 2.4,
    "run_ids": [36],
}
CODING = {"rule": "acceptance-drop", "joined_at": "2026-03-02T10:11:00+00:00", "left_at": None, "worst": WORST}


def confirmed() -> Verdict:
    runs = [make_candidate(1.92, id=number) for number in (31, 33, 34)]
    return judge_confirmation(runs[0], runs[1:], make_reference(2.4), Line("acceptance_length", 0.15))


def well(length: float = 2.4) -> Verdict:
    runs = [make_candidate(length, id=number) for number in (41, 42)]
    return judge_resolution(runs, make_reference(2.4), Line("acceptance_length", 0.15))


def event(transition: Transition, verdict: Verdict, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "incident_id": 12,
        "transition": transition,
        "route": "chat-prod",
        "labels": {"team": "chat"},
        "severity": "page",
        "raised_from": None,
        "domain": "coding",
        "rule": "acceptance-drop",
        "verdict": verdict,
        "replica": "http://vllm-0:8000",
        "source": "request",
        "since": START,
        "opened_at": START + timedelta(minutes=11),
        "now": START + timedelta(minutes=11),
        "broken_domains": ["coding"],
        "involved": {"coding": CODING},
        "last_good_run": LAST_GOOD,
        "baseline_runs": BASELINE_RUNS,
        "last_bump": DRAFTER_BUMP,
        "other_changes": {"math": -0.012, "coding": -0.2},
        "external_url": "https://specwatch.example.com",
        "runbook_url": "https://wiki.example.com/specwatch",
    }
    return incident_event(**{**values, **changes})


def test_an_opened_incident_says_how_much_since_when_what_changed_and_what_to_do() -> None:
    assert event(Transition.OPENED, confirmed())["text"] == (
        "PAGE chat-prod · coding: acceptance length 1.92, 20% below its baseline 2.40, since 2026-03-02 10:00:00 UTC\n"
        "  evidence   -20.0% (95 % interval -21.7% to -18.2%) in geometric means "
        "over 24 prompts, runs 31, 33, 34, baseline 7, "
        "source request\n"
        "  rule       acceptance-drop: acceptance_length down 15%; replica http://vllm-0:8000\n"
        "  last good  run 27 at 2026-03-02 09:21:00 UTC\n"
        "  changed    drafter org/drafter → org/other; k 3 → 5, noticed 2026-03-02 09:58:20 UTC on http://vllm-0:8000\n"
        "  others     math -1%\n"
        "  next       specwatch incidents 12\n"
        "             specwatch run show 34\n"
        "             specwatch history chat-prod --domain coding --since 24h\n"
        "             if the change above is yours: roll it back, or approve a new baseline\n"
        "  link       https://specwatch.example.com/incidents/12"
    )


def test_an_updated_incident_names_the_domain_that_broke_now() -> None:
    document = event(
        Transition.UPDATED,
        confirmed(),
        domain="math",
        broken_domains=["math", "coding"],
        now=START + timedelta(minutes=30),
        last_good_run=None,
        last_bump=None,
        other_changes={"coding": -0.21},
        external_url=None,
    )
    assert document["domains"] == ["coding", "math"]
    assert document["text"] == (
        "PAGE, STILL OPEN, NOW ALSO chat-prod · math: acceptance length 1.92, 20% below its baseline 2.40, "
        "since 2026-03-02 10:00:00 UTC\n"
        "  evidence   -20.0% (95 % interval -21.7% to -18.2%) in geometric means "
        "over 24 prompts, runs 31, 33, 34, baseline 7, "
        "source request\n"
        "  rule       acceptance-drop: acceptance_length down 15%; replica http://vllm-0:8000\n"
        "  last good  none\n"
        "  changed    no change of model, drafter, engine or K was seen on this route\n"
        "  others     coding -21%\n"
        "  next       specwatch incidents 12\n"
        "             specwatch run show 34\n"
        "             specwatch history chat-prod --domain math --since 24h"
    )


def test_a_resolved_incident_says_where_it_is_back_and_how_long_it_lasted() -> None:
    document = event(
        Transition.RESOLVED, well(), broken_domains=[], now=START + timedelta(hours=2, minutes=16), other_changes={}
    )
    assert document["text"] == (
        "RESOLVED chat-prod · coding: acceptance length is back at 2.40, level with its baseline 2.40, "
        "after 2 h 5 min\n"
        "  evidence   +0.0% (95 % interval -3.3% to +3.4%) in geometric means "
        "over 24 prompts, runs 41, baseline 7, source request\n"
        "  rule       acceptance-drop: acceptance_length down 15%; replica http://vllm-0:8000\n"
        "  changed    drafter org/drafter → org/other; k 3 → 5, noticed 2026-03-02 09:58:20 UTC on http://vllm-0:8000\n"
        "  next       specwatch incidents 12\n"
        "  link       https://specwatch.example.com/incidents/12"
    )


def test_the_document_holds_everything_a_receiver_may_show() -> None:
    document = event(Transition.OPENED, confirmed())
    assert document.pop("text").startswith(document["summary"] + "\n")
    assert document.pop("verdict") == confirmed().as_dict()
    assert document == {
        "incident_id": 12,
        "transition": "opened",
        "route": "chat-prod",
        "labels": {"team": "chat"},
        "severity": "page",
        "domain": "coding",
        "domains": ["coding"],
        "rule": "acceptance-drop",
        "replica": "http://vllm-0:8000",
        "source": "request",
        "since": "2026-03-02T10:00:00+00:00",
        "opened_at": "2026-03-02T10:11:00+00:00",
        "happened_at": "2026-03-02T10:11:00+00:00",
        "last_good_run": LAST_GOOD,
        "last_bump": DRAFTER_BUMP,
        "other_changes": {"math": -0.012},
        "link": "https://specwatch.example.com/incidents/12",
        "summary": "PAGE chat-prod · coding: acceptance length 1.92, 20% below its baseline 2.40, "
        "since 2026-03-02 10:00:00 UTC",
    }


def test_a_warning_is_called_a_warning_and_a_metric_by_its_name() -> None:
    verdict = judge_run(make_candidate(1.92), make_reference(2.4), Line("tokens_per_step", 0.125))
    document = event(Transition.OPENED, verdict, severity="warning")
    assert document["summary"].startswith("WARNING chat-prod · coding: tokens per step 1.92, 20% below")
    assert "acceptance-drop: tokens_per_step down 12.5%;" in document["text"]


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (2.4, "2.40, level with its baseline 2.40"),
        (2.39, "2.39, level with its baseline 2.40"),
        (2.35, "2.35, 2% below its baseline 2.40"),
        (2.64, "2.64, 10% above its baseline 2.40"),
    ],
)
def test_a_healed_domain_is_compared_with_its_baseline_in_words(length: float, words: str) -> None:
    assert f"is back at {words}, after" in event(Transition.RESOLVED, well(length))["summary"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(42, "42 s"), (90, "1 min 30 s"), (3600, "1 h 0 min"), (93_780, "26 h 3 min")]
)
def test_how_long_it_lasted_is_told_in_two_units(seconds: int, words: str) -> None:
    document = event(Transition.RESOLVED, well(), opened_at=START, now=START + timedelta(seconds=seconds))
    assert document["summary"].endswith(f", after {words}")
