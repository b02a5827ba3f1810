"""The speculation profile: both conventions of a rate, one mean, and what its own checks say."""

from __future__ import annotations

import pytest

from monitor.exchange.profile import PooledRun, speculation_profile

IDENTITY = {"method": "eagle3", "drafter": "/models/org/drafter/", "target": None, "root": "org/target", "k": 3}
CODING = PooledRun("coding", 100, (60, 30, 0), 2.0, 10)
MATH = PooledRun("math", 300, (150, 60, 30), 1.7, 30)


def test_rates_are_pooled_over_steps_in_both_conventions() -> None:
    profile = speculation_profile([CODING, MATH], IDENTITY, 3, {})
    assert profile["marginal_accept_rates"] == [0.525, 0.225, 0.075]
    assert profile["conditional_accept_rates"] == [0.525, round(90 / 210, 6), round(30 / 90, 6)]
    assert (profile["mean_accept_length"], profile["mean_accept_length_per_request"]) == (1.825, 1.775)
    assert profile["accept_length_by_k"] == {"3": 1.825}
    assert profile["per_category"] == {"coding": {"mean_accept_length": 1.9}, "math": {"mean_accept_length": 1.8}}


def test_the_histogram_is_by_acceptance_length_with_the_bonus_token() -> None:
    profile = speculation_profile([CODING], IDENTITY, 3, {})
    assert profile["acceptance_length_histogram"] == {"1": 40, "2": 30, "3": 30}
    assert profile["marginal_accept_rates"] == [0.6, 0.3, 0.0]
    assert profile["conditional_accept_rates"] == [0.6, 0.5, 0.0]


def test_a_checkpoint_is_named_without_the_path_of_a_machine() -> None:
    profile = speculation_profile([CODING], IDENTITY, 3, {"source": "request"})
    assert (profile["draft_checkpoint"], profile["target_model"]) == ({"id": "org/drafter"}, {"id": "org/target"})
    assert (profile["schema_version"], profile["measured"], profile["num_speculative_tokens"]) == ("1.0", True, 3)
    assert profile["measurement_conditions"] == {"source": "request"}
    assert speculation_profile([CODING], {}, 3, {})["draft_checkpoint"] is None


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("eagle3", "chain_analytic"),
        ("draft_model", "chain_analytic"),
        ("mtp", "measured_per_k"),
        (None, "measured_per_k"),
    ],
)
def test_only_chains_tell_of_smaller_draft_lengths(method: str | None, model: str) -> None:
    assert speculation_profile([CODING], {"method": method}, 3, {})["accept_length_model"] == model


def test_a_vector_cut_short_fails_its_own_check() -> None:
    whole = speculation_profile([MATH], IDENTITY, 3, {})["validation"]
    assert (whole["mean_consistency"]["passed"], whole["marginal_monotonicity"]["passed"]) == (True, True)
    short = speculation_profile([MATH], IDENTITY, 2, {})["validation"]["mean_consistency"]
    assert (short["implied_mean_accept_length"], short["reported_mean_accept_length"]) == (1.7, 1.8)
    assert (short["abs_delta"], short["passed"]) == (0.1, False)


def test_rates_that_rise_by_position_are_named() -> None:
    found = speculation_profile([PooledRun("coding", 10, (2, 3), 1.5, 1)], IDENTITY, 2, {})["validation"]
    assert found["marginal_monotonicity"] == {
        "passed": False,
        "violations": [{"position": 1, "value": 0.3, "previous": 0.2}],
    }
