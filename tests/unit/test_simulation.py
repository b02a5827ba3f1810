"""How often the page rule is wrong, by simulation of the product's own judge. Seeded, so that it fails or never does.

The noise is that of docs/statistics.md: per prompt and run 10 % (Student t5), a shock common to all prompts of a run of
1.5 % (5 % in one run of a hundred), baselines of 10 runs, 24 prompts whose acceptance lengths differ by 25 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from monitor.core.judge import Line, Outcome, Reference, judge_confirmation, judge_run
from monitor.core.statistics import baseline_values
from tests.factories import COMPARABILITY, make_candidate

PROMPTS, BASELINE_RUNS = 24, 10
PAGE = Line("acceptance_length", 0.15)
QUESTIONS = [f"q{number:02}" for number in range(PROMPTS)]


@dataclass
class Trial:
    """One route and domain with a baseline, whose acceptance has really dropped by `drop` since."""

    generator: np.random.Generator
    drop: float
    lengths: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = 2.4 * np.exp(self.generator.normal(0, 0.25, PROMPTS))

    def run(self, drop: float) -> dict[str, float]:
        """Per-prompt acceptance lengths of one run."""
        noise = 0.10 * math.sqrt(3 / 5) * self.generator.standard_t(5, PROMPTS)  # Student's t5 has variance 5/3
        shock = self.generator.normal(0, 0.05 if self.generator.random() < 0.01 else 0.015)
        return dict(zip(QUESTIONS, self.lengths * (1 - drop) * np.exp(noise + shock), strict=True))

    def baseline(self) -> Reference:
        found = baseline_values([self.run(0) for _ in range(BASELINE_RUNS)])
        return Reference(1, COMPARABILITY, found.values, found.run_sigma, found.runs)

    def pages(self, reference: Reference) -> bool:
        """Whether one scheduled run trips the rule and its two confirmation runs hold."""
        trip, *fresh = (make_candidate(self.run(self.drop), id=number) for number in range(3))
        if judge_run(trip, reference, PAGE).outcome is not Outcome.TRIPPED:
            return False
        return judge_confirmation(trip, fresh, reference, PAGE).outcome is Outcome.CONFIRMED


def paged_share(drop: float, trials: int, looks_per_baseline: int = 1) -> float:
    """Share of looks that page, over `trials` baselines."""
    generator = np.random.default_rng(round(drop * 1000) + 2026)
    pages = 0
    for _ in range(trials):
        trial = Trial(generator, drop)
        reference = trial.baseline()
        pages += sum(trial.pages(reference) for _ in range(looks_per_baseline))
    return pages / (trials * looks_per_baseline)


def test_nobody_is_paged_when_nothing_changed() -> None:
    """20,000 looks are a year and a half of one domain probed every 40 minutes."""
    assert paged_share(0.0, trials=400, looks_per_baseline=50) == 0


@pytest.mark.parametrize(
    ("drop", "trials", "least", "most"),
    [
        (0.08, 1500, 0.0, 0.01),
        (0.10, 1500, 0.0, 0.03),
        (0.15, 800, 0.35, 0.65),
        (0.20, 800, 0.98, 1.0),
        (0.40, 200, 1.0, 1.0),
    ],
)
def test_a_true_drop_is_paged_at_the_first_probe_as_often_as_promised(
    drop: float, trials: int, least: float, most: float
) -> None:
    assert least <= paged_share(drop, trials) <= most


def test_the_noise_is_what_it_says() -> None:
    trial = Trial(np.random.default_rng(5), 0.0)
    runs = np.log([list(trial.run(0).values()) for _ in range(4000)]) - np.log(trial.lengths)
    between_runs = runs.mean(axis=1)
    within_runs = (runs - between_runs[:, None]).std()
    assert within_runs == pytest.approx(0.10, rel=0.05)
    assert np.median(np.abs(between_runs)) == pytest.approx(0.6745 * math.hypot(0.015, 0.10 / math.sqrt(24)), rel=0.1)
