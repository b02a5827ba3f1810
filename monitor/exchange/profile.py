"""NVIDIA's `speculation_profile.json`: how good a drafter is, by position, to travel with its checkpoint.

The shape is schema 1.0 as Model-Optimizer's pull requests 2247, 2313 and 2316 propose it (September 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA_VERSION = "1.0"
CHAIN_METHODS = frozenset({"eagle", "eagle1", "eagle2", "eagle3", "draft_model"})
"""The schema's own list: their draft of K tokens begins like that of K + 1, so one K tells of the smaller ones."""
TOLERANCE = 0.02
"""The schema's own, between the mean acceptance length and 1 + Σ marginal rates."""


@dataclass(frozen=True)
class PooledRun:
    """What a profile needs of one run: its steps, and of these how many had more than i accepted."""

    domain: str
    steps: int
    survivors: tuple[int, ...]
    acceptance_length_prompt_mean: float
    prompts: int


def speculation_profile(
    runs: Sequence[PooledRun], identity: Mapping[str, Any], k: int, conditions: Mapping[str, Any]
) -> dict[str, Any]:
    """The profile of runs of one identity, source and K, pooled over their steps; `conditions` say how they were made.

    There must be a run with steps. Rates and lengths are rounded to six places, as the schema's own producer does.
    """
    steps = sum(run.steps for run in runs)
    survivors = [sum(run.survivors[i] for run in runs if i < len(run.survivors)) for i in range(k)]
    marginal = [count / steps for count in survivors]
    conditional = [now / before if before else 0.0 for now, before in zip(survivors, [steps, *survivors], strict=False)]
    length = _acceptance_length(runs)
    per_request = sum(run.acceptance_length_prompt_mean * run.prompts for run in runs) / sum(r.prompts for r in runs)
    method = identity.get("method")
    return {
        "schema_version": SCHEMA_VERSION,
        "measured": True,
        "method": method,
        "draft_checkpoint": _checkpoint(identity.get("drafter")),
        "target_model": _checkpoint(identity.get("target") or identity.get("root") or identity.get("model")),
        "num_speculative_tokens": k,
        "block_size": None,
        "max_supported_k": k,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": [round(rate, 6) for rate in conditional],
        "marginal_accept_rates": [round(rate, 6) for rate in marginal],
        "mean_accept_length": round(length, 6),
        "mean_accept_length_per_request": round(per_request, 6),
        "accept_length_model": "chain_analytic" if method in CHAIN_METHODS else "measured_per_k",
        "accept_length_by_k": {str(k): round(length, 6)},
        "acceptance_length_histogram": _histogram(steps, survivors),
        "per_category": {
            domain: {"mean_accept_length": round(_acceptance_length([r for r in runs if r.domain == domain]), 6)}
            for domain in sorted({run.domain for run in runs})
        },
        "measurement_conditions": dict(conditions),
        "validation": _validation(length, marginal),
    }


def _acceptance_length(runs: Sequence[PooledRun]) -> float:
    """Over all positions there are, also those beyond K: a vector cut short shows in the validation."""
    return 1 + sum(sum(run.survivors) for run in runs) / sum(run.steps for run in runs)


def _checkpoint(name: Any) -> dict[str, str] | None:
    """Its last two parts: a profile is published, and the path of a checkpoint tells of the machine."""
    return {"id": "/".join(str(name).rstrip("/").split("/")[-2:])} if name else None


def _histogram(steps: int, survivors: Sequence[int]) -> dict[str, int]:
    """Acceptance length, the bonus token included → steps; lengths that did not occur are left out."""
    counts = [before - now for before, now in zip([steps, *survivors], [*survivors, 0], strict=True)]
    return {str(length): count for length, count in enumerate(counts, start=1) if count}


def _validation(length: float, marginal: Sequence[float]) -> dict[str, Any]:
    implied = 1 + sum(marginal)
    violations = [
        {"position": position, "value": now, "previous": before}
        for position, (before, now) in enumerate(pairwise(marginal), start=1)
        if now > before
    ]
    return {
        "mean_consistency": {
            "implied_mean_accept_length": round(implied, 6),
            "reported_mean_accept_length": round(length, 6),
            "abs_delta": round(abs(implied - length), 6),
            "tolerance": TOLERANCE,
            "passed": abs(implied - length) <= TOLERANCE,
        },
        "marginal_monotonicity": {"passed": not violations, "violations": violations},
    }
