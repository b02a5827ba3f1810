"""What an engineer reads at three in the morning, to the character."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.alerting.alertmanager import webhook_body
from monitor.alerting.message import closed_event, incident_event, trial_event
from monitor.core.evidence import Evidence, PastRun
from monitor.core.explanation import explained, joint_cause_texts
from monitor.core.incidents import Transition
from monitor.core.judge import Line, Verdict, judge_confirmation, judge_resolution, judge_run
from monitor.core.outputs import Changes
from monitor.core.replicas import ReplicaDifference
from monitor.core.statistics import paired_estimate
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
SHELL_ONLY = ("moved", "organic", "removed_beside")
"""Of an explanation, what no message holds."""
EVIDENCE = Evidence(
    change=-0.2,
    replica="http://vllm-0:8000",
    source="request",
    outputs=Changes(0, 24),
    identity_changes={"drafter": ("org/drafter", "org/other")},
    recent=(PastRun(34, "http://vllm-0:8000", START, 1.92),),
    tokens_per_second=192.0,
    baseline_tokens_per_second=(238.0, 240.0, 242.0),
)
DRAFTER = (
    "  cause      drafter (strong evidence): drafter org/drafter → org/other; outputs unchanged (24/24):\n"
    "             points at the drafter or its cache\n"
)
IMPACT = (
    "  impact     speed and cost; speculative decoding by itself changes no answers; the same tokens take\n"
    "             1.25 times as long (192 tokens a second per request, baseline 240), measured on the\n"
    "             probes\n"
)
COST = (
    "  cost       1.00 an hour more, 24.00 a day more for each server kept busy, at 2 an hour for each of\n"
    "             2 GPUs\n"
)


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
        "joins": {},
        "joins_causes": {},
        "opened_at": START + timedelta(minutes=11),
        "reopened_at": None,
        "now": START + timedelta(minutes=11),
        "broken_domains": ["coding"],
        "involved": {"coding": CODING},
        "last_good_run": LAST_GOOD,
        "baseline_runs": BASELINE_RUNS,
        "outputs": None,
        "last_bump": DRAFTER_BUMP,
        "other_changes": {"math": -0.012, "coding": -0.2},
        "route_domains": ["coding", "math"],
        "judged_domains": ["coding", "math"],
        "replica_difference": None,
        "external_url": "https://specwatch.example.com",
        "runbook_urls": ["https://wiki.example.com/specwatch"],
        "explained": None if transition is Transition.RESOLVED else explained(EVIDENCE, 2.0, 2),
    }
    return incident_event(**{**values, **changes})


def test_an_opened_incident_says_how_much_since_when_what_changed_and_what_to_do() -> None:
    assert event(Transition.OPENED, confirmed())["text"] == (
        "PAGE chat-prod · coding: acceptance length 1.92 by request, 20% below its baseline 2.40, "
        "since 2026-03-02 10:00:00 UTC; next: specwatch incidents 12\n"
        f"{IMPACT}"
        "  evidence   -20.0% (95 % interval -21.7% to -18.2%) in geometric means over 24 prompts, runs 31,\n"
        "             33, 34, baseline 7, source request\n"
        "  rule       acceptance-drop: acceptance_length down 15%; replica http://vllm-0:8000\n"
        f"{DRAFTER}"
        "  last good  run 27 at 2026-03-02 09:21:00 UTC\n"
        "  changed    drafter org/drafter → org/other; k 3 → 5, noticed 2026-03-02 09:58:20 UTC on\n"
        "             http://vllm-0:8000\n"
        "  others     math -1.2%\n"
        f"{COST}"
        "  next       specwatch incidents 12\n"
        "             specwatch explain --incident 12\n"
        "             specwatch run show 34\n"
        "             specwatch history chat-prod --domain coding --since 24h\n"
        "             if the change above is yours: roll it back, or approve a new baseline\n"
        "  link       https://specwatch.example.com/incidents/12\n"
        "  runbook    https://wiki.example.com/specwatch"
    )


@pytest.mark.parametrize(
    ("outputs", "line"),
    [
        (
            Changes(5, 24),
            "  cause      drafter (moderate evidence): outputs unchanged (19/24): points at the drafter or its",
        ),
        (Changes(20, 24), "  cause      target (strong evidence): outputs changed on 20 of 24: points at the target;"),
        (Changes(12, 24), "  outputs    changed on 12 of 24: points at neither drafter nor target"),
        (
            Changes(20, 24, 0.5),
            "  outputs    changed on 20 of 24: points at neither drafter nor target; the baseline's own runs vary\n"
            "             on 50%",
        ),
    ],
)
def test_an_alert_says_whether_outputs_changed_and_what_that_points_at(outputs: Changes, line: str) -> None:
    found = replace(EVIDENCE, outputs=outputs, identity_changes={})
    text = event(Transition.OPENED, confirmed(), outputs=outputs.as_dict(), explained=explained(found))["text"]
    assert f"\n{line}" in text


def test_an_alert_without_a_cause_says_what_was_looked_at_and_what_is_not_known() -> None:
    found = explained(replace(EVIDENCE, outputs=None, identity_changes={}))
    assert (
        "\n  cause      none found; looked at: identity; not known: outputs, template, other replicas, prefix\n"
        "             cache, uptime, load, context length, traffic\n"
    ) in event(Transition.OPENED, confirmed(), explained=found)["text"]


def test_an_alert_without_a_price_names_no_cost() -> None:
    document = event(Transition.OPENED, confirmed(), explained=explained(EVIDENCE))
    assert (document["cost"], "  cost " in document["text"]) == (None, False)


def test_an_updated_incident_names_the_domain_that_broke_now() -> None:
    document = event(
        Transition.UPDATED,
        confirmed(),
        domain="math",
        broken_domains=["math", "coding"],
        now=START + timedelta(minutes=30),
        last_good_run=None,
        last_bump=None,
        other_changes={"coding": -0.21, "qa": -0.0004},
        external_url=None,
        runbook_urls=[],
    )
    assert document["domains"] == ["coding", "math"]
    assert document["text"] == (
        "PAGE, NOW ALSO chat-prod · math: acceptance length 1.92 by request, 20% below its baseline 2.40, "
        "since 2026-03-02 10:00:00 UTC; next: specwatch incidents 12\n"
        f"{IMPACT}"
        "  evidence   -20.0% (95 % interval -21.7% to -18.2%) in geometric means over 24 prompts, runs 31,\n"
        "             33, 34, baseline 7, source request\n"
        "  rule       acceptance-drop: acceptance_length down 15%; replica http://vllm-0:8000\n"
        f"{DRAFTER}"
        "  last good  none since its baseline was approved; the baseline's own runs 1-10, until 2026-03-02\n"
        "             08:41:00 UTC\n"
        "  changed    no change of model, drafter, engine or K was seen on this route\n"
        "  others     coding -21.0%, qa 0.0%\n"
        f"{COST}"
        "  next       specwatch incidents 12\n"
        "             specwatch explain --incident 12\n"
        "             specwatch run show 34\n"
        "             specwatch history chat-prod --domain math --since 24h\n"
        "  runbook    specwatch runbook"
    )


def fallen(change: float, value: float, *run_ids: int) -> dict[str, Any]:
    worst = {**WORST, "change": change, "value": value, "run_ids": list(run_ids), "source": "request"}
    return {**CODING, "worst": worst}


def test_domains_that_joined_together_are_told_in_one_message_with_their_worst_figures_worst_first() -> None:
    document = event(
        Transition.UPDATED,
        confirmed(),
        domain="qa",
        since=START + timedelta(minutes=2),
        joins={"math": START.isoformat(), "writing": (START + timedelta(minutes=1)).isoformat()},
        joins_causes={"math": [cause("drafter", "moderate", "outputs unchanged (22/24)")], "writing": []},
        broken_domains=["coding", "math", "qa", "writing"],
        involved={
            "coding": CODING,
            "math": fallen(-0.2, 1.92, 31, 33, 34),
            "qa": fallen(-0.21, 1.9, 32, 35, 36),
            "writing": {**fallen(-0.35, 1.56, 37, 38, 39), "rule": "acceptance-slip"},
        },
        other_changes={"coding": -0.23, "math": -0.2, "writing": -0.35, "rag": -0.01},
        route_domains=["coding", "math", "qa", "writing", "rag"],
        judged_domains=["coding", "math", "qa", "writing", "rag"],
        external_url=None,
    )
    assert list(document["joined"]) == ["math", "qa", "writing"]
    assert document["text"] == (
        "PAGE, NOW ALSO chat-prod · writing, qa, math: acceptance length of writing, the worst, 1.56 by request, "
        "35% below its baseline 2.40, since 2026-03-02 10:00:00 UTC; next: specwatch incidents 12\n"
        f"{IMPACT.replace('probes', 'probes of qa')}"
        "  joined     writing, at worst -35.0% (1.56 of 2.40 by request, runs 37-39)\n"
        "             qa, at worst -21.0% (1.90 of 2.40 by request, runs 32, 35, 36)\n"
        "             math, at worst -20.0% (1.92 of 2.40 by request, runs 31, 33, 34)\n"
        "  rule       acceptance-slip, acceptance-drop\n"
        "  cause      drafter (strong evidence, 2 of 3 domains: qa, math): in qa, drafter org/drafter →\n"
        "             org/other; outputs unchanged (24/24): points at the drafter or its cache\n"
        "  changed    drafter org/drafter → org/other; k 3 → 5, noticed 2026-03-02 09:58:20 UTC on\n"
        "             http://vllm-0:8000\n"
        "  others     coding -23.0%, rag -1.0%\n"
        "  next       specwatch incidents 12\n"
        "             specwatch explain --incident 12\n"
        "             specwatch history chat-prod --since 24h\n"
        "             if the change above is yours: roll it back, or approve a new baseline\n"
        "  runbook    https://wiki.example.com/specwatch"
    )


def cause(kind: str, strength: str, sentence: str) -> dict[str, str]:
    return {"kind": kind, "strength": strength, "sentence": sentence}


def test_of_causes_in_several_domains_that_of_the_most_evidence_comes_first_and_each_is_told_once() -> None:
    template = cause("template", "strong", "24 of 24 prompts have other numbers of tokens")
    drafter = cause("drafter", "moderate", "outputs unchanged")
    load = cause("load", "weak", "waiting 3, at most 0 in the baseline's runs")
    found = {"math": [template, drafter], "qa": [drafter, load], "rag": [load]}
    assert joint_cause_texts(found) == [
        "drafter (moderate evidence, 2 of 3 domains: math, qa): in each, outputs unchanged",
        "template (strong evidence, 1 of 3 domains: math): 24 of 24 prompts have other numbers of tokens",
        "load (weak evidence, 2 of 3 domains: qa, rag): in each, waiting 3, at most 0 in the baseline's runs",
    ]
    assert joint_cause_texts({"math": [drafter], "qa": [drafter]}) == [
        "drafter (moderate evidence, all 2 domains): in each, outputs unchanged"
    ]


def test_domains_without_any_cause_are_told_with_what_was_looked_at() -> None:
    nothing = explained(replace(EVIDENCE, outputs=None, identity_changes={}))
    involved = {name: fallen(-0.2, 1.92, 36) for name in ("coding", "math")}
    joined = {"joins": {"math": START.isoformat()}, "joins_causes": {"math": []}, "involved": involved}
    told = event(Transition.UPDATED, confirmed(), explained=nothing, **joined)
    assert "\n  cause      none found; looked at: identity; not known: outputs," in told["text"]


def test_of_many_domains_the_first_line_says_how_many_and_the_text_names_all_the_worst_first() -> None:
    names = [f"domain-{number:02}" for number in range(10)]
    joins = dict.fromkeys(names[:-1], START.isoformat())
    involved = {name: fallen(-0.2 - number / 100, 1.92, 36) for number, name in enumerate(names)}
    told = event(
        Transition.UPDATED,
        confirmed(),
        domain=names[-1],
        joins=joins,
        involved=involved,
        broken_domains=["coding", *names],
        route_domains=["coding", "math", *names],
        other_changes=dict.fromkeys(names, -0.2),
    )
    assert told["summary"].startswith(
        "PAGE, NOW ALSO chat-prod · 10 more, now 11 of 12 domains: acceptance length of domain-09, the worst, 1.92"
    )
    assert (
        "\n  joined     domain-09, at worst -29.0% (1.92 of 2.40 by request, run 36)\n"
        "             domain-08, at worst -28.0% (1.92 of 2.40 by request, run 36)\n"
        "             domain-07, at worst -27.0% (1.92 of 2.40 by request, run 36)\n"
        "             and 7 more, -26.0% to -20.0%: domain-06, domain-05, domain-04, domain-03, domain-02,\n"
        "             domain-01, domain-00\n"
    ) in told["text"]
    ended = event(
        Transition.RESOLVED,
        well(),
        domain=names[0],
        involved=involved,
        route_domains=names,
        other_changes={name: number / 100 for number, name in enumerate(names)},
    )
    assert ended["joined"] == {}
    assert ended["summary"].startswith("RESOLVED chat-prod · all 10 domains: ")
    assert "\n  was broken domain-09, at worst -29.0%" in ended["text"]
    assert "\n  others     9 domains, +1.0% to +9.0%, the lowest domain-01\n" in ended["text"]


@pytest.mark.parametrize(
    ("outputs", "speed", "told"),
    [
        (
            Changes(0, 24),
            192.0,
            "speed and cost, not the answers: they are as before on 24 of 24 prompts; the same tokens take 1.25 times "
            "as long (192 tokens a second per request, baseline 240), measured on the probes",
        ),
        (
            Changes(20, 24),
            239.0,
            "speed and cost, and the answers may be others: they changed on 20 of 24 prompts; "
            "not clearly slower: 239 tokens a second per request, baseline 240, 238 in the slowest of its runs, "
            "measured on the probes",
        ),
        (
            Changes(12, 24),
            None,
            "speed and cost; speculative decoding by itself changes no answers; how much slower cannot be told",
        ),
    ],
    ids=["the drafter's", "the target's", "nobody's"],
)
def test_an_alert_says_whether_answers_are_others_and_how_much_longer_they_take(
    outputs: Changes, speed: float | None, told: str
) -> None:
    found = replace(EVIDENCE, outputs=outputs, identity_changes={}, tokens_per_second=speed)
    text = event(Transition.OPENED, confirmed(), outputs=outputs.as_dict(), explained=explained(found))["text"]
    assert f"impact {told} evidence" in " ".join(text.split())


def test_a_resolved_incident_says_how_it_stands_how_long_it_lasted_and_what_it_was_and_advises_no_rollback() -> None:
    document = event(
        Transition.RESOLVED,
        well(),
        broken_domains=[],
        involved={"coding": CODING, "math": {**CODING, "worst": None}},
        now=START + timedelta(hours=2, minutes=16),
        other_changes={},
    )
    assert document["text"] == (
        "RESOLVED chat-prod · coding, math: acceptance length of coding, the last to heal, is back at 2.40 by request, "
        "level with its baseline 2.40, after 2 h 5 min; incident 12\n"
        "  evidence   0.0% (95 % interval -2.5% to +2.6%) in geometric means over 24 prompts, runs 41, 42,\n"
        "             baseline 7, source request\n"
        "  rule       acceptance-drop: acceptance_length down 15%; replica http://vllm-0:8000\n"
        "  lasted     2 h 5 min, 2026-03-02 10:11:00 UTC to 2026-03-02 12:16:00 UTC\n"
        "  was broken coding, at worst -23.0% (1.85 of 2.40, run 36)\n"
        "             math\n"
        "  changed    nothing was seen to change since it opened\n"
        "  next       specwatch incidents 12\n"
        "  link       https://specwatch.example.com/incidents/12"
    )


def test_what_opened_again_lasted_since_then() -> None:
    again, now = START + timedelta(hours=2), START + timedelta(hours=2, minutes=5)
    document = event(Transition.RESOLVED, well(), reopened_at=again.isoformat(), now=now)
    assert document["summary"].endswith("level with its baseline 2.40, after 5 min 0 s; incident 12")
    assert (
        "\n  lasted     5 min 0 s, 2026-03-02 12:00:00 UTC to 2026-03-02 12:05:00 UTC; first opened 2026-03-02\n"
        "             10:11:00 UTC\n"
    ) in document["text"]


def test_a_resolved_incident_says_what_was_seen_to_change_while_it_was_open() -> None:
    bump = {**DRAFTER_BUMP, "noticed_at": "2026-03-02T12:00:00+00:00"}
    document = event(Transition.RESOLVED, well(), last_bump=bump, now=START + timedelta(hours=3))
    assert (
        "\n  changed    drafter org/drafter → org/other; k 3 → 5, noticed 2026-03-02 12:00:00 UTC on"
        in document["text"]
    )


def test_an_incident_closed_without_a_measurement_says_why_and_does_not_claim_that_it_is_well() -> None:
    document = closed_event(
        incident_id=12,
        route="chat-prod",
        labels={"team": "chat"},
        severity="page",
        reason="route removed from configuration",
        opened_at=START - timedelta(hours=5),
        reopened_at=START.isoformat(),
        now=START + timedelta(hours=3),
        involved={"coding": CODING},
        external_url=None,
    )
    assert (document["transition"], document["reason"]) == ("resolved", "route removed from configuration")
    assert document["text"] == (
        "RESOLVED chat-prod · coding: route removed from configuration, after 3 h 0 min; "
        "nothing was measured to be well; incident 12\n"
        "  lasted     3 h 0 min, 2026-03-02 10:00:00 UTC to 2026-03-02 13:00:00 UTC; first opened 2026-03-02\n"
        "             05:00:00 UTC\n"
        "  was broken coding, at worst -23.0% (1.85 of 2.40, run 36)\n"
        "  next       specwatch incidents 12"
    )


@pytest.mark.parametrize("transition", [Transition.OPENED, Transition.RESOLVED])
def test_a_test_message_is_marked_wherever_it_is_read(transition: Transition) -> None:
    document = trial_event("hook", transition, "warning", START)
    assert "TEST of receiver hook: this is not an alert" in document["text"].splitlines()[0]
    body = webhook_body("hook", 0, document, None)
    assert body["status"] == ("resolved" if transition is Transition.RESOLVED else "firing")
    assert {name: body["commonLabels"][name] for name in ("route", "test", "severity")} == {
        "route": "specwatch-test",
        "test": "true",
        "severity": "warning",
    }
    assert "TEST" in body["commonAnnotations"]["summary"]


WORDS = st.text("abc-./ ", min_size=1, max_size=60)


@given(st.dictionaries(WORDS, st.tuples(WORDS, WORDS), min_size=1), st.dictionaries(WORDS, st.floats(-1, 1)))
def test_no_line_after_the_first_is_wider_than_a_terminal_unless_it_is_to_be_copied(
    changes: dict[str, tuple[str, str]], others: dict[str, float]
) -> None:
    bump = {**DRAFTER_BUMP, "changes": changes}
    text = event(Transition.OPENED, confirmed(), last_bump=bump, other_changes=others)["text"]
    assert max(len(line) for line in text.splitlines()[1:]) <= 100


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
        "raised_from": None,
        "domain": "coding",
        "domains": ["coding"],
        "involved": {"coding": CODING},
        "rule": "acceptance-drop",
        "reason": None,
        "replica": "http://vllm-0:8000",
        "source": "request",
        "since": "2026-03-02T10:00:00+00:00",
        "joined": {"coding": "2026-03-02T10:00:00+00:00"},
        "opened_at": "2026-03-02T10:11:00+00:00",
        "reopened_at": None,
        "happened_at": "2026-03-02T10:11:00+00:00",
        "ended_at": None,
        "last_good_run": LAST_GOOD,
        "baseline_runs": BASELINE_RUNS,
        "outputs": None,
        "cost_per_day": None,
        "route_domains": ["coding", "math"],
        "joined_causes": {"coding": explained(EVIDENCE)["causes"]},
        **{name: value for name, value in explained(EVIDENCE, 2.0, 2).items() if name not in SHELL_ONLY},
        "last_bump": DRAFTER_BUMP,
        "other_changes": {"math": -0.012},
        "unmeasured_domains": [],
        "replica_difference": None,
        "link": "https://specwatch.example.com/incidents/12",
        "runbook_url": "https://wiki.example.com/specwatch",
        "runbook_urls": ["https://wiki.example.com/specwatch"],
        "summary": "PAGE chat-prod · coding: acceptance length 1.92 by request, 20% below its baseline 2.40, "
        "since 2026-03-02 10:00:00 UTC; next: specwatch incidents 12",
    }


def test_a_replica_that_differs_is_named_with_how_much() -> None:
    estimate = paired_estimate([-0.22, -0.23] * 12, 0.015, 3)
    difference = ReplicaDifference(
        "http://b:8000", 34, ("http://a:8000", "http://c:8000"), (28, 36), "request", estimate
    )
    found = replace(EVIDENCE, outputs=None, identity_changes={}, replica="http://b:8000", replica_difference=difference)
    changes = {"replica_difference": difference, "explained": explained(found)}
    document = event(Transition.OPENED, confirmed(), **changes)
    assert document["replica_difference"]["run_id"] == 34
    assert (
        "  cause      replica (strong evidence): only http://b:8000: -20.1% (95 % interval -23.0% to -17.2%)\n"
        "             against 2 other replicas, over 24 prompts, source request\n"
    ) in document["text"]


def test_a_warning_is_called_a_warning_and_a_metric_by_its_name() -> None:
    verdict = judge_run(make_candidate(1.92), make_reference(2.4), Line("tokens_per_step", 0.125))
    document = event(Transition.OPENED, verdict, severity="warning")
    assert document["summary"].startswith("WARNING chat-prod · coding: tokens per step 1.92 by request, 20% below")
    assert "acceptance-drop: tokens_per_step down 12.5%;" in document["text"]


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (2.4, "2.40 by request, level with its baseline 2.40"),
        (2.39, "2.39 by request, level with its baseline 2.40"),
        (2.35, "2.35 by request, 2% below its baseline 2.40"),
        (2.64, "2.64 by request, 10% above its baseline 2.40"),
    ],
)
def test_a_healed_domain_is_compared_with_its_baseline_in_words(length: float, words: str) -> None:
    assert f"is back at {words}, after" in event(Transition.RESOLVED, well(length))["summary"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(42, "42 s"), (90, "1 min 30 s"), (3600, "1 h 0 min"), (93_780, "26 h 3 min")]
)
def test_how_long_it_lasted_is_told_in_two_units(seconds: int, words: str) -> None:
    document = event(Transition.RESOLVED, well(), opened_at=START, now=START + timedelta(seconds=seconds))
    assert document["summary"].endswith(f", after {words}; incident 12")
