"""What settings give on a route's own noise, and which of them keep the promises."""

from __future__ import annotations

import numpy as np

from monitor.core.noise import PAGED, WARNED, Noise, Setting
from monitor.core.promises import Case, detections, keeping_settings, route_false_rates

QUIET = Case(Noise(prompt_sd=0.05, run_sd=0.005), Setting(prompts=36))
LOUD = Case(Noise(prompt_sd=0.25, run_sd=0.015), Setting(prompts=24))
HOPELESS = Case(Noise(prompt_sd=0.10, run_sd=0.12), Setting(prompts=24))
YEAR = 2 * 13_140


def generator() -> np.random.Generator:
    return np.random.default_rng(11)


def test_a_quiet_route_sees_every_drop_past_its_rule() -> None:
    rows = detections(QUIET, generator())
    assert [row["drop"] for row in rows] == [0.15, 0.17, 0.20]
    assert 0.2 < rows[0]["paged_at_first"] < 0.8
    assert all(row["told_at_first"] > 0.98 for row in rows)
    assert [row["paged_at_first"] for row in rows[2:]] == [1.0]


def test_a_loud_route_misses_drops_and_is_better_with_more_probes() -> None:
    rows = detections(LOUD, generator())
    assert rows[2]["paged_at_first"] < 0.9
    assert all(row["paged_within_3"] > row["paged_at_first"] for row in rows)
    assert all(row["told_at_first"] >= row["paged_at_first"] for row in rows)


def test_the_settings_named_keep_the_promise_on_the_domain_that_spreads_most() -> None:
    found = {row["drop"]: row for row in keeping_settings([QUIET, LOUD], YEAR, generator())}
    quieter = {row["drop"]: row for row in keeping_settings([QUIET], YEAR, generator())}
    assert found[0.15]["prompts"] > 24
    assert quieter[0.15]["prompts"] == 12
    assert all(row["paged_at_first"] >= 0.99 and row["false_pages_per_year"] <= 0.1 for row in found.values())


def test_where_whole_runs_spread_too_much_no_setting_is_named() -> None:
    assert list(keeping_settings([HOPELESS], YEAR, generator())) == []


def test_false_pages_of_a_route_are_those_of_its_domains_together() -> None:
    alone = route_false_rates([HOPELESS], YEAR, 40_000, generator())
    diluted = route_false_rates([HOPELESS, QUIET], YEAR, 40_000, generator())
    assert alone[WARNED].per_year > 20
    assert 0.3 * alone[WARNED].per_year < diluted[WARNED].per_year < 0.7 * alone[WARNED].per_year
    assert alone[PAGED].at_most > alone[PAGED].per_year


def test_shocks_that_stay_cost_more_false_pages() -> None:
    fading = route_false_rates([QUIET], YEAR, 40_000, generator())
    staying = route_false_rates([QUIET], YEAR, 40_000, generator(), stays=True)
    assert fading[PAGED].per_year == 0
    assert staying[PAGED].per_year > 0
