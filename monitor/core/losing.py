"""Rules on measured speedup: does speculation lose here, or has it lost some of what it gained? Pure.

Speedup is noisy where acceptance is not, so one measurement decides nothing: three in a row do, of one replica.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from monitor.core.judge import RESOLVE_SHARE, TRIP_P, TRIP_SHARE, Outcome, Verdict
from monitor.core.statistics import PairedEstimate

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEEDUP = "speedup"
CONFIRMATIONS = 2
"""Measurements before this one that must have tripped as well."""
REFERENCE = 3
"""Measurements that a drop is held against: the first since the domain's baseline was approved."""
SOURCE = "plain_twin"
"""What the figure was measured with, where others have the source of their counts."""
LEAST_ERROR = 1e-6
"""Of a logarithm: intervals without any width would leave nothing to divide by."""
_Z95 = 1.96


@dataclass(frozen=True)
class Measurement:
    """One measured speedup: plain over speculative, with its 95 % interval; of an invalid one only why."""

    id: int
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    prompts: int = 0
    invalid_reason: str | None = None

    @property
    def log(self) -> float:
        return math.log(self.ratio)

    @property
    def standard_error(self) -> float:
        """Of the logarithm, as the width of its interval has it."""
        return (math.log(self.high) - math.log(self.low)) / (2 * _Z95)


def judge_losing(now: Measurement, below: float, earlier: Sequence[Measurement]) -> Verdict:
    """Tripped when the whole interval is below the floor, confirmed when those of the two before it were too.

    `earlier`: valid measurements before this one that can be compared with it, oldest first. Well from the floor on.
    """
    verdict = _verdict(now, below=below)
    if now.invalid_reason is not None:
        return verdict
    if now.high >= below:
        return replace(verdict, reason="its interval is not below the floor", above_resolve_line=now.ratio >= below)
    before = earlier[-CONFIRMATIONS:]
    confirmed = len(before) == CONFIRMATIONS and all(one.high < below for one in before)
    return _decided(verdict, before, confirmed=confirmed, reason="below the floor with its whole interval")


def judge_loss(
    now: Measurement, drop: float, reference: Sequence[Measurement], earlier: Sequence[Measurement]
) -> Verdict:
    """Tripped when past the trip line of a drop from the reference, and significant; confirmed when the two before it
    tripped as well and all three pooled are at or past the drop."""
    verdict = _verdict(now, drop=drop)
    if now.invalid_reason is not None:
        return verdict
    if len(reference) < REFERENCE or now.id in {one.id for one in reference}:
        problem = f"the first {REFERENCE} measurements since the baseline was approved are what others are held against"
        return replace(verdict, outcome=Outcome.INVALID, reason=problem)
    estimate = _change(now, reference)
    level = math.exp(sum(one.log for one in reference) / len(reference))
    well = estimate.mean > math.log(1 - drop * RESOLVE_SHARE)
    verdict = replace(verdict, estimate=estimate, baseline_value=level, above_resolve_line=well)
    if not _trips(estimate, drop):
        return replace(verdict, reason="not past the trip line with significance")
    before = [one for one in earlier[-CONFIRMATIONS:] if one.id not in {known.id for known in reference}]
    changes = [_change(one, reference) for one in before]
    pooled = sum(one.mean for one in (estimate, *changes)) / (1 + len(changes))
    enough = len(before) == CONFIRMATIONS and all(_trips(one, drop) for one in changes)
    return _decided(
        verdict, before, confirmed=enough and pooled <= math.log(1 - drop), reason="past the trip line and significant"
    )


def _verdict(now: Measurement, *, drop: float | None = None, below: float | None = None) -> Verdict:
    if now.invalid_reason is not None:
        reason = f"speedup {now.id} is invalid: {now.invalid_reason}"
        return Verdict(Outcome.INVALID, reason, SPEEDUP, drop, below=below, speedup_ids=(now.id,))
    return Verdict(
        Outcome.OK,
        "",
        SPEEDUP,
        drop,
        value=now.ratio,
        value_interval=(now.low, now.high),
        source=SOURCE,
        below=below,
        prompts=now.prompts,
        speedup_ids=(now.id,),
    )


def _decided(verdict: Verdict, before: Sequence[Measurement], *, confirmed: bool, reason: str) -> Verdict:
    if not confirmed:
        return replace(verdict, outcome=Outcome.TRIPPED, reason=reason, above_resolve_line=False)
    return replace(
        verdict,
        outcome=Outcome.CONFIRMED,
        reason=f"{reason}, as the {CONFIRMATIONS} before it",
        above_resolve_line=False,
        speedup_ids=(*(one.id for one in before), *verdict.speedup_ids),
    )


def _change(now: Measurement, reference: Sequence[Measurement]) -> PairedEstimate:
    """A normal test: both errors are known from intervals that were made with their own degrees of freedom."""
    known = len(reference)
    mean = now.log - sum(one.log for one in reference) / known
    error = math.sqrt(now.standard_error**2 + sum(one.standard_error**2 for one in reference) / known**2)
    error = max(error, LEAST_ERROR)
    half = _Z95 * error
    return PairedEstimate(
        now.prompts, mean, error, 0.5 * math.erfc(-mean / error / math.sqrt(2)), mean - half, mean + half
    )


def _trips(estimate: PairedEstimate, drop: float) -> bool:
    return estimate.mean < math.log(1 - drop * TRIP_SHARE) and estimate.p_drop < TRIP_P
