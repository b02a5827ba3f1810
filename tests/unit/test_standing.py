"""The word that `routes` says of a domain."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.core.standing import standing, worst_change

VALID, LATER_INVALID, EARLIER_INVALID = (
    {"id": 5, "invalid_reason": None},
    {"id": 6, "invalid_reason": "unreachable"},
    {"id": 4, "invalid_reason": "busy"},
)


def word(*outcomes: str, **changes: Any) -> str:
    verdicts = [{"outcome": outcome, "change": None} for outcome in outcomes]
    known = {"incidents": (), "valid_run": VALID, "invalid_run": None, "verdicts": verdicts}
    return standing(**{**known, **changes})


def test_a_judged_run_that_tripped_nothing_is_ok() -> None:
    assert word("ok", "invalid") == "ok"


@pytest.mark.parametrize("outcomes", [[], ["invalid"], ["invalid", "invalid"]])
def test_a_run_that_no_rule_could_judge_is_not_ok(outcomes: list[str]) -> None:
    assert word(*outcomes) == "not judged"


def test_one_tripped_rule_is_enough() -> None:
    assert word("ok", "tripped") == "tripped"


def test_an_invalid_run_after_the_valid_one_says_why() -> None:
    assert word("ok", invalid_run=LATER_INVALID) == "unreachable"
    assert word("ok", invalid_run=EARLIER_INVALID) == "ok"
    assert word(valid_run=None, invalid_run=EARLIER_INVALID) == "busy"


def test_an_open_incident_comes_before_everything() -> None:
    assert word("ok", incidents={"acceptance"}, invalid_run=LATER_INVALID) == "INCIDENT"
    assert word("ok", incidents={"acceptance", "stale"}) == "INCIDENT"


def test_a_route_that_is_only_not_measured_is_stale() -> None:
    assert word("ok", incidents={"stale"}, invalid_run=LATER_INVALID) == "STALE"


def test_the_change_shown_is_the_largest_fall() -> None:
    assert worst_change([{"change": -0.02}, {"change": None}, {"change": -0.31}]) == -0.31
    assert worst_change([{"change": None}]) is None


def test_above_the_floor_is_not_ok_where_a_rule_with_a_drop_could_not_judge() -> None:
    floor = {"outcome": "ok", "change": None, "below": 0.05}
    drop = {"outcome": "invalid", "change": None, "below": None}
    known: dict[str, Any] = {"incidents": (), "valid_run": VALID, "invalid_run": None}
    assert standing(**known, verdicts=[floor, drop]) == "not judged"
    assert standing(**known, verdicts=[floor]) == "ok"
    assert standing(**known, verdicts=[{**floor, "outcome": "tripped"}, drop]) == "tripped"
