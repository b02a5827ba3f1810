"""An absolute rule: when a run is below its floor, when that is confirmed, and when nothing may be said."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.core.break_even import BreakEven
from monitor.core.floors import Floor, PooledFigure, break_even_floor, confirm_floor, judge_floor, share_floor
from monitor.core.judge import JUDGE_VERSION, Outcome

FLOOR = share_floor(0.05)


def first_position(survival: float | None = 0.01, run_id: int = 1, **changes: Any) -> PooledFigure:
    return PooledFigure(run_id, survival, **{"steps": 1000, "prompts": 24, "source": "request", **changes})


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
        "break_even": None,
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
    verdict = confirm_floor([first_position(0.01), *fresh], [FLOOR] * 3)
    assert (verdict.outcome, verdict.run_ids, verdict.prompts) == (Outcome.CONFIRMED, (1, 2, 3), 20)
    assert verdict.value == pytest.approx((0.03 * 3000 + 0.02 * 1000 + 0.01 * 1000) / 5000)


def test_one_fresh_run_that_is_not_below_refutes_the_trip() -> None:
    verdict = confirm_floor([first_position(0.0), first_position(0.0, 2), first_position(0.06, 3)], [FLOOR] * 3)
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
def test_what_cannot_be_judged_is_invalid_and_neither_well_nor_ill(run: PooledFigure, reason: str) -> None:
    confirmed = confirm_floor([first_position(0.0), first_position(0.0), run], [FLOOR] * 3)
    for verdict in (judge_floor(run, FLOOR), confirmed):
        assert (verdict.outcome, verdict.reason, verdict.above_resolve_line) == (Outcome.INVALID, reason, None)
        assert (verdict.value, verdict.below) == (None, 0.05)


def yielded(value: float | None = 1.2, run_id: int = 1, **changes: Any) -> PooledFigure:
    return first_position(value, run_id, metric="acceptance_length", **changes)


def floor_at(value: float = 1.45, concurrency: int = 16) -> Floor:
    return break_even_floor(BreakEven(concurrency, value, value * 0.96, 5))


@pytest.mark.parametrize(
    ("value", "outcome", "well"),
    [(1.39, Outcome.TRIPPED, False), (1.40, Outcome.OK, False), (1.44, Outcome.OK, False), (1.45, Outcome.OK, True)],
)
def test_a_run_trips_below_the_whole_interval_of_the_break_even_and_is_well_from_it_on(
    value: float, outcome: Outcome, well: bool
) -> None:
    verdict = judge_floor(yielded(value), floor_at())
    assert (verdict.outcome, verdict.above_resolve_line, verdict.below) == (outcome, well, 1.45)
    assert verdict.break_even == {"basis": "modelled", "sweep_id": 5, "concurrency": 16, "low": 1.45 * 0.96}


def test_each_confirmation_is_held_against_the_break_even_at_its_own_load() -> None:
    runs = [yielded(1.2, 1), yielded(1.3, 2), yielded(1.2, 3)]
    assert confirm_floor(runs, [floor_at()] * 3).outcome is Outcome.CONFIRMED
    quiet = confirm_floor(runs, [floor_at(), floor_at(1.25, 4), floor_at()])
    assert (quiet.outcome, quiet.value) == (Outcome.NOT_CONFIRMED, pytest.approx(3.7 / 3))
    assert quiet.below == pytest.approx((1.45 + 1.25 + 1.45) / 3)


def test_without_a_sweep_nothing_is_passed() -> None:
    nothing = break_even_floor(BreakEven(4, problem="no sweep of chat: none is saved for it"))
    for verdict in (judge_floor(yielded(3.0), nothing), confirm_floor([yielded()] * 2, [floor_at(), nothing])):
        assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, "no sweep of chat: none is saved for it")
        assert (verdict.value, verdict.below, verdict.above_resolve_line) == (None, None, None)
        assert verdict.break_even == {"basis": "modelled", "sweep_id": None, "concurrency": 4, "low": None}
