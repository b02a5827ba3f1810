"""What a serving engineer should set, from acceptance by position and measured step times. Pure.

Every line says what it rests on and how sure it is; nothing is said from invalid runs or points. Formulas: AL at a
draft length K' ≤ K is 1 + the sum of survival up to K'; beyond K the last conditional acceptance is carried on. Step
time at K' is t_plain + K' × (t_spec − t_plain) / K, linear in the draft length.
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
RULE_OF_THUMB = "the rule of thumb says on under 16 requests, off above 32"


@dataclass(frozen=True)
class Advice:
    """One line: `topic`, what to do, and what it rests on.

    `basis`: `measured`, or `modelled` where a formula goes beyond what was measured.
    """

    topic: str
    text: str
    evidence: str
    uncertainty: str
    basis: str

    def as_dict(self) -> dict[str, str]:
        return {
            "topic": self.topic,
            "text": self.text,
            "evidence": self.evidence,
            "uncertainty": self.uncertainty,
            "basis": self.basis,
        }


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


def advice(found: Acceptance, sweep: Document, price_per_hour: float | None, gpus: int) -> list[Advice]:
    """Every line there is evidence for; `price_per_hour` is of one GPU, None when it is not known."""
    at = loads(sweep)
    if not at:
        return [
            Advice(
                "sweep",
                "run 'specwatch sweep' again: the last one has no valid point",
                f"sweep {sweep.get('id', '')}".strip(),
                "nothing can be advised without step times",
                "measured",
            )
        ]
    return [
        *_draft_length(found, at),
        _batch_size(found, at, sweep["crossover"]),
        *_domains(found, at),
        *_losing(at, price_per_hour, gpus),
    ]


def _draft_length(found: Acceptance, at: Sequence[Load]) -> list[Advice]:
    chosen = best_lengths(found, at)
    evidence = f"survival {_shares(found.survival)} of runs {_ids(found.run_ids)}"
    lines = []
    for length in sorted({best for _, best, _ in chosen if best not in (0, found.k)}):
        where = [load.concurrency for load, best, _ in chosen if best == length]
        load, _, modelled = next(entry for entry in chosen if entry[1] == length)
        steps = f"{_ms(load.plain_step_seconds)} plain, {_ms(load.speculative_step_seconds)} at K = {found.k}"
        guess = "acceptance beyond what was measured is carried on" if length > found.k else "step time is linear in K"
        lines.append(
            Advice(
                "draft length",
                f"try K = {length} at concurrency {_span(where)}: {modelled:.2f}x instead of {load.speedup:.2f}x",
                f"{evidence}; a step takes {steps}",
                f"the measured speedup is sure to ±{load.doubt_ratio:.0%}; the model takes that {guess}",
                "modelled",
            )
        )
    if lines:
        return lines
    worst = max(load.doubt_ratio for load in at)
    return [
        Advice(
            "draft length",
            f"keep K = {found.k}: no other length is better by more than the doubt of the measurement",
            f"{evidence} and step times at {len(at)} loads",
            f"the measured speedups are sure to ±{worst:.0%} at worst",
            "modelled",
        )
    ]


def _batch_size(found: Acceptance, at: Sequence[Load], crossing: Document) -> Advice:
    ranges = per_batch_size(best_lengths(found, at), crossing["concurrency"])
    spread = f"measured from concurrency {at[0].concurrency} to {at[-1].concurrency}; {RULE_OF_THUMB}"
    if crossing["outcome"] == "none_in_range":
        text = f"leave speculation on up to concurrency {at[-1].concurrency}"
    elif crossing["outcome"] == "never_pays":
        text = "switch speculation off: it loses at every load measured"
    else:
        text = f"switch speculation off from concurrency {crossing['concurrency']:.0f} on"
    setting = f'; vLLM 0.24 or later: "num_speculative_tokens_per_batch_size": {ranges}'
    low, high = (
        "outside of the range" if crossing[name] is None else f"{crossing[name]:.0f}" for name in ("low", "high")
    )
    return Advice("batch size", text + setting, spread, f"95 % interval of the crossover: {low} to {high}", "measured")


def _domains(found: Acceptance, at: Sequence[Load]) -> list[Advice]:
    """Domains that lose at a load where the route as a whole does not."""
    together = tokens_per_step(found.survival, found.coverage, found.k)
    paying = [load for load in at if together >= load.break_even]
    lines = []
    for domain, yielded in sorted(found.by_domain.items(), key=lambda entry: entry[1]):
        losing = [load for load in at if yielded < load.break_even]
        if not any(load in paying for load in losing):
            continue
        first = losing[0]
        proven = yielded < first.break_even * (1 - first.doubt_ratio)
        where = "at every load" if len(losing) == len(at) else f"from concurrency {first.concurrency} on"
        lines.append(
            Advice(
                "domain",
                f"send {domain} to a route without speculation: it loses {where}",
                f"{yielded:.2f} tokens per step; break-even at concurrency {first.concurrency}: {first.break_even:.2f}",
                f"break-even is sure to ±{first.doubt_ratio:.0%}" + ("" if proven else ", so this is not proven"),
                "measured",
            )
        )
    return lines


def _losing(at: Sequence[Load], price_per_hour: float | None, gpus: int) -> list[Advice]:
    """The loads at which the whole server yields fewer tokens with speculation than without."""
    lines = []
    for load in at:
        if load.speedup * (1 + load.doubt_ratio) >= 1:
            continue
        lost = 1 - load.speculative_tokens_per_second / load.plain_tokens_per_second
        cost = ""
        if price_per_hour is not None and lost > 0:
            cost = f", which costs {lost * price_per_hour * gpus * 24:.2f} a day for each server kept at this load"
        lines.append(
            Advice(
                "losing",
                f"speculation loses at concurrency {load.concurrency}: {load.speedup:.2f}x{cost}",
                f"{load.speculative_tokens_per_second:.0f} tokens/s with, {load.plain_tokens_per_second:.0f} without",
                f"the whole interval of the speedup is below 1 (±{load.doubt_ratio:.0%})",
                "measured",
            )
        )
    return lines


def cost_per_million_tokens(tokens_per_second: float, price_per_hour: float, gpus: int) -> float:
    """What a million tokens cost on a server of `gpus` GPUs that makes so many a second."""
    return price_per_hour * gpus / (tokens_per_second * 3600) * 1e6


def _span(concurrencies: Sequence[int]) -> str:
    if len(concurrencies) == 1:
        return str(concurrencies[0])
    return f"{min(concurrencies)} to {max(concurrencies)}"


def _shares(survival: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}" for share in survival)


def _ids(run_ids: Sequence[int]) -> str:
    return ", ".join(map(str, run_ids[:4])) + (" …" if len(run_ids) > 4 else "")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
