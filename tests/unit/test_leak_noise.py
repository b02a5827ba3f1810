"""How often a slow leak is told, by simulation: it decides as the judge does. Seeded: it fails or never does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from monitor.core.judge import Candidate, Reference
from monitor.core.leak import Look, judge_leak
from monitor.core.leak_noise import _leaks, accumulated, false_leaks, leak_detections, leak_told
from monitor.core.noise import METRIC, Noise, Setting
from monitor.core.statistics import baseline_values
from tests.factories import COMPARABILITY

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS_PER_YEAR = 65_700
"""Of five domains, every 40 minutes."""


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(2040 + seed)


class Drawn(Noise):
    """Hands out what it was made with, in turn, so that a test knows what was drawn."""

    def __init__(self, draw: Callable[[tuple[int, ...]], np.ndarray]) -> None:
        super().__init__(run_sd=0.0, rare_share=0.0)
        object.__setattr__(self, "draw", draw)

    def prompts(self, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
        return self.draw(shape)  # type: ignore[attr-defined, no-any-return]


def test_what_accumulates_is_what_the_judge_of_a_slow_leak_accumulates() -> None:
    drawn: list[np.ndarray] = []

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        drawn.append(generator(len(drawn)).normal(0, 0.1, shape))
        return drawn[-1]

    setting = Setting(prompts=24, baseline_runs=5)
    sums = accumulated(Drawn(draw), setting, 0.05, 2, generator(0), runs=30)

    for baseline in range(2):
        made = baseline_values([as_values(logs) for logs in drawn[0][baseline]])
        reference = Reference(1, COMPARABILITY, made.values, made.run_sigma, made.runs)
        earlier: list[Look] = []
        for number, logs in enumerate(drawn[1:]):
            values = as_values(logs[baseline] + math.log1p(-0.05))
            verdict = judge_leak(Candidate(number, COMPARABILITY, values), reference, METRIC, earlier)
            assert verdict.estimate is not None
            assert sums[baseline, number] == pytest.approx(verdict.accumulated, abs=1e-9)
            earlier.append(Look(number, verdict.estimate.change, verdict.estimate.standard_error))
    assert sums.max() > 1


def as_values(logs: np.ndarray) -> dict[str, float]:
    return {f"q{number:02}": math.exp(log) for number, log in enumerate(logs.tolist())}


@pytest.mark.parametrize(
    ("loss", "least", "most", "median"), [(0.03, 0.04, 0.2, 200), (0.05, 0.55, 0.8, 60), (0.08, 0.98, 1.0, 12)]
)
def test_a_loss_is_told_as_the_documents_say(loss: float, least: float, most: float, median: int) -> None:
    told = leak_told(Noise(), Setting(), loss, 300, generator(1))
    assert least <= told.share <= most
    assert told.median_runs is not None
    assert told.median_runs < median


def test_when_nothing_changed_no_leak_is_told_and_the_bound_says_how_much_that_shows() -> None:
    rate = false_leaks([(Noise(), Setting())], LOOKS_PER_YEAR, 400_000, generator(2))
    assert rate.per_year == 0
    assert rate.at_most == pytest.approx(3.7 / 400_000 * LOOKS_PER_YEAR, rel=0.01)


def test_shocks_that_last_from_run_to_run_are_taken_for_a_leak_now_and_then() -> None:
    loud = Noise(run_sd=0.03, lasting=0.9)
    fading, lasting = (
        false_leaks([(noise, Setting())], LOOKS_PER_YEAR, 200_000, generator(3)).per_year
        for noise in (replace(loud, lasting=0.0), loud)
    )
    assert fading < lasting / 10


def test_of_domains_each_brings_its_share() -> None:
    loud, quiet = (Noise(run_sd=0.03, lasting=0.9), Setting()), (Noise(prompt_sd=0.05), Setting())
    alone = false_leaks([loud], LOOKS_PER_YEAR, 200_000, generator(4)).per_year
    both = false_leaks([loud, quiet], LOOKS_PER_YEAR, 400_000, generator(4)).per_year
    assert both == pytest.approx(alone / 2, rel=0.3)


def test_a_leak_is_one_until_two_runs_have_nothing_accumulated() -> None:
    assert _leaks(np.array([0.0, 3.0, 7.0, 7.0, 5.0, 7.0])) == 1
    assert _leaks(np.array([7.0, 2.0, 0.0, 1.0, 0.0, 7.0])) == 1
    assert _leaks(np.array([7.0, 2.0, 0.0, 0.0, 3.0, 7.0])) == 2


def test_a_domain_says_by_true_loss_whether_and_when_it_is_told() -> None:
    rows = leak_detections(Noise(prompt_sd=0.06, run_sd=0.005), Setting(), generator(5))
    assert [row["loss"] for row in rows] == [0.03, 0.05, 0.08]
    assert rows[2]["told"] == 1.0
    assert 3 <= rows[2]["median_runs"] <= rows[1]["median_runs"] < rows[0]["median_runs"]
    assert {row["within_runs"] for row in rows} == {400}
