"""The warm pass of a run: the same prompts once more, right after, so that the prefix cache has them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.figures import Aggregate, aggregate, metric_values
from monitor.core.statistics import RUN_SIGMA_UNKNOWN, paired_estimate, pooled_differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.core.records import Sample
    from monitor.core.statistics import PairedEstimate


@dataclass(frozen=True)
class Warm:
    """What the warm pass gave beside the cold one, or why it is invalid.

    `estimate`: of the warm acceptance length against the cold one, prompt by prompt; None where it is invalid or fewer
    than two prompts have both. `cached_ratio` and `cold_cached_ratio`: cached over all prompt tokens of either pass,
    None where the server does not tell.
    """

    figures: Aggregate
    estimate: PairedEstimate | None = None
    cached_ratio: float | None = None
    cold_cached_ratio: float | None = None
    invalid_reason: str | None = None
    invalid_detail: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape, for CLI and row (docs/json.md)."""
        estimate = self.estimate
        figures = self.figures.as_dict()
        del figures["domain"]
        return {
            **figures,
            "valid": self.invalid_reason is None,
            "invalid_reason": self.invalid_reason,
            "invalid_detail": self.invalid_detail,
            "cached_ratio": self.cached_ratio,
            "cold_cached_ratio": self.cold_cached_ratio,
            "prompts": 0 if estimate is None else estimate.n,
            "change": None if estimate is None else estimate.change,
            "change_interval": None if estimate is None else list(estimate.change_interval),
        }


def not_warmed(domain: str, reason: str, detail: str) -> Warm:
    """A warm pass that was not made."""
    return Warm(aggregate(domain, ()), invalid_reason=reason, invalid_detail=detail)


def warmed(
    domain: str, cold: Sequence[Sample], warm: Sequence[Sample], invalid: tuple[str, str] | None, where: str
) -> Warm:
    """The pass that was made; `invalid`: reason and detail why not to look at it. `where` it was, for messages.

    One of whose prompts the server tells that it had no more cached than in the cold pass is `not_cached`: it was not
    warm. The turns of a conversation find those before them in the cache in either.
    """
    cached, cold_cached = _cached_ratio(warm), _cached_ratio(cold)
    if invalid is None and cached is not None and cached <= (cold_cached or 0):
        what = f"of the warm pass's prompts {cached:.1%} was cached, of the cold one's {cold_cached or 0:.1%}"
        advice = "prefix caching may be off or full, or prompts shorter than a block of it"
        invalid = "not_cached", f"{where}: {what}; {advice}"
    reason, detail = invalid or (None, None)
    return Warm(
        figures=aggregate(domain, warm),
        estimate=None if reason else _estimate(cold, warm),
        cached_ratio=cached,
        cold_cached_ratio=cold_cached,
        invalid_reason=reason,
        invalid_detail=detail,
    )


def _estimate(cold: Sequence[Sample], warm: Sequence[Sample]) -> PairedEstimate | None:
    """As `compare` does of two runs."""
    before, now = (metric_values(samples, "acceptance_length") for samples in (cold, warm))
    logs = pooled_differences([now], before)
    return paired_estimate(logs, RUN_SIGMA_UNKNOWN, baseline_runs=1) if len(logs) > 1 else None


def _cached_ratio(samples: Sequence[Sample]) -> float | None:
    """None where no sample tells; where some do, the others met nothing, which vLLM leaves unsaid."""
    valid = [sample for sample in samples if sample.valid and sample.prompt_tokens]
    if all(sample.cached_prompt_tokens is None for sample in valid):
        return None
    return sum(s.cached_prompt_tokens or 0 for s in valid) / sum(s.prompt_tokens or 0 for s in valid)
