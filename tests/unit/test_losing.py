"""Rules on measured speedup: three measurements in a row decide, one never does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.core.cost import cost_per_day
from monitor.core.judge import Outcome
from monitor.core.losing import Measurement, judge_losing, judge_loss


def measured(ratio: float, number: int = 1, doubt: float = 0.03) -> Measurement:
    return Measurement(number, ratio, ratio * (1 - doubt), ratio * (1 + doubt), 24)


REFERENCE = [measured(1.8, number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("ratio", "outcome", "well"),
    [(0.90, Outcome.TRIPPED, False), (0.99, Outcome.OK, False), (1.01, Outcome.OK, True), (1.5, Outcome.OK, True)],
)
def test_speculation_loses_where_the_whole_interval_is_below_the_floor(
    ratio: float, outcome: Outcome, well: bool
) -> None:
    verdict = judge_losing(measured(ratio), 1.0, [])
    assert (verdict.outcome, verdict.above_resolve_line) == (outcome, well)


def test_three_in_a_row_confirm_that_speculation_loses() -> None:
    low = [measured(0.9, number) for number in (1, 2, 3)]
    assert judge_losing(low[1], 1.0, low[:1]).outcome is Outcome.TRIPPED
    verdict = judge_losing(low[2], 1.0, low[:2])
    assert (verdict.outcome, verdict.speedup_ids, verdict.value) == (Outcome.CONFIRMED, (1, 2, 3), 0.9)
    assert verdict.value_interval == pytest.approx((0.873, 0.927))
    assert judge_losing(low[2], 1.0, [low[0], measured(1.1, 2)]).outcome is Outcome.TRIPPED


def test_an_invalid_measurement_decides_nothing() -> None:
    invalid = Measurement(9, invalid_reason="busy")
    verdicts = judge_losing(invalid, 1.0, []), judge_loss(invalid, 0.15, REFERENCE, [])
    assert {(verdict.outcome, verdict.reason) for verdict in verdicts} == {
        (Outcome.INVALID, "speedup 9 is invalid: busy")
    }


def test_a_loss_of_speedup_is_held_against_the_first_three_measurements() -> None:
    low = [measured(1.4, number) for number in (7, 8, 9)]
    first = judge_loss(low[0], 0.15, REFERENCE, REFERENCE[1:])
    assert (first.outcome, first.baseline_value) == (Outcome.TRIPPED, pytest.approx(1.8))
    verdict = judge_loss(low[2], 0.15, REFERENCE, low[:2])
    assert (verdict.outcome, verdict.speedup_ids) == (Outcome.CONFIRMED, (7, 8, 9))
    assert verdict.estimate is not None
    assert verdict.estimate.change == pytest.approx(1.4 / 1.8 - 1)


def test_three_that_trip_but_pool_to_less_than_the_drop_are_not_confirmed() -> None:
    low = [measured(1.8 * 0.87, number) for number in (7, 8, 9)]
    assert judge_loss(low[2], 0.15, REFERENCE, low[:2]).outcome is Outcome.TRIPPED


def test_a_loss_within_the_doubt_of_the_measurements_does_not_trip() -> None:
    verdict = judge_loss(measured(1.4, 9, doubt=0.2), 0.15, REFERENCE, [])
    assert (verdict.outcome, verdict.reason) == (Outcome.OK, "not past the trip line with significance")


@pytest.mark.parametrize("reference", [REFERENCE[:2], [*REFERENCE[:2], measured(1.4, 9)]])
def test_until_there_are_three_others_nothing_is_held_against_them(reference: list[Measurement]) -> None:
    verdict = judge_loss(measured(1.4, 9), 0.15, reference, [])
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason.startswith("the first 3 measurements since the baseline was approved")


def test_the_reference_itself_does_not_confirm_a_loss() -> None:
    low = [*REFERENCE[:2], replace(REFERENCE[2], ratio=1.0, low=0.97, high=1.03)]
    verdict = judge_loss(measured(0.9, 4), 0.15, low, low[1:])
    assert verdict.outcome is Outcome.TRIPPED


def test_what_losing_costs_a_day_needs_a_price() -> None:
    assert cost_per_day(0.9, 2.0, 4) == pytest.approx(0.1 * 2 * 4 * 24)
    assert cost_per_day(0.9, 2.0, None) == pytest.approx(4.8)
    assert cost_per_day(0.9, None, 4) is None
    assert cost_per_day(1.2, 2.0, 4) is None
