"""The paired test and the baseline's values, against numbers worked out by hand or by scipy's own test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from monitor.core.statistics import (
    RUN_SIGMA_FLOOR,
    RUN_SIGMA_UNKNOWN,
    baseline_values,
    paired_estimate,
    pooled_differences,
)

lengths = st.floats(1.0, 9.0)
runs_of_values = st.lists(st.dictionaries(st.sampled_from("abcdef"), lengths, min_size=1), min_size=1, max_size=8)


def test_log_ratios_pair_the_prompts_both_sides_have() -> None:
    assert pooled_differences([{"b": 2.0, "a": 3.0, "z": 9.0}], {"a": 2.0, "b": 4.0, "c": 1.0}) == pytest.approx(
        [math.log(1.5), math.log(0.5)]
    )


def test_with_no_run_to_run_noise_beyond_the_floor_the_test_is_the_plain_paired_t_test() -> None:
    differences = [-0.3, -0.1, -0.25, -0.05, -0.2, -0.15]
    found = paired_estimate(differences, run_sigma=0.0, baseline_runs=10**9, runs=10**9)
    expected = stats.ttest_1samp(differences, 0.0, alternative="less")
    interval = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert found.n == 6
    assert found.mean == pytest.approx(-0.175)
    assert found.p_drop == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_the_baselines_run_to_run_spread_widens_the_error() -> None:
    differences = [-0.1, 0.1, -0.1, 0.1]
    found = paired_estimate(differences, run_sigma=0.05, baseline_runs=10, runs=2)
    spread = math.sqrt(4 * 0.01 / 3)
    assert found.standard_error == pytest.approx(math.sqrt(spread**2 / 4 + 0.05**2 * (1 / 2 + 1 / 10)))


def test_replays_that_repeat_exactly_are_not_believed_to_be_free_of_noise() -> None:
    found = paired_estimate([-0.01] * 24, run_sigma=0.0, baseline_runs=10)
    assert found.standard_error == pytest.approx(math.sqrt(0.02**2 / 24 + 0.01**2 * 1.1))


def test_a_change_is_the_fraction_lost() -> None:
    found = paired_estimate([math.log(0.85)] * 24, run_sigma=0.015, baseline_runs=10)
    assert found.change == pytest.approx(-0.15)
    low, high = found.change_interval
    assert low < -0.15 < high
    assert (low, high) == pytest.approx((math.expm1(found.low), math.expm1(found.high)))


@pytest.mark.parametrize("differences", [[], [-0.2]])
def test_one_prompt_is_no_sample(differences: list[float]) -> None:
    with pytest.raises(ValueError, match=f"at least two prompts, got {len(differences)}"):
        paired_estimate(differences, 0.015, 10)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.floats(0.01, 0.5))
def test_the_interval_holds_the_mean_and_a_lower_mean_is_a_smaller_p(differences: list[float], less: float) -> None:
    found = paired_estimate(differences, 0.015, 10)
    lower = paired_estimate([d - less for d in differences], 0.015, 10)
    assert found.low < found.mean < found.high
    assert lower.mean == pytest.approx(found.mean - less)
    assert lower.p_drop <= found.p_drop
    assert 0 <= found.p_drop <= 1


def test_pooling_averages_each_prompt_over_the_runs_that_have_it() -> None:
    baseline = {"a": 2.0, "b": 2.0, "c": 2.0}
    pooled = pooled_differences([{"a": 1.0, "b": 2.0}, {"a": 4.0}], baseline)
    assert pooled == pytest.approx([(math.log(0.5) + math.log(2)) / 2, 0.0])


def test_a_baseline_is_the_geometric_mean_of_its_runs() -> None:
    found = baseline_values([{"a": 2.0, "b": 1.0}, {"a": 4.5, "b": 1.0}])
    assert found.values == pytest.approx({"a": 3.0, "b": 1.0})
    assert found.spreads == pytest.approx({"a": math.log(4.5 / 2) / math.sqrt(2), "b": 0.0})
    assert found.runs == 2


def test_the_run_to_run_spread_is_that_of_whole_runs() -> None:
    shifts = [-0.04, 0.0, 0.04]
    found = baseline_values([{"a": 2 * math.exp(s), "b": 3 * math.exp(s)} for s in shifts])
    assert found.run_sigma == pytest.approx(0.04)


def test_runs_that_agree_perfectly_still_have_the_least_spread() -> None:
    assert baseline_values([{"a": 2.0}, {"a": 2.0}, {"a": 2.0}]).run_sigma == RUN_SIGMA_FLOOR


def test_one_run_says_nothing_of_the_spread_so_it_is_assumed() -> None:
    assert baseline_values([{"a": 2.0}]).run_sigma == RUN_SIGMA_UNKNOWN


def test_a_prompt_missing_from_more_than_half_of_the_runs_is_left_out() -> None:
    runs = [{"a": 2.0, "b": 2.0, "c": 2.0}, {"a": 2.0, "b": 2.0}, {"a": 2.0}, {"a": 2.0}]
    assert list(baseline_values(runs).values) == ["a", "b"]


def test_a_run_that_shares_no_kept_prompt_has_no_say_in_the_spread() -> None:
    runs = [{"a": 2.0}, {"a": 2.0}, {"a": 2.0}, {"z": 9.0}]
    found = baseline_values(runs)
    assert (found.values, found.run_sigma, found.runs) == ({"a": pytest.approx(2.0)}, RUN_SIGMA_FLOOR, 4)


def test_a_baseline_of_no_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        baseline_values([])


@given(runs_of_values)
def test_every_reference_lies_between_the_lowest_and_highest_run(runs: list[dict[str, float]]) -> None:
    found = baseline_values(runs)
    for question, value in found.values.items():
        seen = [run[question] for run in runs if question in run]
        assert 2 * len(seen) >= len(runs)
        assert min(seen) * (1 - 1e-9) <= value <= max(seen) * (1 + 1e-9)
    assert found.run_sigma >= RUN_SIGMA_FLOOR
    assert found.values.keys() == found.spreads.keys()


def test_the_estimate_is_honest_where_nothing_changed() -> None:
    """Seeded: 2,000 looks of 24 prompts under the noise it assumes page at p < .005 in at most 1 percent."""
    generator = np.random.default_rng(20260302)
    looks = generator.normal(0, 0.1, (2000, 24)) + generator.normal(0, 0.015 * math.sqrt(1.1), (2000, 1))
    significant = sum(paired_estimate(list(look), 0.015, 10).p_drop < 0.005 for look in looks)
    assert significant <= 20
