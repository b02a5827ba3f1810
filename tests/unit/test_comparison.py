"""Two runs beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.core.comparison import compare
from tests.factories import COMPARABILITY, DOMAIN, make_candidate

SAME = (DOMAIN, DOMAIN)


def test_the_change_is_paired_by_prompt_and_has_an_interval() -> None:
    found = compare(make_candidate(2.0), make_candidate(1.8, id=2), SAME)
    assert found.estimate is not None
    assert found.estimate.change == pytest.approx(-0.1)
    low, high = found.estimate.change_interval
    assert low < -0.1 < high < 0
    assert found.as_dict()["comparable"]


def test_the_prompt_that_fell_most_is_first() -> None:
    now = make_candidate([2.4] * 23 + [1.2], id=2)
    first = compare(make_candidate(2.4), now, SAME).as_dict()["per_prompt"][0]
    assert first == {"question_id": "q23", "before": 2.4, "now": 1.2, "change": -0.5}


def test_prompts_that_only_one_run_has_do_not_count() -> None:
    assert compare(make_candidate(2.4), make_candidate(2.4, id=2, prompts=20), SAME).as_dict()["prompts"] == 20


@pytest.mark.parametrize(
    ("now", "domains", "why"),
    [
        (make_candidate(id=2), (DOMAIN, "math"), "domain math is not coding"),
        (make_candidate(id=2, invalid_reason="busy"), SAME, "run 2 is invalid: busy"),
        (make_candidate(id=2, comparability=replace(COMPARABILITY, k=5)), SAME, "K 5 is not run 1's 3"),
        (make_candidate(id=2, values={"q00": 2.0}), SAME, "they share 1 prompts with a value, 2 are needed"),
    ],
)
def test_runs_that_are_not_comparable_say_why_and_have_no_change(now, domains, why) -> None:  # type: ignore[no-untyped-def]
    document = compare(make_candidate(), now, domains).as_dict()
    assert (document["comparable"], document["differences"]) == (False, [why])
    assert (document["change"], document["per_prompt"]) == (None, [])
