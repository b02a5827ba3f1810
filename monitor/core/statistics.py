"""The paired test behind every verdict: log ratios per prompt, with the baseline's own run-to-run variance included."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SD_FLOOR = 0.02
"""Least prompt-level spread believed (docs/statistics.md): greedy replays can repeat exactly and give sd = 0."""
RUN_SIGMA_FLOOR = 0.01
"""Least run-to-run spread believed: a handful of baseline runs under-estimates it."""
RUN_SIGMA_UNKNOWN = 0.015
"""Run-to-run spread assumed for a baseline of one run; the simulations' common shock."""


@dataclass(frozen=True)
class PairedEstimate:
    """Mean log ratio now/baseline over `n` shared prompts, its standard error, one-sided p, and a 95 % interval.

    `mean`, `low`, `high` are natural-log ratios; `change` converts to a fraction (−0.15 is 15 percent lower).
    """

    n: int
    mean: float
    standard_error: float
    p_drop: float
    low: float
    high: float

    @property
    def change(self) -> float:
        return math.expm1(self.mean)

    @property
    def change_interval(self) -> tuple[float, float]:
        return math.expm1(self.low), math.expm1(self.high)


def paired_estimate(
    differences: Sequence[float], run_sigma: float, baseline_runs: int, runs: int = 1
) -> PairedEstimate:
    """One-sided paired t test of a drop, with se = sqrt(sd²/n + σ_run²·(1/runs + 1/baseline_runs)).

    `differences`: per-prompt log ratios, already averaged over `runs` runs when several are pooled. Raises ValueError
    for fewer than two prompts.
    """
    from scipy.special import (  # heavy: loaded only where a test is computed; scipy.stats is heavier still
        stdtr,
        stdtrit,
    )

    n = len(differences)
    if n < 2:
        raise ValueError(f"a paired estimate needs at least two prompts, got {n}")
    mean = sum(differences) / n
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))
    sd = max(spread, SD_FLOOR)
    sigma = max(run_sigma, RUN_SIGMA_FLOOR)
    standard_error = math.sqrt(sd**2 / n + sigma**2 * (1 / runs + 1 / baseline_runs))
    p_drop = float(stdtr(n - 1, mean / standard_error))
    half = float(stdtrit(n - 1, 0.975)) * standard_error
    return PairedEstimate(n, mean, standard_error, p_drop, mean - half, mean + half)


def pooled_differences(runs: Sequence[Mapping[str, float]], baseline: Mapping[str, float]) -> list[float]:
    """Per-prompt log ratios averaged over the runs that have the prompt."""
    pooled = []
    for question, reference in baseline.items():
        logs = [math.log(run[question] / reference) for run in runs if question in run]
        if logs:
            pooled.append(sum(logs) / len(logs))
    return pooled


RATIO_SIGMA_UNKNOWN = 0.11
"""Pass-to-pass spread of a speedup assumed when it was measured once: the spread of throughput with speculation on that
one public project saw over its own repeats."""


@dataclass(frozen=True)
class RatioEstimate:
    """Geometric mean of a ratio over `n` prompts and `repeats` passes, with its 95 % interval."""

    ratio: float
    low: float
    high: float
    n: int
    repeats: int

    def as_dict(self) -> dict[str, float | int]:
        return {"ratio": self.ratio, "low": self.low, "high": self.high, "n": self.n, "repeats": self.repeats}


def ratio_estimate(repeats: Sequence[Mapping[str, float]]) -> RatioEstimate | None:
    """From natural logs of a ratio by prompt, one mapping for each pass; None under two prompts.

    Two errors are added in squares: of the mean over prompts (t with n − 1) and of the mean over passes (t with R − 1,
    from their own spread, or RATIO_SIGMA_UNKNOWN for one pass), so that few passes give a wide interval.
    """
    from scipy.special import stdtrit

    by_prompt: dict[str, list[float]] = {}
    for logs in repeats:
        for question, value in logs.items():
            by_prompt.setdefault(question, []).append(value)
    means = [sum(values) / len(values) for values in by_prompt.values()]
    if len(means) < 2:
        return None
    mean = sum(means) / len(means)
    over_prompts = float(stdtrit(len(means) - 1, 0.975)) * max(_sd(means), SD_FLOOR) / math.sqrt(len(means))
    passes = [sum(logs.values()) / len(logs) for logs in repeats if logs]
    if len(passes) > 1:
        spread = max(_sd(passes), RUN_SIGMA_FLOOR)
        over_passes = float(stdtrit(len(passes) - 1, 0.975)) * spread / math.sqrt(len(passes))
    else:
        over_passes = 1.96 * RATIO_SIGMA_UNKNOWN
    half = math.hypot(over_prompts, over_passes)
    return RatioEstimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(means), len(passes))


def geometric_mean(values: Iterable[float]) -> float | None:
    """The mean that judging uses: of it, a ratio of means is the mean of ratios. None for no values."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True)
class BaselineValues:
    """Per-prompt reference of one metric: geometric mean over runs, and the spread between whole runs (log scale)."""

    values: dict[str, float]
    spreads: dict[str, float]
    run_sigma: float
    runs: int


def baseline_values(runs: Sequence[Mapping[str, float]]) -> BaselineValues:
    """Geometric mean per prompt over the runs, and σ_run = sd of the run means of log values over shared prompts.

    Prompts missing from more than half of the runs are left out: their reference would rest on too little.
    Raises ValueError for no runs.
    """
    if not runs:
        raise ValueError("a baseline needs at least one run")
    counts: dict[str, list[float]] = {}
    for run in runs:
        for question, value in run.items():
            counts.setdefault(question, []).append(math.log(value))
    kept = {q: logs for q, logs in sorted(counts.items()) if 2 * len(logs) >= len(runs)}
    means = {q: sum(logs) / len(logs) for q, logs in kept.items()}
    return BaselineValues(
        values={q: math.exp(m) for q, m in means.items()},
        spreads={q: _sd(logs) for q, logs in kept.items()},
        run_sigma=_run_sigma(runs, means),
        runs=len(runs),
    )


def _run_sigma(runs: Sequence[Mapping[str, float]], means: Mapping[str, float]) -> float:
    if len(runs) < 2:
        return RUN_SIGMA_UNKNOWN
    shifts = []
    for run in runs:
        deviations = [math.log(value) - means[q] for q, value in run.items() if q in means]
        if deviations:
            shifts.append(sum(deviations) / len(deviations))
    return max(_sd(shifts), RUN_SIGMA_FLOOR)


def _sd(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
