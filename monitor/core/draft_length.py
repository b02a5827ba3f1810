"""What other draft lengths would give, from acceptance by position and measured step times. Pure.

AL at a draft length K' ≤ K is 1 + the sum of survival up to K'; beyond K the last conditional acceptance is carried on.
Step time at K' is t_plain + K' × (t_spec − t_plain) / K, linear in the draft length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
CANDIDATES = (1, 2, 3, 4, 5, 6, 7)
"""Draft lengths looked at, beside the one in use."""
SHOWN = (3, 5, 7)
"""Draft lengths of the table, beside the one in use."""


@dataclass(frozen=True)
class Load:
    """One valid point of a sweep: step times, throughput, and the relative half width of its speedup's interval."""

    concurrency: int
    plain_step_seconds: float
    speculative_step_seconds: float
    plain_tokens_per_second: float
    speculative_tokens_per_second: float
    speedup: float
    doubt_ratio: float

    @property
    def interval(self) -> str:
        """The 95 % interval of the speedup."""
        return f"{self.speedup / (1 + self.doubt_ratio):.2f} to {self.speedup * (1 + self.doubt_ratio):.2f}"

    @property
    def break_even(self) -> float:
        return self.speculative_step_seconds / self.plain_step_seconds


def loads(sweep: Document) -> list[Load]:
    """The points of a sweep's document that can carry advice, by concurrency."""
    found = []
    for point in sweep["points"]:
        ratio = point["speedup"]
        sides = point["plain"], point["speculative"]
        needed = [side[name] for side in sides for name in ("seconds_per_step", "tokens_per_second")]
        if ratio is None or not all(needed):
            continue
        found.append(
            Load(
                concurrency=point["concurrency"],
                plain_step_seconds=sides[0]["seconds_per_step"],
                speculative_step_seconds=sides[1]["seconds_per_step"],
                plain_tokens_per_second=sides[0]["tokens_per_second"],
                speculative_tokens_per_second=sides[1]["tokens_per_second"],
                speedup=ratio["ratio"],
                doubt_ratio=math.sqrt(ratio["high"] / ratio["low"]) - 1,
            )
        )
    return sorted(found, key=lambda load: load.concurrency)


def extended_survival(survival: Sequence[float], length: int) -> tuple[float, ...]:
    """Survival of the first `length` positions; beyond those measured the last conditional acceptance goes on."""
    shares = list(survival[:length])
    before = survival[-2] if len(survival) > 1 else 1.0
    conditional = survival[-1] / before if survival and before else 0.0
    while len(shares) < length:
        shares.append(shares[-1] * conditional if shares else 0.0)
    return tuple(shares)


def tokens_per_step(survival: Sequence[float], length: int) -> float:
    """1 + Σ survival at this draft length, survival being a share of all decode steps."""
    return 1 + sum(extended_survival(survival, length))


def speedup_at(survival: Sequence[float], k: int, load: Load, length: int) -> float:
    """Modelled speedup at another draft length, scaled so that at the length in use it is the measured one."""
    position_seconds = (load.speculative_step_seconds - load.plain_step_seconds) / k
    step_seconds = load.plain_step_seconds + length * position_seconds
    now = tokens_per_step(survival, k) / load.break_even
    then = tokens_per_step(survival, length) * load.plain_step_seconds / step_seconds
    return load.speedup * then / now


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of a route, weighted by its mix, and tokens per step of each domain.

    `survival` is of all decode steps, those without a draft among them. `left_out`: domains of the mix without a run.
    """

    k: int
    survival: tuple[float, ...]
    by_domain: Mapping[str, float]
    run_ids: tuple[int, ...]
    source: str
    left_out: tuple[str, ...] = ()


def acceptance(runs: Sequence[Document], mix: Mapping[str, float]) -> Acceptance | None:
    """From the latest valid runs of what runs now, one for each domain; None when they differ in source or K.

    Without a mix all domains weigh the same; one of the mix without a run is left out, and said to be. A domain of the
    stream has coverage 1: that source has an acceptance length only where every step drafts.
    """
    found = {run["domain"]: run for run in runs if run["survival"] and run["k"]}
    weights = (
        {domain: weight for domain, weight in mix.items() if domain in found} if mix else dict.fromkeys(found, 1.0)
    )
    kinds = {(found[domain]["source"], found[domain]["k"]) for domain in weights}
    if len(kinds) != 1:
        return None
    ((source, k),) = kinds
    total = sum(weights.values())
    by_domain = {domain: _of_all_steps(found[domain]) for domain in weights}
    return Acceptance(
        k=k,
        survival=tuple(
            sum(weight / total * by_domain[domain][place] for domain, weight in weights.items())
            for place in range(min(map(len, by_domain.values())))
        ),
        by_domain={domain: tokens_per_step(shares, k) for domain, shares in by_domain.items()},
        run_ids=tuple(sorted(found[domain]["id"] for domain in weights)),
        source=source,
        left_out=tuple(sorted(mix.keys() - weights.keys())),
    )


def _of_all_steps(run: Document) -> list[float]:
    coverage = 1.0 if run["coverage"] is None else run["coverage"]
    return [coverage * share for share in run["survival"]]


def draft_length_table(found: Acceptance, at: Sequence[Load]) -> list[dict[str, Any]]:
    """By concurrency: measured speedup, and what other draft lengths would give; the length in use is measured."""
    lengths = sorted({*SHOWN, found.k})
    return [
        {
            "concurrency": load.concurrency,
            "speedup_by_draft_length": {
                str(length): speedup_at(found.survival, found.k, load, length) for length in lengths
            },
            "basis_by_draft_length": {
                str(length): "measured" if length == found.k else "modelled" for length in lengths
            },
            "doubt_ratio": load.doubt_ratio,
        }
        for load in at
    ]


def best_lengths(found: Acceptance, at: Sequence[Load]) -> list[tuple[Load, int, float]]:
    """By load: the draft length with the highest modelled speedup and that speedup; 0 where none reaches 1.

    Another length than the one in use is named only where its gain exceeds the doubt of the measured speedup.
    """
    chosen = []
    for load in at:
        modelled = {n: speedup_at(found.survival, found.k, load, n) for n in {*CANDIDATES, found.k}}
        best = max(modelled, key=lambda n: modelled[n])
        if modelled[best] < modelled[found.k] * (1 + load.doubt_ratio):
            best = found.k
        chosen.append((load, best if modelled[best] >= 1 else 0, modelled[best]))
    return chosen


def per_batch_size(chosen: Sequence[tuple[Load, int, float]], off_from: float | None = None) -> list[list[int]]:
    """vLLM's `num_speculative_tokens_per_batch_size`: [from, to, K] with borders half way between measured loads.

    Where speculation goes off after it was on, the border is the measured crossover `off_from`. The last range ends at
    the last load measured: nothing is said beyond it.
    """
    ranges: list[list[int]] = []
    for place, (load, length, _) in enumerate(chosen):
        following = chosen[place + 1][0].concurrency if place + 1 < len(chosen) else None
        end = load.concurrency if following is None else max(load.concurrency, (load.concurrency + following) // 2)
        if off_from is not None and length and following is not None and not chosen[place + 1][1]:
            end = min(max(load.concurrency, round(off_from) - 1), following - 1)
        begin = ranges[-1][1] + 1 if ranges else 1
        if ranges and ranges[-1][2] == length:
            ranges[-1][1] = end
        else:
            ranges.append([begin, end, length])
    return ranges
