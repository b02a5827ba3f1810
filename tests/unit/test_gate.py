"""The decision of a gate and its document."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import pytest

from monitor.core.gate import (
    Decision,
    GateReason,
    Look,
    mixed_look,
    paired_reference,
    shared_prompts,
    take_look,
)
from monitor.core.gate_verdict import GateDomain, GateSide, GateThresholds, GateVerdict
from monitor.core.records import Identity
from tests.factories import IDENTITY, START

PROMPTS = [f"q{number:02}" for number in range(24)]
REFERENCE = dict.fromkeys(PROMPTS, 2.4)


def fallen(drop: float) -> dict[str, float]:
    return {question: value * (1 - drop) for question, value in REFERENCE.items()}


def look(change: float, error: float = 0.01, pairs: int = 2, prompts: int = 24) -> Look:
    return Look(pairs, prompts, math.log1p(change), error, 2.4 * error)


def domain(name: str, reason: GateReason, found: Look | None = None) -> GateDomain:
    return GateDomain(name, reason, "as it went", 24, "hash", "request", looks=(found,) if found else ())


def verdict(*domains: GateDomain, **changes: Any) -> GateVerdict:
    values: dict[str, Any] = {
        "route": None,
        "against": "url",
        "candidate": GateSide("http://b:8000", IDENTITY),
        "reference": GateSide("http://a:8000", IDENTITY),
        "thresholds": GateThresholds("acceptance_length", 0.10, 12, 900.0, {one.domain: 1.0 for one in domains}),
        "concurrency": 4,
        "sampling": {},
        "started_at": START,
        "finished_at": START + timedelta(minutes=3),
        "domains": domains,
    }
    return GateVerdict(**{**values, **changes})


@pytest.mark.parametrize(
    ("drop", "reason"),
    [(0.0, GateReason.NO_REGRESSION), (0.10, GateReason.UNDECIDED), (0.20, GateReason.REGRESSION)],
)
def test_a_look_decides_only_when_the_whole_interval_is_on_one_side(drop: float, reason: GateReason) -> None:
    found = take_look([fallen(drop)] * 2, paired_reference([REFERENCE] * 2))
    assert found.reason(0.10) is reason
    assert found.change == pytest.approx(-drop)
    assert found.change_interval[0] < found.change < found.change_interval[1]


def test_more_pairs_make_the_interval_narrower() -> None:
    two, five = (take_look([fallen(0.05)] * n, paired_reference([REFERENCE] * n)) for n in (2, 5))
    assert five.half < two.half


def test_only_prompts_with_a_value_on_both_sides_are_compared() -> None:
    half = dict.fromkeys(PROMPTS[:12], 2.0)
    reference = paired_reference([REFERENCE, REFERENCE])
    assert shared_prompts([half, half], reference) == 12
    assert take_look([half, half], reference).prompts == 12


def test_the_mix_weighs_the_changes_and_its_error_is_smaller() -> None:
    mix = mixed_look({"math": look(-0.2), "coding": look(0.0)}, {"math": 3.0, "coding": 1.0})
    assert mix is not None
    assert mix.mean == pytest.approx(0.75 * math.log(0.8))
    assert mix.standard_error == pytest.approx(0.01 * math.hypot(0.75, 0.25))


def test_a_mix_with_a_domain_that_was_not_measured_has_no_figure() -> None:
    assert mixed_look({"math": look(0.0)}, {"math": 0.5, "coding": 0.5}) is None


@pytest.mark.parametrize("reason", GateReason)
def test_of_all_reasons_only_one_passes(reason: GateReason) -> None:
    fine = domain("coding", GateReason.NO_REGRESSION, look(0.0))
    found = verdict(fine, domain("math", reason, look(0.0)))
    assert (found.decision is Decision.PASS) == (reason is GateReason.NO_REGRESSION)
    assert (
        found.exit_code
        == {"pass": 0, "fail": 10, "inconclusive": 11, "no_baseline": 12, "not_measurable": 13}[found.decision.value]
    )


def test_a_gate_that_measured_nothing_does_not_pass() -> None:
    assert verdict().exit_code == 13


def test_a_regression_stands_also_when_another_domain_could_not_be_measured() -> None:
    found = verdict(domain("coding", GateReason.UNREACHABLE), domain("math", GateReason.REGRESSION, look(-0.3)))
    assert found.ending == (GateReason.REGRESSION, "math: as it went")


def test_domains_that_are_each_undecided_fail_when_their_mix_is_decided() -> None:
    domains = [domain(name, GateReason.UNDECIDED, look(-0.12, error=0.012)) for name in ("a", "b", "c", "d")]
    found = verdict(*domains)
    assert found.domains[0].look is not None
    assert found.domains[0].look.reason(0.10) is GateReason.UNDECIDED
    assert found.ending[0] is GateReason.REGRESSION
    assert found.ending[1].startswith("mix of the domains: -12.0% (97.5 % interval -13.")


def test_a_refusal_is_the_verdict_of_the_whole() -> None:
    found = verdict(refusal=(GateReason.SAME_SERVER, "both addresses are one server"))
    document = found.as_dict()
    assert (document["verdict"], document["reason"], document["exit_code"]) == ("not_measurable", "same_server", 13)
    assert document["text"] == "both addresses are one server"


def test_the_difference_of_the_identities_is_told_in_words() -> None:
    other = Identity(engine="vllm", version="0.30.0", model="my-model", drafter="org/other", k=3)
    assert verdict(candidate=GateSide("http://b:8000", other)).as_dict()["difference"] == (
        "version 0.29.1 → 0.30.0, drafter org/drafter → org/other"
    )
    assert "nothing that the servers show; " in verdict().as_dict()["difference"]
    assert verdict(candidate=GateSide("http://b:8000", None)).as_dict()["difference"].startswith("unknown")


def test_the_document_is_json_with_the_prompt_that_fell_most_first() -> None:
    measured = GateDomain(
        "math", GateReason.NO_REGRESSION, "fine", 24, "hash", "request", looks=(look(-0.01),),
        values={"q1": (2.0, 2.0), "q2": (2.0, 1.5)},
    )  # fmt: skip
    document = json.loads(json.dumps(verdict(measured).as_dict()))
    assert (document["prompts_valid"], document["prompts_total"]) == (2, 24)
    assert document["domains"][0]["per_prompt"][0] == {
        "question_id": "q2", "reference": 2.0, "candidate": 1.5, "change": -0.25,
    }  # fmt: skip
    assert document["mix"]["change"] == pytest.approx(-0.01)
    assert document["thresholds"]["looks_after_pairs"] == [2, 3, 4, 5]
