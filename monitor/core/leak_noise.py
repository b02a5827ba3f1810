"""How often the rule of a slow leak is wrong, and how soon it is right, under a stated noise: simulated runs. Pure.

Scheduled runs follow one another against one baseline, as the sum that they add to asks for; their standard errors are
those of the paired test. Differences between prompts drop out by pairing, as in core/noise.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from monitor.core.leak import ALLOWANCE, LIMIT, MOST_OF_ONE_RUN
from monitor.core.noise import Rate, at_most
from monitor.core.statistics import RUN_SIGMA_FLOOR, RUN_SIGMA_UNKNOWN, SD_FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from monitor.core.noise import Logs, Noise, Setting

RUNS_PER_BASELINE = 400
"""In a row: eleven days of a domain that is probed every 40 minutes."""
BASELINES_AT_ONCE = 500
TRUE_LOSSES = (0.03, 0.05, 0.08)
TRIALS = 200
WELL_RUNS = 2
"""In a row with nothing accumulated, after which a leak is over (`resolve.runs` as shipped)."""


@dataclass(frozen=True)
class Told:
    """When a loss is told: the share of baselines within RUNS_PER_BASELINE runs, and the median number of runs until
    then, of those; None where none is."""

    share: float
    median_runs: float | None


def leak_detections(noise: Noise, setting: Setting, generator: np.random.Generator) -> list[dict[str, Any]]:
    """By true loss, whether and when it is told (docs/json.md)."""
    rows = []
    for loss in TRUE_LOSSES:
        told = leak_told(noise, setting, loss, TRIALS, generator)
        rows.append(
            {"loss": loss, "told": told.share, "within_runs": RUNS_PER_BASELINE, "median_runs": told.median_runs}
        )
    return rows


def leak_told(noise: Noise, setting: Setting, loss: float, baselines: int, generator: np.random.Generator) -> Told:
    """Of so many baselines whose values have fallen by `loss` since."""
    first = [
        run for batch in _batches(noise, setting, loss, baselines, generator) for run in _first_told(batch >= LIMIT)
    ]
    return Told(len(first) / baselines, float(np.median(first)) if first else None)


def false_leaks(
    cases: Sequence[tuple[Noise, Setting]], runs_per_year: float, runs: int, generator: np.random.Generator
) -> Rate:
    """Leaks told in a year when nothing changed, of domains that share `runs_per_year` equally.

    From at least `runs` runs. A baseline that came out high tells of several leaks, so the bound is of baselines with
    one (Clopper and Pearson's), times the leaks that such a baseline had.
    """
    told = baselines = with_one = 0
    each = math.ceil(runs / RUNS_PER_BASELINE / len(cases))
    for noise, setting in cases:
        for sums in _batches(noise, setting, 0.0, each, generator):
            leaks = [_leaks(row) for row in sums]
            told, with_one, baselines = told + sum(leaks), with_one + sum(map(bool, leaks)), baselines + len(leaks)
    per_baseline = runs_per_year / RUNS_PER_BASELINE
    of_one = max(1.0, told / with_one) if with_one else 1.0
    return Rate(per_baseline * told / baselines, per_baseline * of_one * at_most(with_one, baselines))


def _batches(
    noise: Noise, setting: Setting, loss: float, baselines: int, generator: np.random.Generator
) -> Iterator[Logs]:
    for begun in range(0, baselines, BASELINES_AT_ONCE):
        yield accumulated(noise, setting, loss, min(BASELINES_AT_ONCE, baselines - begun), generator)


def accumulated(
    noise: Noise,
    setting: Setting,
    loss: float,
    baselines: int,
    generator: np.random.Generator,
    runs: int = RUNS_PER_BASELINE,
) -> Logs:
    """What has accumulated by baseline and run: the sum of core/leak.py, of `runs` runs in a row."""
    shape = (baselines, setting.baseline_runs, setting.prompts)
    references = noise.prompts(shape, generator) + noise.shocks(shape[:2], generator)[..., None]
    shock = noise.shocks((baselines,), generator)
    found = np.empty((baselines, runs))
    total = np.zeros(baselines)
    values, sigma = references.mean(axis=1), _run_sigma(references)
    for number in range(runs):
        if number:
            shock = noise.lasting * shock + math.sqrt(1 - noise.lasting**2) * noise.shocks((baselines,), generator)
        logs = noise.prompts((baselines, setting.prompts), generator) + shock[:, None] + math.log1p(-loss)
        below = standard_errors_below(logs - values, sigma, setting.baseline_runs)
        total = np.clip(total + np.minimum(below, MOST_OF_ONE_RUN) - ALLOWANCE, 0.0, LIMIT)
        found[:, number] = total
    return found


def standard_errors_below(differences: Logs, run_sigma: Logs, baseline_runs: int) -> Logs:
    """How far each run's mean difference (a row, by prompt) is below nothing, as `paired_estimate` has it."""
    sd = np.maximum(differences.std(axis=1, ddof=1), SD_FLOOR)
    variance = sd**2 / differences.shape[1] + run_sigma**2 * (1 + 1 / baseline_runs)
    below: Logs = -differences.mean(axis=1) / np.sqrt(variance)
    return below


def _run_sigma(references: Logs) -> Logs:
    """Of each baseline, as `baseline_values` has it."""
    if references.shape[1] < 2:
        return np.full(len(references), RUN_SIGMA_UNKNOWN)
    found: Logs = np.maximum(references.mean(axis=2).std(axis=1, ddof=1), RUN_SIGMA_FLOOR)
    return found


def _first_told(at_limit: NDArray[np.bool_]) -> Iterator[int]:
    """The run, from 1, that told the leak first, of each baseline that has one."""
    for row in at_limit:
        if row.any():
            yield int(row.argmax()) + 1


def _leaks(sums: Logs) -> int:
    """Leaks told in a row of runs: one is over after WELL_RUNS in a row with nothing accumulated."""
    leaks, open_, well = 0, False, 0
    for total in sums.tolist():
        well = well + 1 if total == 0 else 0
        if not open_ and total >= LIMIT:
            leaks, open_ = leaks + 1, True
        elif open_ and well >= WELL_RUNS:
            open_ = False
    return leaks
