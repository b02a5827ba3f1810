"""What other draft lengths would give, from acceptance by position and measured step times. Pure.

AL at a draft length K' ≤ K is 1 + the sum of survival up to K'; beyond K the last conditional acceptance is carried on.
Step time at K' is t_plain + K' × (t_spec − t_plain) / K, linear in the draft length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.core.figures import mixed

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


def tokens_per_step(survival: Sequence[float], coverage: float, length: int) -> float:
    """1 + coverage × Σ survival at this draft length: steps without a draft yield one token."""
    return 1 + coverage * sum(extended_survival(survival, length))


def speedup_at(survival: Sequence[float], coverage: float, k: int, load: Load, length: int) -> float:
    """Modelled speedup at another draft length, scaled so that at the length in use it is the measured one."""
    position_seconds = (load.speculative_step_seconds - load.plain_step_seconds) / k
    step_seconds = load.plain_step_seconds + length * position_seconds
    now = tokens_per_step(survival, coverage, k) / load.break_even
    then = tokens_per_step(survival, coverage, length) * load.plain_step_seconds / step_seconds
    return load.speedup * then / now


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of a route: survival and coverage weighted by its mix, and tokens per step of each domain."""

    k: int
    survival: tuple[float, ...]
    coverage: float
    by_domain: Mapping[str, float]
    run_ids: tuple[int, ...]
    source: str


def acceptance(runs: Sequence[Document], mix: Mapping[str, float]) -> Acceptance | None:
    """From the latest valid runs of one source and K, by domain; None when they do not carry the mix.

    A domain of the stream has coverage 1: that source is only valid for methods that draft at every step.
    """
    usable = {run["domain"]: run for run in runs if run["survival"] and run["k"]}
    weights = {domain: weight for domain, weight in mix.items() if domain in usable} if mix else {}
    weights = weights or {domain: 1 / len(usable) for domain in usable}
    kinds = {(usable[domain]["source"], usable[domain]["k"]) for domain in weights}
    if len(kinds) != 1:
        return None
    ((source, k),) = kinds
    total = sum(weights.values())
    shares = {domain: weight / total for domain, weight in weights.items()}
    survival = tuple(
        sum(share * usable[domain]["survival"][place] for domain, share in shares.items())
        for place in range(min(len(usable[domain]["survival"]) for domain in shares))
    )
    coverage = mixed({d: _coverage(usable[d]) for d in shares}, shares)
    return Acceptance(
        k=k,
        survival=survival,
        coverage=1.0 if coverage is None else coverage,
        by_domain={d: tokens_per_step(usable[d]["survival"], _coverage(usable[d]), k) for d in shares},
        run_ids=tuple(sorted(usable[domain]["id"] for domain in shares)),
        source=source,
    )


def _coverage(run: Document) -> float:
    return 1.0 if run["coverage"] is None else float(run["coverage"])


def draft_length_table(found: Acceptance, at: Sequence[Load]) -> list[dict[str, Any]]:
    """By concurrency: measured speedup, and what other draft lengths would give; the length in use is measured."""
    lengths = sorted({*SHOWN, found.k})
    return [
        {
            "concurrency": load.concurrency,
            "speedup_by_draft_length": {
                str(length): speedup_at(found.survival, found.coverage, found.k, load, length) for length in lengths
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
        modelled = {n: speedup_at(found.survival, found.coverage, found.k, load, n) for n in {*CANDIDATES, found.k}}
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
