"""A slow leak accumulates over runs; noise does not. Seeded: it fails or never does."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from monitor.core.judge import Candidate, Outcome, Reference
from monitor.core.leak import ALLOWANCE, LIMIT, NOTHING, Accumulated, Look, accumulate, judge_leak
from monitor.core.noise import Noise
from monitor.core.statistics import baseline_values
from tests.factories import COMPARABILITY, make_candidate, make_reference

METRIC = "acceptance_length"


def look(below: float, run_id: int = 1) -> Look:
    """A run this many standard errors below its baseline."""
    return Look(run_id, math.expm1(-below * 0.02), 0.02)


def delay(leak: float, generator: np.random.Generator) -> int:
    """Runs until a leak of so many standard errors is told."""
    found: list[Look] = []
    for number in count(1):
        found.append(look(generator.normal(leak)))
        if accumulate(found).sum >= LIMIT:
            return number
    raise AssertionError


def test_what_lies_below_the_baseline_adds_up_less_the_allowance() -> None:
    found = accumulate([look(3, 1), look(2, 2), look(4, 3)])
    assert found.sum == pytest.approx(3 + 2 + 4 - 3 * ALLOWANCE)
    assert found.run_ids == (1, 2, 3)


def test_what_is_not_below_takes_away_and_a_new_sum_begins_at_nothing() -> None:
    assert accumulate([look(3, 1), look(-1, 2)]) == Accumulated()
    assert accumulate([look(3, 1), look(-1, 2), look(2, 3)]).run_ids == (3,)


def test_one_run_however_low_is_no_leak_nor_are_two() -> None:
    assert accumulate([look(40), look(40)]).sum < LIMIT
    assert accumulate([look(40)] * 3).sum == LIMIT


def test_a_leak_of_weeks_is_over_as_soon_as_one_just_found() -> None:
    assert accumulate([look(3)] * 100).sum == LIMIT
    assert accumulate([*[look(3)] * 100, *[look(0)] * 4]).sum > 0
    assert accumulate([*[look(3)] * 100, *[look(0)] * 5]).sum == 0


@pytest.mark.parametrize(("leak", "least", "most"), [(3, 5, 6.5), (2, 12, 17)])
def test_the_delay_is_as_documented(leak: float, least: float, most: float) -> None:
    generator = np.random.default_rng(2026)
    assert least < np.mean([delay(leak, generator) for _ in range(400)]) < most


def test_without_a_leak_hundred_thousand_runs_accumulate_to_the_limit_less_than_five_times() -> None:
    generator = np.random.default_rng(2027)
    found, alarms = NOTHING, 0
    for below in generator.normal(size=100_000):
        found = accumulate([look(below)], found)
        if found.sum >= LIMIT:
            found, alarms = NOTHING, alarms + 1
    assert alarms < 5


def leaking(drop: float, looks: int, generator: np.random.Generator) -> int | None:
    """The run that the judge of a route with the noise of docs/statistics.md calls leaking, None for none of them."""
    noise, prompts = Noise(), 24

    def runs(number: int, fallen: float) -> list[dict[str, float]]:
        logs = noise.prompts((number, prompts), generator) + noise.shocks((number, 1), generator) + fallen
        return [{str(n): math.exp(log) for n, log in enumerate(run.tolist())} for run in logs]

    made = baseline_values(runs(10, 0.0))
    reference = Reference(1, COMPARABILITY, made.values, made.run_sigma, made.runs)
    earlier: list[Look] = []
    for number, values in enumerate(runs(looks, math.log1p(-drop)), 1):
        verdict = judge_leak(Candidate(number, COMPARABILITY, values), reference, METRIC, earlier)
        if verdict.outcome is Outcome.CONFIRMED:
            return number
        assert verdict.estimate is not None
        earlier.append(Look(number, verdict.estimate.change, verdict.estimate.standard_error))
    return None


def test_a_loss_of_eight_percent_that_trips_no_page_is_told_within_a_day_and_no_loss_never() -> None:
    generator = np.random.default_rng(2028)
    assert [leaking(0.0, 100, generator) for _ in range(40)] == [None] * 40
    found = [leaking(0.08, 36, generator) for _ in range(100)]
    told = [number for number in found if number is not None]
    assert len(told) >= 95
    assert 5 <= np.median(told) <= 10


def test_the_verdict_says_what_has_accumulated_over_which_runs_and_asks_for_no_confirmation() -> None:
    reference = make_reference(2.4)
    earlier: list[Look] = []
    for number in (1, 2, 3):
        verdict = judge_leak(make_candidate(2.2, id=number), reference, METRIC, earlier)
        assert verdict.estimate is not None
        earlier.append(Look(number, verdict.estimate.change, verdict.estimate.standard_error))
    assert (verdict.outcome, verdict.accumulated, verdict.accumulated_over) == (Outcome.CONFIRMED, LIMIT, (1, 2, 3))
    assert (verdict.run_ids, verdict.first_run_id, verdict.drop) == ((3,), 1, None)
    assert verdict.above_resolve_line is False
    well = judge_leak(make_candidate(2.4, id=9), reference, METRIC, [])
    assert (well.outcome, well.accumulated, well.above_resolve_line) == (Outcome.OK, 0.0, True)


def test_a_run_that_cannot_be_judged_leaves_what_has_accumulated_as_it_is() -> None:
    verdict = judge_leak(make_candidate(2.2, invalid_reason="busy"), make_reference(2.4), METRIC, [look(4)])
    assert (verdict.outcome, verdict.accumulated) == (Outcome.INVALID, None)
    assert judge_leak(make_candidate(2.2), None, METRIC, []).reason == "no approved baseline"
