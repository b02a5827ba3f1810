"""What the history of a domain shows of its noise, and what it is too short to show."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from monitor.core.spread import Spread, StretchRun, spread
from tests.factories import START

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY = timedelta(minutes=40)


def runs_of(
    shocks: Sequence[float], *, prompts: int = 30, prompt_sd: float = 0.08, level: float = 2.4, stretch: object = "a"
) -> list[StretchRun]:
    """A run every 40 minutes with these shocks; prompts differ from each other by a quarter."""
    drawn = np.random.default_rng(len(shocks) + prompts)
    lengths = level * np.exp(drawn.normal(0, 0.25, prompts))
    return [
        StretchRun(
            START + number * EVERY,
            {f"q{q:02}": length * math.exp(shock + drawn.normal(0, prompt_sd)) for q, length in enumerate(lengths)},
            stretch,
        )
        for number, shock in enumerate(shocks)
    ]


def shocks(count: int, sd: float, lasting: float = 0.0) -> list[float]:
    """A series in which a share `lasting` of a shock is there in the next run."""
    drawn = np.random.default_rng(7)
    found = [drawn.normal(0, sd)]
    while len(found) < count:
        found.append(lasting * found[-1] + math.sqrt(1 - lasting**2) * drawn.normal(0, sd))
    return found


def measured(runs: Sequence[StretchRun]) -> Spread:
    found = spread(runs)
    assert isinstance(found, Spread), found
    return found


def test_the_spread_of_prompts_and_that_of_whole_runs_are_told_apart() -> None:
    found = measured(runs_of(shocks(400, 0.02)))
    assert (found.runs, found.stretches, found.prompts) == (400, 1, 30)
    assert found.prompt_sd == pytest.approx(0.08, rel=0.03)
    assert found.run_sd == pytest.approx(0.02, rel=0.1)


def test_runs_without_a_common_shock_have_next_to_no_spread_of_their_own() -> None:
    assert measured(runs_of([0.0] * 400)).run_sd < 0.006


def test_what_differs_between_stretches_is_no_noise() -> None:
    before, after = runs_of(shocks(60, 0.02)), runs_of(shocks(80, 0.02), level=1.6, stretch="b")
    later = [StretchRun(run.started_at + timedelta(days=30), run.values, run.stretch) for run in after]
    found = measured([*before, *later])
    assert (found.runs, found.stretches) == (140, 2)
    assert found.run_sd == pytest.approx(0.02, rel=0.2)
    assert found.lag_seconds == EVERY.total_seconds()


def test_shocks_that_last_are_seen_in_neighbouring_runs() -> None:
    found = measured(runs_of(shocks(600, 0.03, lasting=0.6)))
    assert found.autocorrelation == pytest.approx(0.6 * 0.03**2 / (0.03**2 + 0.08**2 / 30), abs=0.1)
    assert found.persistence(EVERY.total_seconds()) == pytest.approx(0.6, abs=0.1)
    assert found.persistence(EVERY.total_seconds() / 8) == pytest.approx(0.6 ** (1 / 8), abs=0.03)
    noise = found.noise(300, 900, 2400)
    assert (noise.persistence, noise.persistence_between) == (found.persistence(300), found.persistence(600))
    assert noise.lasting == found.persistence(2400)


def test_a_correlation_that_chance_explains_is_no_persistence() -> None:
    found = measured(runs_of(shocks(300, 0.02)))
    assert found.autocorrelation == pytest.approx(0, abs=0.15)
    assert found.persistence(300) == 0.0


def test_few_runs_show_no_correlation_rather_than_a_guess() -> None:
    found = measured(runs_of(shocks(40, 0.02)))
    assert (found.autocorrelation, found.pairs, found.persistence(300)) == (None, 39, None)


def test_a_prompt_that_is_missing_from_some_runs_does_no_harm() -> None:
    runs = runs_of(shocks(300, 0.02))
    for number, run in enumerate(runs):
        del run.values[f"q{number % 30:02}"]  # type: ignore[attr-defined]
    found = measured(runs)
    assert found.prompts == 29
    assert (found.prompt_sd, found.run_sd) == (pytest.approx(0.08, rel=0.05), pytest.approx(0.02, rel=0.15))


def test_too_little_history_is_said() -> None:
    assert spread([]) == (
        "0 of 0 scheduled valid runs outside incidents lie in stretches of 5 or more between two bumps; 20 are needed"
    )
    short = [run for n in range(10) for run in runs_of(shocks(4, 0.02), stretch=n)]
    assert spread([*short, *runs_of(shocks(19, 0.02))]) == (
        "19 of 59 scheduled valid runs outside incidents lie in stretches of 5 or more between two bumps; 20 are needed"
    )


def test_runs_that_repeat_exactly_have_no_spread() -> None:
    found = measured(runs_of([0.0] * 60, prompt_sd=0.0))
    assert (found.prompt_sd, found.run_sd) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))
