"""An absolute rule: when a run is below its floor, when that is confirmed, and when nothing may be said."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.core.floors import FirstPosition, Floor, confirm_floor, judge_floor
from monitor.core.judge import JUDGE_VERSION, Outcome

FLOOR = Floor(0.05)


def first_position(survival: float | None = 0.01, run_id: int = 1, **changes: Any) -> FirstPosition:
    return FirstPosition(run_id, survival, **{"steps": 1000, "prompts": 24, "source": "request", **changes})


@pytest.mark.parametrize(
    ("survival", "outcome", "well"),
    [
        (0.0, Outcome.TRIPPED, False),
        (0.0499, Outcome.TRIPPED, False),
        (0.05, Outcome.OK, False),
        (0.0999, Outcome.OK, False),
        (0.10, Outcome.OK, True),
        (0.7, Outcome.OK, True),
    ],
)
def test_a_run_trips_below_the_floor_and_is_well_from_twice_the_floor_on(
    survival: float, outcome: Outcome, well: bool
) -> None:
    verdict = judge_floor(first_position(survival), FLOOR)
    assert (verdict.outcome, verdict.above_resolve_line, verdict.value) == (outcome, well, survival)


def test_a_verdict_has_a_floor_and_no_baseline() -> None:
    assert judge_floor(first_position(0.01, 31), FLOOR).as_dict() == {
        "outcome": "tripped",
        "reason": "below the floor",
        "metric": "first_position_survival",
        "drop": None,
        "below": 0.05,
        "baseline_id": None,
        "run_ids": [31],
        "source": "request",
        "value": 0.01,
        "baseline_value": None,
        "prompts": 24,
        "change": None,
        "change_interval": None,
        "standard_error": None,
        "p_drop": None,
        "trip_change": None,
        "resolve_change": None,
        "above_resolve_line": False,
        "value_interval": None,
        "speedup_ids": [],
        "accumulated": None,
        "accumulated_over": [],
        "judge_version": JUDGE_VERSION,
    }


def test_confirmed_when_both_fresh_runs_are_below_too_with_the_share_of_all_their_steps() -> None:
    fresh = [first_position(0.03, 2, steps=3000, prompts=20), first_position(0.02, 3)]
    verdict = confirm_floor(first_position(0.01), fresh, FLOOR)
    assert (verdict.outcome, verdict.run_ids, verdict.prompts) == (Outcome.CONFIRMED, (1, 2, 3), 20)
    assert verdict.value == pytest.approx((0.03 * 3000 + 0.02 * 1000 + 0.01 * 1000) / 5000)


def test_one_fresh_run_that_is_not_below_refutes_the_trip() -> None:
    verdict = confirm_floor(first_position(0.0), [first_position(0.0, 2), first_position(0.06, 3)], FLOOR)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_CONFIRMED, "a confirmation run is not below the floor")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (first_position(0.0, invalid_reason="busy"), "run 1 is invalid: busy"),
        (
            first_position(None, source="stream"),
            "run 1 does not show survival by position: its source stream counts none",
        ),
        (first_position(0.0, steps=0), "run 1 does not show survival by position: its source request counts none"),
        (first_position(0.0, prompts=11), "only 11 valid prompts, 12 are needed"),
    ],
)
def test_what_cannot_be_judged_is_invalid_and_neither_well_nor_ill(run: FirstPosition, reason: str) -> None:
    for verdict in (judge_floor(run, FLOOR), confirm_floor(first_position(0.0), [first_position(0.0), run], FLOOR)):
        assert (verdict.outcome, verdict.reason, verdict.above_resolve_line) == (Outcome.INVALID, reason, None)
        assert (verdict.value, verdict.below) == (None, 0.05)
