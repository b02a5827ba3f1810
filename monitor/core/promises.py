"""What the settings of a route give on its own noise, and which settings would keep the promises. Pure.

The promises are those of docs/statistics.md: false pages at most 0.1 per route-year, and a true drop of 20 percent
paged at the first probe with probability 0.99.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from monitor.core.noise import PAGED, WARNED, Noise, Rate, Setting, detection, false_rates, outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

MOST_FALSE_PAGES = 0.1
PROMISED_DROP = 0.20
PROMISED_SHARE = 0.99
TRUE_DROPS = (0.15, 0.17, 0.20)
PROBES = 3
TRIED_PROMPTS = (12, 16, 24, 36, 48, 72, 96)
TRIED_DROPS = (0.10, 0.12, 0.15, 0.18)
TRIALS = 500
LOOKS_TRIED = 100_000
"""Per setting tried: a false page in them is more than the promise allows, whatever the route."""


def promises() -> dict[str, float]:
    """The JSON shape of what is promised (docs/json.md)."""
    return {"drop": PROMISED_DROP, "paged_at_first": PROMISED_SHARE, "false_pages_per_year": MOST_FALSE_PAGES}


@dataclass(frozen=True)
class Case:
    """One domain: its noise, and how it is probed and judged."""

    noise: Noise
    setting: Setting

    @property
    def error(self) -> float:
        """Standard deviation of one run's estimate, the baseline's own left out."""
        variance = self.noise.prompt_sd**2 / self.setting.prompts + self.noise.run_sd**2
        return float(variance**0.5)


def detections(case: Case, generator: np.random.Generator) -> list[dict[str, Any]]:
    """By true drop, the chance that it is paged at the first probe, within three, and told at all at the first."""
    rows = []
    for drop in TRUE_DROPS:
        found = outcomes(case.noise, case.setting, drop, TRIALS, PROBES, generator)
        row = {
            "drop": drop,
            "paged_at_first": detection(found),
            "paged_within_3": detection(found, PAGED, PROBES),
            "told_at_first": detection(found, WARNED),
        }
        rows.append(row)
    return rows


def route_false_rates(
    cases: Sequence[Case], looks_per_year: float, looks: int, generator: np.random.Generator, *, stays: bool = False
) -> dict[int, Rate]:
    """Of a route whose domains have `looks_per_year` looks together, each as many; `stays`: as if no shock faded
    before the confirmation runs."""
    kept = {"persistence": 1.0, "persistence_between": 1.0} if stays else {}
    pairs = [(replace(case.noise, **kept), case.setting) for case in cases]
    return false_rates(pairs, looks_per_year, looks, generator)


def loudest(cases: Sequence[Case]) -> Case:
    """The domain that spreads most: settings that keep the promises on it keep them on all."""
    return max(cases, key=lambda case: case.error)


def keeping_settings(
    cases: Sequence[Case], looks_per_year: float, generator: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """For every drop tried, the fewest prompts that keep both promises on the loudest domain, by estimates.

    A drop that no number of prompts tried keeps them with is left out.
    """
    worst = loudest(cases)
    for drop in TRIED_DROPS:
        setting = replace(worst.setting, page_drop=drop, warn_drop=None)
        fewest = _fewest_prompts(replace(worst, setting=setting), looks_per_year, generator)
        if fewest is not None:
            yield {"drop": drop, **fewest}


def _fewest_prompts(case: Case, looks_per_year: float, generator: np.random.Generator) -> dict[str, Any] | None:
    @cache
    def paged(prompts: int) -> float:
        setting = replace(case.setting, prompts=prompts)
        return detection(outcomes(case.noise, setting, PROMISED_DROP, TRIALS, 1, generator))

    for prompts in TRIED_PROMPTS[bisect_left(TRIED_PROMPTS, PROMISED_SHARE, key=paged) :]:
        cases = [(case.noise, replace(case.setting, prompts=prompts))]
        rate = false_rates(cases, looks_per_year, LOOKS_TRIED, generator)[PAGED].per_year
        if rate <= MOST_FALSE_PAGES and paged(prompts) >= PROMISED_SHARE:
            return {"prompts": prompts, "paged_at_first": paged(prompts), "false_pages_per_year": rate}
    return None
