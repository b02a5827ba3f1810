"""How often the rules that page, warn and look for a slow leak are wrong, by simulation of the product's judge; seeded.

    python benchmarks/judge_error_rates.py [--trials 10000] [--looks 3000000] [--seed 1]

The noise is that of docs/statistics.md, stated at `Noise` in monitor/core/noise.py. Shares are over `--trials`
baselines, each with five probes in a row. False alarms are counted over `--looks` looks with an ordinary shock and a
tenth as many with a rare one, weighed by their shares; each has the bound that holds with 95 % confidence. 41
route-years of looks, 2.7 million, bound the rate by 0.1 when none of them pages. Ends with 1 when a promise does not
hold by its bound.
"""

import argparse
import sys
import time

import numpy as np
from stage import machine

from monitor.core.leak_noise import false_leaks, leak_told
from monitor.core.noise import PAGED, WARNED, Noise, Setting, at_most, detection, false_rates, outcomes

LOOKS_PER_YEAR = 5 * 365 * 24 * 60 / 40
DROPS = (0.0, 0.05, 0.08, 0.10, 0.12, 0.15, 0.17, 0.20, 0.25)
PERSISTENCES = (0.0, 0.5, 0.8, 1.0)
PROMPTS = (12, 16, 24, 32, 48)
PROBES = 5
LOSSES = (0.03, 0.04, 0.05, 0.06, 0.08)
LASTING = (0.0, 0.3, 0.5, 0.8)
FALSE_PAGES_BOUND = 0.1
PROMISED = {(0.20, PAGED, 1): 0.99, (0.17, PAGED, 3): 0.99, (0.15, WARNED, 1): 0.95}
"""Least share by true drop, what it leads to, and within how many probes."""


def true_drops(trials: int, generator: np.random.Generator) -> bool:
    """Prints what true drops lead to; True when the promised shares hold with 97.5 % confidence each."""
    print("| true drop | paged at the first probe | within 3 (2 h) | within 5 | warned or paged at the first |")
    print("| --- | --- | --- | --- | --- |")
    kept = True
    for drop in DROPS:
        found = outcomes(Noise(), Setting(), drop, trials, PROBES, generator)
        shares = [detection(found, PAGED, 1), detection(found, PAGED, 3), detection(found, PAGED, 5)]
        print(f"| {drop:.0%} | {' | '.join(f'{share:.4f}' for share in (*shares, detection(found, WARNED)))} |")
        for (promised, what, probes), least in PROMISED.items():
            if promised == drop:
                missed = round((1 - detection(found, what, probes)) * trials)
                kept = kept and 1 - at_most(missed, trials) >= least
    return kept


def false_alarms(looks: int, generator: np.random.Generator) -> bool:
    """Prints rates per route-year by persistence; True when pages are within the bound without any."""
    print("| of a shock persists | false pages | at most | false warnings | at most |")
    print("| --- | --- | --- | --- | --- |")
    bounds = []
    for persistence in PERSISTENCES:
        cases = [(Noise(persistence=persistence, persistence_between=persistence), Setting())]
        found = false_rates(cases, LOOKS_PER_YEAR, looks, generator)
        page, warning = found[PAGED], found[WARNED]
        figures = (page.per_year, page.at_most, warning.per_year, warning.at_most)
        print(f"| {persistence:.0%} | {' | '.join(f'{figure:.3f}' for figure in figures)} |")
        bounds.append(page.at_most)
    return bounds[0] <= FALSE_PAGES_BOUND


def slow_leaks(trials: int, runs: int, generator: np.random.Generator) -> None:
    print("| true loss | told within 400 runs (11 days) | median of runs until then |")
    print("| --- | --- | --- |")
    for loss in LOSSES:
        told = leak_told(Noise(), Setting(), loss, trials, generator)
        print(f"| {loss:.0%} | {told.share:.2f} | {told.median_runs or 0:.0f} |")
    print("\n| of a shock is left at the next run | false slow leaks in a route-year | at most |")
    print("| --- | --- | --- |")
    for lasting in LASTING:
        rate = false_leaks([(Noise(lasting=lasting), Setting())], LOOKS_PER_YEAR, runs, generator)
        print(f"| {lasting:.0%} | {rate.per_year:.3f} | {rate.at_most:.3f} |")


def numbers_of_prompts(trials: int, generator: np.random.Generator) -> None:
    print("| prompts | -15 % warned at the first | -17 % paged within 3 | -20 % paged at the first |")
    print("| --- | --- | --- | --- |")
    for prompts in PROMPTS:
        setting = Setting(prompts=prompts)
        shares = [
            detection(outcomes(Noise(), setting, drop, trials, probes, generator), what, probes)
            for drop, what, probes in ((0.15, WARNED, 1), (0.17, PAGED, 3), (0.20, PAGED, 1))
        ]
        print(f"| {prompts} | {' | '.join(f'{share:.3f}' for share in shares)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Error rates of the judge.")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--looks", type=int, default=3_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    began = time.process_time()
    print(f"{machine.described()}; load {machine.load()}; seed {options.seed}; {options.trials} baselines per drop\n")
    drops_kept = true_drops(options.trials, generator)
    print(f"\nNothing changed, per route-year of {LOOKS_PER_YEAR:,.0f} looks (5 domains); {options.looks:,} looks\n")
    pages_kept = false_alarms(options.looks, generator)
    print()
    numbers_of_prompts(options.trials // 5, generator)
    print()
    slow_leaks(options.trials // 5, options.looks, generator)
    print(f"\nfalse pages at most {FALSE_PAGES_BOUND}: {'held' if pages_kept else 'NOT HELD'}")
    print(
        f"drops told as promised: {'held' if drops_kept else 'NOT HELD'}; {time.process_time() - began:.0f} CPU seconds"
    )
    sys.exit(0 if pages_kept and drops_kept else 1)


if __name__ == "__main__":
    main()
