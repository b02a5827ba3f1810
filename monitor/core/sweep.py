"""What a sweep's samples amount to: speed of both sides by concurrency, speedup with its interval, crossover. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from monitor.core.figures import aggregate, percentile
from monitor.core.statistics import RatioEstimate, ratio_estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from monitor.core.records import Sample

MIN_PROMPTS = 12
"""Fewest prompts valid on both sides that make a speedup; under it the point is invalid."""

BUNCHED_LIMIT_RATIO = 0.25
"""Share of chunks that came together with the one before from which the times of a sample mean nothing: a client that
gets no processor reads several steps at once, and what came before its first look is missing from its decode time."""

Repeat = tuple["Sample", ...]
"""The measured samples of one pass at one concurrency: no warm-up, nothing sent only to keep the load up."""


def bunched_ratio(sample: Sample) -> float:
    """Share of chunks after the first of a turn that bear the time stamp of the one before: read at once with it."""
    gaps = [after - before for turn in sample.chunk_seconds for before, after in pairwise(turn)]
    return sum(gap <= 0 for gap in gaps) / len(gaps) if gaps else 0.0


def is_bunched(sample: Sample) -> bool:
    return bunched_ratio(sample) > BUNCHED_LIMIT_RATIO


def decode_seconds_per_token(sample: Sample) -> float | None:
    """Time between tokens after the first; None for a sample that is invalid, decoded nothing, or came in bunches."""
    if not sample.valid or not sample.decode_tokens or not sample.decode_seconds or is_bunched(sample):
        return None
    return sample.decode_seconds / sample.decode_tokens


def total_seconds_per_token(sample: Sample) -> float | None:
    """From sending to the last byte, by token of the answer."""
    if not sample.valid or not sample.completion_tokens or not sample.total_seconds:
        return None
    return sample.total_seconds / sample.completion_tokens


def first_token_seconds(sample: Sample) -> float | None:
    """None for a sample that is invalid or came in bunches: its first chunk may have been read with later ones."""
    return sample.ttft_seconds if sample.valid and sample.ttft_seconds and not is_bunched(sample) else None


def seconds_per_step(samples: Sequence[Sample]) -> float | None:
    """Mean time of a decode step: decode time over decode steps, pooled over samples with a decode time."""
    decoded = [s for s in samples if decode_seconds_per_token(s) is not None and s.counts.decode_steps]
    steps = sum(s.counts.decode_steps for s in decoded)
    return sum(s.decode_seconds or 0.0 for s in decoded) / steps if steps else None


@dataclass(frozen=True)
class Spread:
    """Median and 95th percentile over samples; None when there is no sample with a value."""

    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class Side:
    """One server at one concurrency, over all repeats.

    `tokens_per_second` is of the whole server: concurrency × tokens / time over samples sent while the load held (in a
    steady state, Little's law). `tokens_per_second_per_gpu` divides it by the GPUs named; None when none were.
    """

    prompts_valid: int
    prompts_total: int
    invalid_reasons: dict[str, int]
    tokens_per_second: float | None
    tokens_per_second_per_gpu: float | None
    tokens_per_second_per_user: Spread
    decode_seconds_per_token: Spread
    ttft_seconds: Spread
    total_seconds: Spread
    seconds_per_step: float | None
    acceptance_length: float | None
    tokens_per_step: float | None
    source: str | None


def side(samples: Sequence[Sample], concurrency: int, gpus: int | None) -> Side:
    """Raises ValueError when the samples mix sources."""
    figures = aggregate("sweep", samples)
    valid = [s for s in samples if s.valid]
    per_token = _spread([t for s in valid if (t := decode_seconds_per_token(s)) is not None])
    elapsed = sum(s.total_seconds or 0.0 for s in valid)
    tokens_per_second = concurrency * figures.completion_tokens / elapsed if elapsed else None
    return Side(
        prompts_valid=figures.prompts_valid,
        prompts_total=figures.prompts_total,
        invalid_reasons=figures.invalid_reasons,
        tokens_per_second=tokens_per_second,
        tokens_per_second_per_gpu=tokens_per_second / gpus if gpus and tokens_per_second is not None else None,
        tokens_per_second_per_user=Spread(
            None if per_token.p50 is None else 1 / per_token.p50, None if per_token.p95 is None else 1 / per_token.p95
        ),
        decode_seconds_per_token=per_token,
        ttft_seconds=_spread([t for s in valid if (t := first_token_seconds(s)) is not None]),
        total_seconds=_spread([s.total_seconds for s in valid if s.total_seconds is not None]),
        seconds_per_step=seconds_per_step(samples),
        acceptance_length=figures.acceptance_length,
        tokens_per_step=figures.tokens_per_step,
        source=None if figures.source is None else figures.source.value,
    )


@dataclass(frozen=True)
class Point:
    """Both sides at one concurrency. Ratios are plain over speculative, so above 1 speculation wins.

    `speedup` compares decode time per token, `ttft_speedup` the time to the first token, `total_speedup` the whole
    answer by token. `break_even_acceptance_length` is step time speculative over plain: with fewer tokens per step
    speculation loses. All are None when the point is invalid.
    """

    concurrency: int
    repeats: int
    plain: Side
    speculative: Side
    speedup: RatioEstimate | None
    ttft_speedup: RatioEstimate | None
    total_speedup: RatioEstimate | None
    break_even_acceptance_length: float | None
    invalid_reason: str | None = None
    invalid_detail: str | None = None
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a point (docs/json.md)."""
        ratios = {name: _ratio_dict(getattr(self, name)) for name in ("speedup", "ttft_speedup", "total_speedup")}
        return {**asdict(self), **ratios, "basis": "measured", "warnings": list(self.warnings)}


def point(
    concurrency: int,
    plain: Sequence[Repeat],
    speculative: Sequence[Repeat],
    gpus: int | None = None,
    warnings: tuple[str, ...] = (),
) -> Point:
    """From repeats of the same prompts on both sides, the i-th of one measured next to the i-th of the other."""
    sides = [side([s for repeat in repeats for s in repeat], concurrency, gpus) for repeats in (plain, speculative)]
    speedup = _ratio(decode_seconds_per_token, plain, speculative)
    fault = _fault(sides[0], sides[1], speedup, _bunched(plain) + _bunched(speculative))
    steps = sides[0].seconds_per_step, sides[1].seconds_per_step
    sound = fault is None
    return Point(
        concurrency=concurrency,
        repeats=min(len(plain), len(speculative)),
        plain=sides[0],
        speculative=sides[1],
        speedup=speedup if sound else None,
        ttft_speedup=_ratio(first_token_seconds, plain, speculative) if sound else None,
        total_speedup=_ratio(total_seconds_per_token, plain, speculative) if sound else None,
        break_even_acceptance_length=steps[1] / steps[0] if sound and steps[0] and steps[1] else None,
        invalid_reason=None if fault is None else fault[0],
        invalid_detail=None if fault is None else fault[1],
        warnings=warnings,
    )


def _bunched(passes: Sequence[Repeat]) -> int:
    return sum(is_bunched(sample) for one in passes for sample in one)


def _fault(plain: Side, speculative: Side, speedup: RatioEstimate | None, bunched: int) -> tuple[str, str] | None:
    if speedup is not None and speedup.n >= MIN_PROMPTS:
        return None
    if 2 * bunched > plain.prompts_total + speculative.prompts_total:
        detail = f"chunks of {bunched} answers arrived in bunches: this machine, or a proxy, is too slow to time them"
        return "bunched_stream", detail
    for name, found in (("plain", plain), ("speculative", speculative)):
        if found.invalid_reasons and found.prompts_valid < found.prompts_total / 2:
            reason = max(found.invalid_reasons, key=lambda word: found.invalid_reasons[word])
            return reason, f"{found.prompts_valid} of {found.prompts_total} prompts valid on the {name} server"
    shared = 0 if speedup is None else speedup.n
    return "too_few_valid_prompts", f"{shared} prompts are valid on both servers, {MIN_PROMPTS} are needed"


def _ratio(
    figure_of: Callable[[Sample], float | None], plain: Sequence[Repeat], speculative: Sequence[Repeat]
) -> RatioEstimate | None:
    logs = []
    for slow, fast in zip(plain, speculative, strict=False):
        ours = {s.question_id: value for s in fast if (value := figure_of(s)) is not None}
        logs.append(
            {
                s.question_id: math.log(value / ours[s.question_id])
                for s in slow
                if s.question_id in ours and (value := figure_of(s)) is not None
            }
        )
    return ratio_estimate(logs)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(percentile(values, 0.5), percentile(values, 0.95))


def _ratio_dict(estimate: RatioEstimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate.as_dict()


@dataclass(frozen=True)
class Crossover:
    """The concurrency from which on speculation no longer pays; `low` and `high` bound it at 95 %.

    `outcome` is `crosses`, `none_in_range` (it pays at every concurrency measured), `never_pays`, or `unknown` when no
    point is valid. `concurrency`, `low` and `high` are None where they lie outside what was measured.
    """

    outcome: str
    concurrency: float | None = None
    low: float | None = None
    high: float | None = None


def crossover(points: Sequence[Point]) -> Crossover:
    """Where ln speedup, linear in log concurrency between points, falls through 0 for the last time."""
    curve = sorted((p.concurrency, p.speedup) for p in points if p.speedup is not None)
    if not curve:
        return Crossover("unknown")
    ways = {
        name: _falls_through([(c, getattr(speedup, name)) for c, speedup in curve]) for name in ("ratio", "low", "high")
    }
    if ways["ratio"] is None:
        pays = curve[-1][1].ratio > 1
        return Crossover("none_in_range" if pays else "never_pays", None, ways["low"], ways["high"])
    return Crossover("crosses", ways["ratio"], ways["low"], ways["high"])


def _falls_through(curve: Sequence[tuple[int, float]]) -> float | None:
    """None when the last point is above 1, or when all are below."""
    above = [place for place, (_, ratio) in enumerate(curve) if ratio > 1]
    if not above or above[-1] == len(curve) - 1:
        return None
    (c0, r0), (c1, r1) = curve[above[-1]], curve[above[-1] + 1]
    share = math.log(r0) / (math.log(r0) - math.log(r1))
    return float(math.exp(math.log(c0) + share * (math.log(c1) - math.log(c0))))


@dataclass(frozen=True)
class Sweep:
    """The curve of one speculative server against a plain one of the same target.

    `label` names the speculative server. `interleaved`: the passes of both sides alternated; otherwise a drift of the
    machine between one side and the other looks like speedup.
    """

    label: str
    model: str | None
    plain_replica: str
    plain_identity: Mapping[str, Any]
    speculative_replica: str
    speculative_identity: Mapping[str, Any]
    sampling: Mapping[str, Any]
    prompt_set_hash: str
    interleaved: bool
    gpus: int | None
    started_at: str
    finished_at: str
    points: tuple[Point, ...]

    @property
    def measured(self) -> bool:
        """Whether any point is valid."""
        return any(point.speedup is not None for point in self.points)

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a sweep (docs/json.md)."""
        return {
            "label": self.label,
            "model": self.model,
            "plain_replica": self.plain_replica,
            "plain_identity": dict(self.plain_identity),
            "speculative_replica": self.speculative_replica,
            "speculative_identity": dict(self.speculative_identity),
            "sampling": dict(self.sampling),
            "prompt_set_hash": self.prompt_set_hash,
            "interleaved": self.interleaved,
            "gpus": self.gpus,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "points": [found.as_dict() for found in self.points],
            "crossover": asdict(crossover(self.points)),
        }
