"""How much a domain's runs spread while nothing is known to have changed: by prompt, by whole run, how lastingly. Pure.

A stretch is a series of comparable runs of one identity between two bumps; what differs between stretches is no noise.
Per prompt the log of a value is its mean in the stretch, a shock of the run, and a rest (two-way analysis of variance).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from monitor.core.noise import Noise

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import datetime

LEAST_RUNS = 20
"""From fewer a standard deviation is uncertain by more than a sixth of itself."""
LEAST_STRETCH = 5
"""Shorter stretches are left out: their own mean takes up most of what they could show."""
LEAST_PAIRS = 50
"""From fewer pairs of neighbours an autocorrelation under 0.28 is told from none by chance alone."""


@dataclass(frozen=True)
class StretchRun:
    """A valid scheduled run: when it began, its values by prompt, and which stretch it belongs to."""

    started_at: datetime
    values: Mapping[str, float]
    stretch: Hashable


@dataclass(frozen=True)
class Spread:
    """What the runs of one domain show. Standard deviations are of natural logs, so 0.1 is about 10 percent.

    `run_sd`: of the shock common to all prompts of a run, without what the spread of its prompts adds to their mean.
    `autocorrelation`: of neighbouring runs' means, `lag_seconds` apart (the median); None from under LEAST_PAIRS pairs.
    """

    runs: int
    stretches: int
    prompts: int
    prompt_sd: float
    run_sd: float
    autocorrelation: float | None
    pairs: int
    lag_seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape (docs/json.md)."""
        return {
            "runs": self.runs,
            "stretches": self.stretches,
            "prompts": self.prompts,
            "prompt_sd": self.prompt_sd,
            "run_sd": self.run_sd,
            "autocorrelation": self.autocorrelation,
            "pairs": self.pairs,
            "lag_seconds": self.lag_seconds,
        }

    def persistence(self, seconds: float) -> float | None:
        """How much of a run's shock is still there `seconds` later, if it fades exponentially; None when not known.

        The autocorrelation of means is that of shocks thinned by the prompts' own noise. One that two standard errors
        do not tell from none counts as none: what fades between two runs, these runs cannot show.
        """
        if self.autocorrelation is None or not self.lag_seconds:
            return None
        if self.autocorrelation < 2 / math.sqrt(self.pairs) or self.run_sd == 0:
            return 0.0
        of_means = self.run_sd**2 + self.prompt_sd**2 / self.prompts
        of_shocks = min(1.0, self.autocorrelation * of_means / self.run_sd**2)
        return float(of_shocks ** (seconds / self.lag_seconds))

    def noise(self, first_seconds: float, second_seconds: float, every_seconds: float) -> Noise:
        """The noise to simulate, confirmations so long after a run of every so many seconds; rare shocks, which few
        runs can show, as assumed."""
        return Noise(
            prompt_sd=self.prompt_sd,
            run_sd=self.run_sd,
            persistence=self.persistence(first_seconds) or 0.0,
            persistence_between=self.persistence(second_seconds - first_seconds) or 0.0,
            lasting=self.persistence(every_seconds) or 0.0,
        )


@dataclass(frozen=True)
class _Stretch:
    """`shifts`: mean deviation of every run from the prompts' means, in time; `rest`: squares that are left."""

    started_at: list[datetime]
    shifts: list[float]
    prompts: list[int]
    rest: float
    freedom: int


def spread(runs: Sequence[StretchRun]) -> Spread | str:
    """The spread over all stretches that are long enough; else, in words, what is missing."""
    by_stretch: dict[Hashable, list[StretchRun]] = {}
    for run in sorted(runs, key=lambda run: run.started_at):
        by_stretch.setdefault(run.stretch, []).append(run)
    found = [_stretch(members) for members in by_stretch.values() if len(members) >= LEAST_STRETCH]
    count = sum(len(one.shifts) for one in found)
    freedom = sum(one.freedom for one in found)
    if count < LEAST_RUNS or freedom <= 0:
        return (
            f"{count} of {len(runs)} scheduled valid runs outside incidents lie in stretches of {LEAST_STRETCH} or "
            f"more between two bumps; {LEAST_RUNS} are needed"
        )
    prompt_variance = sum(one.rest for one in found) / freedom
    prompts = round(median(number for one in found for number in one.prompts))
    of_means = sum(shift**2 for one in found for shift in one.shifts) / (count - len(found))
    autocorrelation, pairs, lag_seconds = _autocorrelation(found)
    return Spread(
        runs=count,
        stretches=len(found),
        prompts=prompts,
        prompt_sd=math.sqrt(prompt_variance),
        run_sd=math.sqrt(max(0.0, of_means - prompt_variance / prompts)),
        autocorrelation=autocorrelation,
        pairs=pairs,
        lag_seconds=lag_seconds,
    )


def _stretch(runs: Sequence[StretchRun]) -> _Stretch:
    logs: dict[str, list[float]] = {}
    for run in runs:
        for question, value in run.values.items():
            logs.setdefault(question, []).append(math.log(value))
    means = {question: sum(found) / len(found) for question, found in logs.items()}
    deviations = [[math.log(value) - means[q] for q, value in run.values.items()] for run in runs if run.values]
    shifts = [sum(found) / len(found) for found in deviations]
    return _Stretch(
        started_at=[run.started_at for run in runs if run.values],
        shifts=shifts,
        prompts=[len(found) for found in deviations],
        rest=sum((d - shift) ** 2 for found, shift in zip(deviations, shifts, strict=True) for d in found),
        freedom=sum(map(len, deviations)) - len(means) - len(shifts) + 1,
    )


def _autocorrelation(found: Sequence[_Stretch]) -> tuple[float | None, int, float | None]:
    """Of neighbours, with their number and the median seconds between them."""
    products = [a * b for one in found for a, b in zip(one.shifts, one.shifts[1:], strict=False)]
    gaps = [
        (later - earlier).total_seconds()
        for one in found
        for earlier, later in zip(one.started_at, one.started_at[1:], strict=False)
    ]
    squares = [shift**2 for one in found for shift in one.shifts]
    if len(products) < LEAST_PAIRS or not any(squares):
        return None, len(products), None
    lag_one = (sum(products) / len(products)) / (sum(squares) / len(squares))
    return lag_one, len(products), median(gaps)
