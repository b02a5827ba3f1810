"""When a run trips, when a trip is confirmed, when a domain is well again, and when nothing may be said."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.judge import (
    JUDGE_VERSION,
    MIN_SHARED_PROMPTS,
    Comparability,
    Line,
    Outcome,
    Verdict,
    judge_confirmation,
    judge_run,
)
from monitor.core.records import Sampling
from tests.factories import COMPARABILITY, make_candidate, make_reference

LINE = Line("acceptance_length", 0.15)


def judged(length: float, baseline: float = 2.4) -> Verdict:
    return judge_run(make_candidate(length), make_reference(baseline), LINE)


def test_the_lines_of_a_15_percent_rule_are_at_11_15_and_7_percent() -> None:
    assert math.expm1(LINE.trip_log) == pytest.approx(-0.11)
    assert math.expm1(LINE.drop_log) == pytest.approx(-0.15)
    assert math.expm1(LINE.resolve_log) == pytest.approx(-0.07)


@pytest.mark.parametrize(
    ("lost", "outcome", "above_resolve_line"),
    [
        (-0.10, Outcome.OK, True),
        (0.00, Outcome.OK, True),
        (0.06, Outcome.OK, True),
        (0.08, Outcome.OK, False),
        (0.10, Outcome.OK, False),
        (0.12, Outcome.TRIPPED, False),
        (0.50, Outcome.TRIPPED, False),
    ],
)
def test_a_run_trips_past_the_trip_line_and_is_well_above_the_resolve_line(
    lost: float, outcome: Outcome, above_resolve_line: bool
) -> None:
    verdict = judged(2.4 * (1 - lost))
    assert (verdict.outcome, verdict.above_resolve_line) == (outcome, above_resolve_line)


def test_a_large_drop_of_a_few_prompts_is_not_significant_and_does_not_trip() -> None:
    values = [2.4] * 20 + [1.2] * 4
    verdict = judge_run(make_candidate(values), make_reference(2.4), LINE)
    assert verdict.estimate is not None
    assert verdict.estimate.mean == pytest.approx(4 * math.log(0.5) / 24)
    assert verdict.estimate.p_drop > 0.005
    assert verdict.outcome is Outcome.OK
    assert verdict.reason == "not past the trip line with significance"


def test_a_verdict_shows_what_it_rests_on() -> None:
    verdict = judge_run(make_candidate(2.0, id=31), make_reference(2.5), LINE)
    assert verdict.as_dict() == {
        "outcome": "tripped",
        "reason": "past the trip line and significant",
        "metric": "acceptance_length",
        "drop": 0.15,
        "below": None,
        "break_even": None,
        "baseline_id": 7,
        "run_ids": [31],
        "source": "request",
        "value": pytest.approx(2.0),
        "baseline_value": pytest.approx(2.5),
        "prompts": 24,
        "change": pytest.approx(-0.2),
        "change_interval": pytest.approx([-0.22645, -0.17264], abs=1e-5),
        "standard_error": pytest.approx(math.sqrt(0.02**2 / 24 + 0.015**2 * 1.1)),
        "p_drop": pytest.approx(0.0, abs=1e-6),
        "trip_change": pytest.approx(-0.11),
        "resolve_change": pytest.approx(-0.07),
        "above_resolve_line": False,
        "value_interval": None,
        "speedup_ids": [],
        "accumulated": None,
        "accumulated_over": [],
        "judge_version": JUDGE_VERSION,
    }


def test_the_values_shown_are_of_the_shared_prompts_so_that_their_ratio_is_the_change() -> None:
    baseline = {**{f"q{n:02}": 2.0 for n in range(12)}, **{f"old{n}": 8.0 for n in range(12)}}
    run = {**{f"q{n:02}": 1.9 for n in range(12)}, **{f"new{n}": 1.0 for n in range(12)}}
    verdict = judge_run(make_candidate(run), make_reference(baseline), LINE)
    assert (verdict.value, verdict.baseline_value) == pytest.approx((1.9, 2.0))
    assert verdict.estimate is not None
    assert verdict.estimate.change == pytest.approx(1.9 / 2.0 - 1)


@given(st.lists(st.floats(1, 4), min_size=12, max_size=40), st.floats(0.5, 1.5))
def test_scaling_every_prompt_of_a_run_is_seen_as_exactly_that_change(values: list[float], factor: float) -> None:
    scaled = [value * factor for value in values]
    verdict = judge_run(make_candidate(scaled), make_reference(values), LINE)
    assert verdict.estimate is not None
    assert verdict.estimate.change == pytest.approx(factor - 1)
    assert verdict.outcome is (Outcome.TRIPPED if factor < 0.85 else Outcome.OK) or 0.85 <= factor < 0.9


def test_without_a_baseline_a_run_is_never_well() -> None:
    verdict = judge_run(make_candidate(), None, LINE)
    assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, "no approved baseline")
    assert (verdict.baseline_id, verdict.run_ids, verdict.above_resolve_line) == (None, (1,), None)
    document = verdict.as_dict()
    assert [document[key] for key in ("prompts", "change", "change_interval", "standard_error", "p_drop")] == [None] * 5


def test_an_invalid_run_is_not_judged_whatever_its_numbers() -> None:
    verdict = judge_run(make_candidate(1.0, id=5, invalid_reason="busy"), make_reference(), LINE)
    assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, "run 5 is invalid: busy")
    assert verdict.baseline_id == 7


def test_too_few_shared_prompts_cannot_be_judged() -> None:
    verdict = judge_run(make_candidate(2.4, prompts=MIN_SHARED_PROMPTS - 1), make_reference(), LINE)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason == "only 11 prompts of acceptance_length shared with the baseline, 12 are needed"


def test_just_enough_shared_prompts_can_be_judged() -> None:
    assert judge_run(make_candidate(2.4, prompts=MIN_SHARED_PROMPTS), make_reference(), LINE).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"prompt_set_hash": "set-2"}, "prompt set set-2 is not the baseline's set-1"),
        ({"source": "stream"}, "source stream is not the baseline's request"),
        ({"k": 5}, "K 5 is not the baseline's 3"),
        ({"k": None}, "K None is not the baseline's 3"),
        ({"concurrency": 8}, "concurrency 8 is not the baseline's 4"),
        ({"sampling": {"seed": 1}}, f"sampling {{'seed': 1}} is not the baseline's {dict(COMPARABILITY.sampling)}"),
        ({"k": 5, "concurrency": 8}, "K 5 is not the baseline's 3; concurrency 8 is not the baseline's 4"),
    ],
)
def test_a_run_under_other_conditions_is_not_comparable_and_says_how(other: dict[str, object], reason: str) -> None:
    measured = Comparability(**{**vars(COMPARABILITY), **other})
    verdict = judge_run(make_candidate(1.2, comparability=measured), make_reference(), LINE)
    assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, f"not comparable: {reason}")


def confirmed(trip: float, first: float, second: float) -> Verdict:
    """The verdict on three runs that lost these shares."""
    runs = [make_candidate(2.4 * (1 - lost), id=number) for number, lost in enumerate((trip, first, second), 1)]
    return judge_confirmation(runs[0], runs[1:], make_reference(2.4), LINE)


def test_three_runs_past_the_drop_confirm_it() -> None:
    verdict = confirmed(0.20, 0.20, 0.20)
    assert (verdict.outcome, verdict.run_ids) == (Outcome.CONFIRMED, (1, 2, 3))
    assert verdict.reason == "pooled over the trip and its confirmations, at or past the drop"
    assert verdict.value == pytest.approx(1.92)
    assert verdict.above_resolve_line is False


def test_a_drop_exactly_as_large_as_the_rules_is_confirmed() -> None:
    assert confirmed(0.1500001, 0.15, 0.15).outcome is Outcome.CONFIRMED


def test_a_drop_that_is_real_but_smaller_than_the_rules_is_not_confirmed() -> None:
    verdict = confirmed(0.13, 0.13, 0.13)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_CONFIRMED, "the pooled drop is smaller than the rule's")


def test_fresh_runs_that_are_well_refute_even_a_catastrophic_trip() -> None:
    verdict = confirmed(0.60, 0.05, 0.05)
    assert verdict.outcome is Outcome.NOT_CONFIRMED
    assert verdict.reason == "the confirmation runs are not past the trip line"


def test_confirmations_count_by_their_mean_so_one_may_be_milder() -> None:
    assert confirmed(0.25, 0.05, 0.25).outcome is Outcome.CONFIRMED


def test_pooling_three_runs_is_surer_than_one() -> None:
    three, one = confirmed(0.2, 0.2, 0.2).estimate, judged(2.4 * 0.8).estimate
    assert three is not None
    assert one is not None
    assert three.standard_error < one.standard_error


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_run_that_cannot_be_judged_leaves_the_confirmation_undecided(position: int) -> None:
    runs = [make_candidate(1.8, id=number) for number in (1, 2, 3)]
    runs[position] = make_candidate(1.8, id=9, comparability=Comparability(**{**vars(COMPARABILITY), "k": 4}))
    verdict = judge_confirmation(runs[0], runs[1:], make_reference(), LINE)
    assert (verdict.outcome, verdict.run_ids) == (Outcome.INVALID, (9,))
    assert verdict.reason == "not comparable: K 4 is not the baseline's 3"


def test_a_warm_run_is_never_compared_with_a_cold_baseline() -> None:
    warm = replace(COMPARABILITY, sampling=Sampling(cache="warm").as_dict())
    (difference,) = COMPARABILITY.differences(warm)
    assert difference.startswith("sampling ")


def test_an_acceptance_rate_without_one_k_is_not_compared() -> None:
    without = replace(COMPARABILITY, k=None)
    reference = replace(make_reference(0.5), comparability=without)
    candidate = make_candidate(0.3, comparability=without)
    verdict = judge_run(candidate, reference, Line("acceptance_rate", 0.15))
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason == "not comparable: acceptance rates have no meaning without one K, and K is not known"
    assert judge_run(candidate, reference, Line("accepted_per_step", 0.15)).outcome is Outcome.TRIPPED
