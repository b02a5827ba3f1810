"""What a serving engineer should set, from acceptance by position and a sweep. Pure.

Every line says what it rests on and how sure it is; nothing is said from invalid runs or points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.core.cost import cost_per_day
from monitor.core.draft_length import Acceptance, Load, best_lengths, loads, per_batch_size, tokens_per_step

Document = Mapping[str, Any]
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
                f"the measured speedup has the 95 % interval {load.interval}; the model takes that {guess}",
                "modelled",
            )
        )
    if lines:
        return lines
    worst = max(at, key=lambda load: load.doubt_ratio)
    return [
        Advice(
            "draft length",
            f"keep K = {found.k}: no other length is better by more than the doubt of the measurement",
            f"{evidence} and step times at {len(at)} loads",
            f"at worst the measured speedup has the 95 % interval {worst.interval} (concurrency {worst.concurrency})",
            "modelled",
        )
    ]


def _batch_size(found: Acceptance, at: Sequence[Load], crossing: Document) -> Advice:
    ranges = per_batch_size(best_lengths(found, at), crossing["concurrency"])
    spread = f"measured from concurrency {at[0].concurrency} to {at[-1].concurrency}; {RULE_OF_THUMB}"
    if crossing["outcome"] == "none_in_range":
        proven = _proven(at)
        text = f"leave speculation on up to concurrency {proven}" if proven else "nothing: at no load is a gain proven"
    elif crossing["outcome"] == "never_pays":
        text = "switch speculation off: it loses at every load measured"
    else:
        text = f"switch speculation off from concurrency {crossing['concurrency']:.0f} on"
    setting = f'; vLLM 0.24 or later: "num_speculative_tokens_per_batch_size": {ranges}'
    low, high = (
        "outside of the range" if crossing[name] is None else f"{crossing[name]:.0f}" for name in ("low", "high")
    )
    return Advice("batch size", text + setting, spread, f"95 % interval of the crossover: {low} to {high}", "measured")


def _proven(at: Sequence[Load]) -> int | None:
    """The highest concurrency up to which the whole interval of every speedup is above 1."""
    proven = None
    for load in at:
        if load.speedup / (1 + load.doubt_ratio) <= 1:
            break
        proven = load.concurrency
    return proven


def _domains(found: Acceptance, at: Sequence[Load]) -> list[Advice]:
    """Domains that lose at a load where the route as a whole does not."""
    together = tokens_per_step(found.survival, found.k)
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
        per_day = cost_per_day(load.speculative_tokens_per_second / load.plain_tokens_per_second, price_per_hour, gpus)
        cost = "" if per_day is None else f", which costs {per_day:.2f} a day for each server kept at this load"
        lines.append(
            Advice(
                "losing",
                f"speculation loses at concurrency {load.concurrency}: {load.speedup:.2f}x{cost}",
                f"{load.speculative_tokens_per_second:.0f} tokens/s with, {load.plain_tokens_per_second:.0f} without",
                f"the 95 % interval of the speedup, {load.interval}, is below 1",
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
