"""How often a rule is wrong under a stated noise: simulated looks, decided by the judge that decides real ones. Pure.

A look is one scheduled run with the two confirmation runs that it causes when it trips. Differences between prompts
drop out by pairing, so lengths are 1 before noise; the bound of acceptance lengths at 1 is not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from monitor.core.judge import Candidate, Comparability, Line, Outcome, Reference, judge_confirmation, judge_run
from monitor.core.statistics import baseline_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Logs = NDArray[np.floating[Any]]

METRIC = "acceptance_length"
BASELINE_RUNS = 10
LOOKS_PER_BASELINE = 100
"""When nothing changed; every baseline is drawn anew, so that rates are those of the average baseline."""
LOOKS_AT_ONCE = 20_000
ERROR = 0.05
"""Of a bound that is said to hold with 95 % confidence."""
QUIET, WARNED, PAGED = 0, 1, 2
_SLACK = 1e-4
"""Looks are drawn in single precision: those within this of a trip line are judged too."""
_SAME = Comparability("", "", None, 0, {})


@dataclass(frozen=True)
class Noise:
    """What differs from run to run when nothing changed, as standard deviations of logs; its defaults are those of
    docs/statistics.md.

    `prompt_sd`: of one prompt in one run, Student's t with 5 degrees of freedom. `run_sd`: of a shock common to all
    prompts of a run; in a share `rare_share` of runs it is `rare_sd`. `persistence`: correlation of a look's shock with
    that of its first confirmation run; `persistence_between`: of that with the second's, since what fades before the
    first goes on fading. `lasting`: of neighbouring scheduled runs' shocks, which only a sum over runs sees.
    """

    prompt_sd: float = 0.10
    run_sd: float = 0.015
    rare_share: float = 0.01
    rare_sd: float = 0.05
    persistence: float = 0.0
    persistence_between: float = 0.0
    lasting: float = 0.0

    def prompts(self, shape: tuple[int, ...], generator: np.random.Generator) -> Logs:
        normal = generator.standard_normal(shape, dtype=np.float32)
        gamma = generator.standard_gamma(2.5, shape, dtype=np.float32)
        # Student's t5 is a normal over the root of a mean of five squares, and has variance 5/3.
        scale = np.float32(self.prompt_sd * math.sqrt(2.5 * 3 / 5))
        found: Logs = normal / np.sqrt(gamma) * scale
        return found

    def shocks(self, shape: tuple[int, ...], generator: np.random.Generator) -> Logs:
        rare = generator.random(shape) < self.rare_share
        sizes = np.where(rare, np.float32(self.rare_sd), np.float32(self.run_sd))
        found: Logs = generator.standard_normal(shape, dtype=np.float32) * sizes
        return found


@dataclass(frozen=True)
class Setting:
    """What a route's owner sets: prompts per domain, runs in the baseline, the drops that page and that warn."""

    prompts: int = 24
    page_drop: float = 0.15
    warn_drop: float | None = 0.10
    baseline_runs: int = BASELINE_RUNS
    metric: str = METRIC

    @cached_property
    def lines(self) -> dict[int, Line]:
        """Line by what it leads to, the severer first."""
        found = {PAGED: Line(self.metric, self.page_drop)}
        return found if self.warn_drop is None else {**found, WARNED: Line(self.metric, self.warn_drop)}


@dataclass(frozen=True)
class Rate:
    """Events in a year of a route when nothing changed: the estimate, and what it is at most with 95 % confidence."""

    per_year: float
    at_most: float

    def as_dict(self) -> dict[str, float]:
        return {"per_year": self.per_year, "at_most": self.at_most}


def outcomes(
    noise: Noise, setting: Setting, drop: float, baselines: int, looks: int, generator: np.random.Generator
) -> NDArray[np.int8]:
    """QUIET, WARNED or PAGED by baseline and look, when values have fallen by `drop` since the baseline was made.

    Looks after the first that pages are QUIET: the incident is open.
    """
    at_once = max(1, LOOKS_AT_ONCE // looks)
    sizes = [min(at_once, baselines - begun) for begun in range(0, baselines, at_once)]
    return np.concatenate([_batch(noise, noise, setting, drop, size, looks, generator) for size in sizes])


def detection(found: NDArray[np.int8], least: int = PAGED, probes: int = 1) -> float:
    """Share of baselines whose first `probes` looks have led to `least` or more."""
    return float((found[:, :probes] >= least).any(axis=1).mean())


def false_rates(
    cases: Sequence[tuple[Noise, Setting]], looks_per_year: float, looks: int, generator: np.random.Generator
) -> dict[int, Rate]:
    """Rates of WARNED and of PAGED when nothing changed, of domains that share `looks_per_year` equally.

    From `looks` looks with an ordinary shock and a tenth as many with a rare one, each weighed by its share, which is
    the first case's. Counting both kinds apart is exact, and sees what rare shocks do ten times as often as they come.
    The bound adds Clopper and Pearson's of the two kinds, each at half the error.
    """
    rare_share = cases[0][0].rare_share
    counts = [
        (share, *_counts(cases, rare, size, generator))
        for share, rare, size in ((1 - rare_share, 0.0, looks), (rare_share, 1.0, max(looks // 10, 1)))
    ]
    return {
        level: Rate(
            looks_per_year * sum(share * found[level] / size for share, found, size in counts),
            looks_per_year * sum(share * at_most(found[level], size) for share, found, size in counts),
        )
        for level in (WARNED, PAGED)
    }


def _counts(
    cases: Sequence[tuple[Noise, Setting]], rare: float, looks: int, generator: np.random.Generator
) -> tuple[Mapping[int, int], int]:
    """Looks by what they led to, and how many there were: each case at least its share of `looks`, a share `rare` of
    them with a rare shock."""
    found = {WARNED: 0, PAGED: 0}
    at_once = LOOKS_AT_ONCE // LOOKS_PER_BASELINE
    baselines = math.ceil(looks / LOOKS_PER_BASELINE / len(cases))
    for noise, setting in cases:
        first = replace(noise, rare_share=rare)
        for begun in range(0, baselines, at_once):
            size = min(at_once, baselines - begun)
            batch = _batch(noise, first, setting, 0.0, size, LOOKS_PER_BASELINE, generator)
            for level in found:
                found[level] += int((batch == level).sum())
    return found, baselines * LOOKS_PER_BASELINE * len(cases)


def at_most(events: int, trials: int) -> float:
    """What the share of such events is at most, with 97.5 % confidence (Clopper and Pearson); for none 3.7/trials."""
    from scipy.special import betaincinv

    return 1.0 if events >= trials else float(betaincinv(events + 1, trials - events, 1 - ERROR / 2))


def _batch(
    noise: Noise,
    first: Noise,
    setting: Setting,
    drop: float,
    baselines: int,
    looks: int,
    generator: np.random.Generator,
) -> NDArray[np.int8]:
    """`first`: the noise of the scheduled runs; of baselines and confirmations it is `noise`.

    Only looks whose mean is past a trip line are shown to the judge: no other can trip, whatever its p.
    """
    prompts, fallen = setting.prompts, math.log1p(-drop)
    shape = (baselines, setting.baseline_runs)
    references = noise.prompts((*shape, prompts), generator) + noise.shocks(shape, generator)[..., None]
    shocks = first.shocks((baselines, looks), generator)
    probes = first.prompts((baselines, looks, prompts), generator) + shocks[..., None] + np.float32(fallen)
    means = probes.mean(axis=2) - references.mean(axis=(1, 2))[:, None]
    found = np.zeros((baselines, looks), dtype=np.int8)
    past = means < max(line.trip_log for line in setting.lines.values()) + _SLACK
    for baseline in np.flatnonzero(past.any(axis=1)):
        reference = _reference(references[baseline])
        for look in np.flatnonzero(past[baseline]):
            confirmed = _confirmations(noise, setting, float(shocks[baseline, look]), fallen, generator)
            found[baseline, look] = decide(probes[baseline, look], confirmed, reference, setting)
            if drop and found[baseline, look] == PAGED:
                break
    return found


def _confirmations(
    noise: Noise, setting: Setting, shock: float, fallen: float, generator: np.random.Generator
) -> Iterator[Any]:
    """Logs of the confirmation runs, drawn when they are asked for: most looks trip nothing."""
    for kept in (noise.persistence, noise.persistence_between):
        shock = kept * shock + math.sqrt(1 - kept**2) * float(noise.shocks((1,), generator)[0])
        yield noise.prompts((setting.prompts,), generator) + shock + fallen


def decide(trip: Any, confirmations: Iterator[Any], reference: Reference, setting: Setting) -> int:
    """What one look leads to: the severest rule that it trips and that its confirmation runs confirm."""
    candidate = Candidate(0, reference.comparability, _values(trip))
    tripped = [
        level
        for level, line in setting.lines.items()
        if judge_run(candidate, reference, line).outcome is Outcome.TRIPPED
    ]
    if not tripped:
        return QUIET
    fresh = [Candidate(n, reference.comparability, _values(logs)) for n, logs in enumerate(confirmations, 1)]
    for level in tripped:
        verdict = judge_confirmation(candidate, fresh, reference, setting.lines[level])
        if verdict.outcome is Outcome.CONFIRMED:
            return level
    return QUIET


def _reference(logs: Logs) -> Reference:
    found = baseline_values([_values(run) for run in logs])
    return Reference(0, _SAME, found.values, found.run_sigma, found.runs)


def _values(logs: Any) -> dict[str, float]:
    return {str(number): math.exp(log) for number, log in enumerate(logs.tolist())}
