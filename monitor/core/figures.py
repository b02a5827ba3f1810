"""Every figure, computed from raw counts in one place; definitions are those of docs/figures.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.records import Counts, Sample, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


HALF_A_TOKEN = 0.5


def acceptance_length(counts: Counts) -> float | None:
    """AL = 1 + accepted/steps, bonus token included; None when no step had a draft."""
    return 1 + counts.accepted / counts.steps if counts.steps else None


def acceptance_rate(counts: Counts) -> float | None:
    """AR = accepted/drafted, in 0..1; never comparable across K."""
    return counts.accepted / counts.drafted if counts.drafted else None


def survival(counts: Counts) -> tuple[float, ...]:
    """Share of drafted steps with more than i accepted, for i = 0..K-1; AL = 1 + its sum."""
    if not counts.steps:
        return ()
    beyond = counts.steps
    shares = []
    for steps_with_j in counts.histogram[:-1]:
        beyond -= steps_with_j
        shares.append(beyond / counts.steps)
    return tuple(shares)


def coverage(counts: Counts) -> float | None:
    """Share of decode steps that had a draft, in 0..1."""
    return min(1.0, counts.steps / counts.decode_steps) if counts.decode_steps else None


def tokens_per_step(counts: Counts, completion_tokens: int, turns: int = 1) -> float | None:
    """(completion_tokens − 1 per turn) / decode steps."""
    return (completion_tokens - turns) / counts.decode_steps if counts.decode_steps else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear-interpolated percentile, `share` in 0..1; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def sample_acceptance_length(sample: Sample) -> float | None:
    return acceptance_length(sample.counts) if sample.valid else None


def sample_tokens_per_step(sample: Sample) -> float | None:
    """None also for a sample without decoded tokens: the judge takes logarithms."""
    if not sample.valid:
        return None
    value = tokens_per_step(sample.counts, sample.completion_tokens, max(1, len(sample.chunk_tokens)))
    return value if value is not None and value > 0 else None


def sample_accepted_per_step(sample: Sample) -> float | None:
    """AL − 1; a prompt of which nothing was accepted counts half a token, so that its logarithm exists."""
    counts = sample.counts
    return max(counts.accepted, HALF_A_TOKEN) / counts.steps if sample.valid and counts.steps else None


def sample_acceptance_rate(sample: Sample) -> float | None:
    """AR, with the same half token; None where the source does not show what was drafted."""
    counts = sample.counts
    return max(counts.accepted, HALF_A_TOKEN) / counts.drafted if sample.valid and counts.drafted else None


def sample_throughput(sample: Sample) -> float | None:
    """Tokens per second of one prompt's decoding, its first token left out."""
    if not sample.valid or not sample.decode_seconds or not sample.decode_tokens:
        return None
    return sample.decode_tokens / sample.decode_seconds


SAMPLE_METRICS = {
    "acceptance_length": sample_acceptance_length,
    "tokens_per_step": sample_tokens_per_step,
    "accepted_per_step": sample_accepted_per_step,
    "acceptance_rate": sample_acceptance_rate,
    "throughput": sample_throughput,
}
"""Metrics a rule may name: each is above 0 for a prompt that has one, so that logs of ratios exist."""


def metric_values(samples: Iterable[Sample], metric: str) -> dict[str, float]:
    """question_id → value of the metric, for valid samples that have one."""
    of = SAMPLE_METRICS[metric]
    return {sample.question_id: value for sample in samples if (value := of(sample)) is not None}


GROUPINGS = ("run", "hour", "day", "week", "identity")
"""What history pools runs by."""
HISTORY_METRICS = (
    "acceptance_length",
    "acceptance_length_prompt_mean",
    "acceptance_rate",
    "tokens_per_step",
    "coverage",
    "ttft_seconds_p50",
    "tokens_per_second_p50",
)
"""Figures that history keeps per bucket."""


def mixed(values: Mapping[str, float | None], mix: Mapping[str, float]) -> float | None:
    """A route's own figure: the mean over its domains, weighted by its mix (weights add up to 1).

    None when a domain of the mix has no value: a route half measured has no figure.
    """
    found = [(weight, values.get(domain)) for domain, weight in mix.items()]
    known = [weight * value for weight, value in found if value is not None]
    return sum(known) if len(known) == len(found) and found else None


@dataclass(frozen=True)
class Aggregate:
    """The figures of one domain's run over its valid samples; `source` is None when none is valid.

    `coverage` is None with source `stream`, which cannot see whether a step had a draft.
    """

    domain: str
    source: Source | None
    k: int | None
    acceptance_length: float | None
    acceptance_length_prompt_mean: float | None
    acceptance_rate: float | None
    survival: tuple[float, ...]
    tokens_per_step: float | None
    coverage: float | None
    steps: int
    drafted: int | None
    accepted: int
    decode_steps: int
    completion_tokens: int
    requests: int
    prompts_valid: int
    prompts_total: int
    invalid_reasons: dict[str, int]
    ttft_seconds_p50: float | None
    ttft_seconds_p95: float | None
    tokens_per_second_p50: float | None
    tokens_per_second_p95: float | None

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a domain's figures, for CLI, API and row (docs/json.md)."""
        return {
            "domain": self.domain,
            "source": None if self.source is None else self.source.value,
            "k": self.k,
            "acceptance_length": self.acceptance_length,
            "acceptance_length_prompt_mean": self.acceptance_length_prompt_mean,
            "acceptance_rate": self.acceptance_rate,
            "survival": list(self.survival),
            "tokens_per_step": self.tokens_per_step,
            "coverage": self.coverage,
            "steps": self.steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "decode_steps": self.decode_steps,
            "completion_tokens": self.completion_tokens,
            "requests": self.requests,
            "prompts_valid": self.prompts_valid,
            "prompts_total": self.prompts_total,
            "invalid_reasons": self.invalid_reasons,
            "ttft_seconds": {"p50": self.ttft_seconds_p50, "p95": self.ttft_seconds_p95},
            "tokens_per_second": {"p50": self.tokens_per_second_p50, "p95": self.tokens_per_second_p95},
        }


def aggregate(domain: str, samples: Iterable[Sample]) -> Aggregate:
    """Pools the valid samples of one run. Raises ValueError when they mix sources: such a figure has no meaning."""
    everything = list(samples)
    valid = [s for s in everything if s.valid]
    sources = {s.source for s in valid}
    if len(sources) > 1:
        raise ValueError(f"samples of {domain} mix sources {sorted(str(s) for s in sources)}")
    counts = sum((s.counts for s in valid), Counts(drafted=0))
    completion_tokens = sum(s.completion_tokens for s in valid)
    turns = sum(max(1, len(s.chunk_tokens)) for s in valid)
    lengths = [al for s in valid if (al := sample_acceptance_length(s)) is not None]
    ttfts = [s.ttft_seconds for s in valid if s.ttft_seconds is not None]
    speeds = [s.decode_tokens / s.decode_seconds for s in valid if s.decode_seconds]
    ks = {s.k for s in valid}
    source = sources.pop() if sources else None
    return Aggregate(
        domain=domain,
        source=source,
        k=ks.pop() if len(ks) == 1 else None,
        acceptance_length=acceptance_length(counts),
        acceptance_length_prompt_mean=sum(lengths) / len(lengths) if lengths else None,
        acceptance_rate=acceptance_rate(counts),
        survival=survival(counts),
        tokens_per_step=tokens_per_step(counts, completion_tokens, turns),
        coverage=None if source is Source.STREAM else coverage(counts),
        steps=counts.steps,
        drafted=counts.drafted,
        accepted=counts.accepted,
        decode_steps=counts.decode_steps,
        completion_tokens=completion_tokens,
        requests=turns,
        prompts_valid=len(valid),
        prompts_total=len(everything),
        invalid_reasons=_reasons(everything),
        ttft_seconds_p50=percentile(ttfts, 0.5),
        ttft_seconds_p95=percentile(ttfts, 0.95),
        tokens_per_second_p50=percentile(speeds, 0.5),
        tokens_per_second_p95=percentile(speeds, 0.95),
    )


def _reasons(samples: Iterable[Sample]) -> dict[str, int]:
    found: dict[str, int] = {}
    for sample in samples:
        if sample.invalid_reason:
            found[sample.invalid_reason] = found.get(sample.invalid_reason, 0) + 1
    return dict(sorted(found.items()))
