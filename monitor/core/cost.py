"""What lost speed costs, where it was measured. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from monitor.core.patterns import had_more_load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.evidence import Evidence

HOURS_PER_DAY = 24


def cost_per_day(ratio: float, price_per_hour: float | None, gpus: int | None) -> float | None:
    """What a server with `ratio` times the speed it could have costs a day beyond what its tokens would cost then.

    None without a price, and where it does not lose. `price_per_hour` is of one GPU; `gpus` 1 where not told.
    """
    if price_per_hour is None or ratio >= 1:
        return None
    return (1 - ratio) * price_per_hour * (gpus or 1) * HOURS_PER_DAY


def pace(evidence: Evidence) -> dict[str, Any] | None:
    """How fast one request decodes: now, in the baseline's runs (their median), and in the slowest of them.

    None where speeds cannot be held against each other: not measured, or with more load than any of the baseline's.
    """
    now, known = evidence.tokens_per_second, evidence.baseline_tokens_per_second
    if not now or not known or had_more_load(evidence):
        return None
    return {"tokens_per_second": now, "baseline_tokens_per_second": median(known), "slowest_of_baseline": min(known)}


def pace_text(pace: Mapping[str, Any]) -> str:
    """How much longer an answer takes, from which speeds."""
    now, before, slowest = pace["tokens_per_second"], pace["baseline_tokens_per_second"], pace["slowest_of_baseline"]
    speeds = f"{now:,.0f} tokens a second per request, baseline {before:,.0f}"
    if now >= slowest:
        return f"not clearly slower: {speeds}, {slowest:,.0f} in the slowest of its runs"
    return f"the same tokens take {before / now:.2f} times as long ({speeds})"


def lost_money(evidence: Evidence, price_per_hour: float | None, gpus: int | None) -> dict[str, Any] | None:
    """What the same tokens cost more on a server that is kept busy: price × (baseline's speed ÷ the run's − 1).

    `price_per_hour` is of one GPU, in the route's currency. None without a price, and where it is not slower.
    """
    found = pace(evidence)
    if price_per_hour is None or found is None or found["tokens_per_second"] >= found["slowest_of_baseline"]:
        return None
    now, before = found["tokens_per_second"], found["baseline_tokens_per_second"]
    per_hour = price_per_hour * (gpus or 1) * (before / now - 1)
    return {
        "per_hour": per_hour,
        "per_day": per_hour * HOURS_PER_DAY,
        "basis": "measured",
        "tokens_per_second": now,
        "baseline_tokens_per_second": before,
        "gpu_price_per_hour": price_per_hour,
        "gpus": gpus or 1,
    }


def cost_text(cost: Mapping[str, Any]) -> str:
    """How much, at which price."""
    gpus = f"{cost['gpus']} GPU{'' if cost['gpus'] == 1 else 's'}"
    return (
        f"{cost['per_hour']:.2f} an hour more, {cost['per_day']:.2f} a day more for each server kept busy, "
        f"at {cost['gpu_price_per_hour']:g} an hour for each of {gpus}"
    )
