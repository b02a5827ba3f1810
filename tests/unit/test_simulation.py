"""How often the shipped rules are wrong, by simulation of the product's own judge. Seeded: it fails or never does.

The noise is that of docs/statistics.md: per prompt and run 10 % (Student t5), a shock common to all prompts of a run of
1.5 % (5 % in one run of a hundred), baselines of 10 runs, 24 prompts. A band holds when its confidence bound does.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from monitor.core.noise import (
    PAGED,
    QUIET,
    WARNED,
    Noise,
    Setting,
    at_most,
    decide,
    detection,
    false_rates,
    outcomes,
)
from tests.factories import make_reference

LOOKS_PER_YEAR = 5 * 365 * 24 * 60 / 40
"""Of a route with five domains probed every 40 minutes: 65,700."""


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(2026 + seed)


def test_false_pages_are_at_most_a_tenth_per_route_and_year() -> None:
    """41 route-years of looks are enough for a bound of 0.1 when not one of them pages; hence their number."""
    rate = false_rates([(Noise(), Setting())], LOOKS_PER_YEAR, 2_700_000, generator(0))[PAGED]
    assert rate.per_year == 0
    assert rate.at_most <= 0.1


def test_a_disturbance_that_stays_until_the_confirmations_costs_what_the_documents_say() -> None:
    """That is why confirmations are spaced: no number of runs within one disturbance tells it from a drop."""
    stays = Noise(persistence=1.0, persistence_between=1.0)
    rates = false_rates([(stays, Setting())], LOOKS_PER_YEAR, 500_000, generator(1))
    assert 0.2 < rates[PAGED].per_year < 0.9
    assert 8 < rates[WARNED].per_year < 16


def test_a_disturbance_that_fades_goes_on_fading_until_the_second_confirmation() -> None:
    """What is as it was at the first would page more often."""
    fading, staying = (Noise(persistence=0.8, persistence_between=between) for between in (0.8, 1.0))
    rare = {"prompt_sd": 0.05, "run_sd": 0.08}  # so that few looks show it
    rates = [
        false_rates([(replace(noise, **rare), Setting())], LOOKS_PER_YEAR, 40_000, generator(6))[PAGED].per_year
        for noise in (fading, staying)
    ]
    assert 0 < 1.1 * rates[0] < rates[1]


@pytest.mark.parametrize(
    ("drop", "what", "probes", "least"),
    [(0.20, PAGED, 1, 0.99), (0.17, PAGED, 3, 0.99), (0.15, WARNED, 1, 0.95)],
    ids=["20 percent paged at once", "17 percent paged in three", "15 percent warned at once"],
)
def test_a_true_drop_is_told_as_soon_as_promised(drop: float, what: int, probes: int, least: float) -> None:
    trials = 4000
    found = outcomes(Noise(), Setting(), drop, trials, probes, generator(round(drop * 100)))
    missed = round((1 - detection(found, what, probes)) * trials)
    assert 1 - at_most(missed, trials) >= least


@pytest.mark.parametrize(
    ("drop", "most_paged", "most_warned"), [(0.05, 0.0, 0.01), (0.08, 0.002, 0.12), (0.12, 0.06, 0.9)]
)
def test_a_smaller_drop_than_the_rules_is_seldom_told(drop: float, most_paged: float, most_warned: float) -> None:
    found = outcomes(Noise(), Setting(), drop, 2000, 1, generator(round(drop * 100)))
    assert detection(found) <= most_paged
    assert detection(found, WARNED) <= most_warned


def test_without_a_warning_rule_nothing_is_warned() -> None:
    found = outcomes(Noise(), Setting(warn_drop=None), 0.15, 300, 1, generator(3))
    assert set(np.unique(found)) == {QUIET, PAGED}


def test_more_prompts_see_a_drop_more_surely() -> None:
    noise = Noise(prompt_sd=0.3)
    few, many = (detection(outcomes(noise, Setting(prompts=count), 0.20, 600, 1, generator(4))) for count in (12, 48))
    assert few < 0.5 < many


def test_a_look_that_is_not_past_the_trip_line_is_quiet_whatever_its_spread() -> None:
    """What the simulation does not show the judge, the judge would not have told."""
    reference = make_reference({str(number): 1.0 for number in range(24)})
    just_above = np.full(24, math.log(1 - 0.10 * 11 / 15) + 2e-4, dtype=np.float32)
    assert decide(just_above, iter([just_above - 0.2] * 2), reference, Setting()) == QUIET
    just_below = just_above - np.float32(4e-4)
    assert decide(just_below, iter([just_below - 0.2] * 2), reference, Setting()) == WARNED


def test_an_event_that_never_came_has_a_bound_of_nearly_four_in_its_trials() -> None:
    assert at_most(0, 1000) == pytest.approx(1 - 0.025 ** (1 / 1000))
    assert at_most(0, 1000) == pytest.approx(3.7 / 1000, rel=0.01)
    assert at_most(10, 10) == 1.0


def test_the_noise_is_what_it_says() -> None:
    drawn = generator(5)
    assert Noise().prompts((4000, 24), drawn).std() == pytest.approx(0.10, rel=0.03)
    shocks = Noise().shocks((400_000,), drawn)
    assert np.median(np.abs(shocks)) == pytest.approx(0.6745 * 0.015, rel=0.02)
    assert shocks.std() == pytest.approx(math.sqrt(0.99 * 0.015**2 + 0.01 * 0.05**2), rel=0.02)
    assert (np.abs(shocks) > 0.10).mean() == pytest.approx(0.01 * 0.0455, rel=0.3)
