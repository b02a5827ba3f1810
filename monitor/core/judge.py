"""Judging a run: is it comparable, does it trip a rule, do its confirmations hold, is the domain well again?

Pure: runs and baselines come in as values, verdicts go out as values. The procedure and its error rates are those of
docs/statistics.md; JUDGE_VERSION changes whenever a verdict on the same numbers could.
"""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.statistics import PairedEstimate, geometric_mean, paired_estimate, pooled_differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JUDGE_VERSION = 1
TRIP_SHARE = 11 / 15
"""A run trips at this share of the rule's drop (−11 % for −15 %): confirmations then average the noise away."""
RESOLVE_SHARE = 7 / 15
"""A domain is well again above this share of the drop (−7 % for −15 %): hysteresis."""
TRIP_P = 0.005
ACCEPTANCE_RATE = "acceptance_rate"
MIN_SHARED_PROMPTS = 12
"""Fewer shared prompts than this cannot be judged: at 12 already, a fall of 20 percent is paged at once in .96."""


class Outcome(enum.StrEnum):
    """What judging one run against one rule says."""

    OK = "ok"
    TRIPPED = "tripped"
    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not_confirmed"
    INVALID = "invalid"


@dataclass(frozen=True)
class Comparability:
    """What must be equal on both sides of a comparison."""

    prompt_set_hash: str
    source: str
    k: int | None
    concurrency: int
    sampling: Mapping[str, Any]

    def differences(self, other: Comparability) -> list[str]:
        """Sentences naming each difference between this baseline and `other`, the run; empty when comparable."""
        mine, theirs = asdict(self), asdict(other)
        names = {"prompt_set_hash": "prompt set", "k": "K"}
        return [
            f"{names.get(name, name)} {theirs[name]} is not the baseline's {mine[name]}"
            for name in mine
            if mine[name] != theirs[name]
        ]


@dataclass(frozen=True)
class Reference:
    """A baseline as the judge sees it: per-prompt values of the rule's metric."""

    id: int
    comparability: Comparability
    values: Mapping[str, float]
    run_sigma: float
    runs: int


@dataclass(frozen=True)
class Candidate:
    """A run as the judge sees it: per-prompt values of the rule's metric, or why it must not be judged."""

    id: int
    comparability: Comparability
    values: Mapping[str, float]
    invalid_reason: str | None = None


@dataclass(frozen=True)
class Line:
    """The thresholds of one rule, as fractions lost (0.15 is 15 percent)."""

    metric: str
    drop: float

    @property
    def trip_log(self) -> float:
        return math.log(1 - self.drop * TRIP_SHARE)

    @property
    def drop_log(self) -> float:
        return math.log(1 - self.drop)

    @property
    def resolve_log(self) -> float:
        return math.log(1 - self.drop * RESOLVE_SHARE)


@dataclass(frozen=True)
class Verdict:
    """The outcome with everything needed to show why and to recompute it.

    `value` and `baseline_value` are geometric means over the shared prompts, so that their ratio is the change.
    `source`: of the counts on both sides; None where nothing was compared. An absolute rule compares with its floor
    `below` instead of a baseline: then `drop`, `baseline_value` and `estimate` are None (core/floors.py).
    """

    outcome: Outcome
    reason: str
    metric: str
    drop: float | None
    baseline_id: int | None = None
    run_ids: tuple[int, ...] = ()
    estimate: PairedEstimate | None = None
    value: float | None = None
    baseline_value: float | None = None
    above_resolve_line: bool | None = None
    source: str | None = None
    below: float | None = None
    prompts: int | None = None
    """Behind the value, where there is no estimate."""
    accumulated: float | None = None
    """Standard errors below the baseline by this run, of a rule that looks for a slow leak (core/leak.py)."""
    accumulated_over: tuple[int, ...] = ()
    """The runs that it has accumulated over."""
    speedup_ids: tuple[int, ...] = ()
    """The measurements of speedup that it judges, in the place of runs (core/losing.py)."""
    value_interval: tuple[float, float] | None = None
    """Of a measured speedup."""
    break_even: Mapping[str, Any] | None = None
    """What the floor `below` was modelled from, of a rule whose floor is the break-even (core/break_even.py)."""
    judge_version: int = JUDGE_VERSION

    @property
    def first_run_id(self) -> int:
        """The run with which what it judges began."""
        return (self.accumulated_over or self.run_ids)[0]

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of a verdict; changes are fractions (−0.15 is 15 percent lower)."""
        estimate = self.estimate
        return {
            "outcome": self.outcome.value,
            "reason": self.reason,
            "metric": self.metric,
            "drop": self.drop,
            "below": self.below,
            "break_even": None if self.break_even is None else dict(self.break_even),
            "baseline_id": self.baseline_id,
            "run_ids": list(self.run_ids),
            "source": self.source,
            "value": self.value,
            "baseline_value": self.baseline_value,
            "prompts": self.prompts if estimate is None else estimate.n,
            "change": None if estimate is None else estimate.change,
            "change_interval": None if estimate is None else list(estimate.change_interval),
            "standard_error": None if estimate is None else estimate.standard_error,
            "p_drop": None if estimate is None else estimate.p_drop,
            "trip_change": None if self.drop is None else -self.drop * TRIP_SHARE,
            "resolve_change": None if self.drop is None else -self.drop * RESOLVE_SHARE,
            "above_resolve_line": self.above_resolve_line,
            "value_interval": None if self.value_interval is None else list(self.value_interval),
            "speedup_ids": list(self.speedup_ids),
            "accumulated": self.accumulated,
            "accumulated_over": list(self.accumulated_over),
            "judge_version": self.judge_version,
        }


def judge_run(candidate: Candidate, reference: Reference | None, line: Line) -> Verdict:
    """One run against its baseline: ok, tripped, or invalid with the reason. Never a silent pass."""
    problem = _cannot_judge(candidate, reference, line)
    if problem is not None or reference is None:
        return Verdict(
            Outcome.INVALID,
            problem or "no baseline",
            line.metric,
            line.drop,
            None if reference is None else reference.id,
            (candidate.id,),
        )
    estimate = _estimate([candidate], reference)
    tripped = estimate.mean < line.trip_log and estimate.p_drop < TRIP_P
    outcome = Outcome.TRIPPED if tripped else Outcome.OK
    reason = "past the trip line and significant" if tripped else "not past the trip line with significance"
    return _judged(outcome, reason, line, [candidate], reference, estimate)


def judge_confirmation(
    trip: Candidate, confirmations: Sequence[Candidate], reference: Reference, line: Line
) -> Verdict:
    """Confirmed when the fresh runs alone are past the trip line and all pooled are at or past the drop."""
    for candidate in (trip, *confirmations):
        problem = _cannot_judge(candidate, reference, line)
        if problem is not None:
            return Verdict(Outcome.INVALID, problem, line.metric, line.drop, reference.id, (candidate.id,))
    fresh = _estimate(confirmations, reference)
    pooled = _estimate([trip, *confirmations], reference)
    if fresh.mean >= line.trip_log:
        outcome, reason = Outcome.NOT_CONFIRMED, "the confirmation runs are not past the trip line"
    elif pooled.mean > line.drop_log:
        outcome, reason = Outcome.NOT_CONFIRMED, "the pooled drop is smaller than the rule's"
    else:
        outcome, reason = Outcome.CONFIRMED, "pooled over the trip and its confirmations, at or past the drop"
    return _judged(outcome, reason, line, [trip, *confirmations], reference, pooled)


def judge_resolution(runs: Sequence[Candidate], reference: Reference, line: Line) -> Verdict:
    """How a domain stands that is well again: the runs that healed it, pooled. Invalid when they cannot be."""
    for candidate in runs:
        problem = _cannot_judge(candidate, reference, line)
        if problem is not None:
            return Verdict(Outcome.INVALID, problem, line.metric, line.drop, reference.id, (candidate.id,))
    reason = "pooled over the runs above the resolve line"
    return _judged(Outcome.OK, reason, line, runs, reference, _estimate(runs, reference))


def _judged(
    outcome: Outcome,
    reason: str,
    line: Line,
    candidates: Sequence[Candidate],
    reference: Reference,
    estimate: PairedEstimate,
) -> Verdict:
    seen = {question for candidate in candidates for question in candidate.values}
    baseline_value = geometric_mean(value for question, value in reference.values.items() if question in seen) or 0.0
    return Verdict(
        outcome=outcome,
        reason=reason,
        metric=line.metric,
        drop=line.drop,
        baseline_id=reference.id,
        run_ids=tuple(candidate.id for candidate in candidates),
        estimate=estimate,
        value=baseline_value * math.exp(estimate.mean),
        baseline_value=baseline_value,
        above_resolve_line=estimate.mean > line.resolve_log,
        source=reference.comparability.source,
    )


def _estimate(candidates: Sequence[Candidate], reference: Reference) -> PairedEstimate:
    differences = pooled_differences([c.values for c in candidates], reference.values)
    return paired_estimate(differences, reference.run_sigma, reference.runs, len(candidates))


def _cannot_judge(candidate: Candidate, reference: Reference | None, line: Line) -> str | None:
    if candidate.invalid_reason is not None:
        return f"run {candidate.id} is invalid: {candidate.invalid_reason}"
    if reference is None:
        return "no approved baseline"
    differences = reference.comparability.differences(candidate.comparability)
    if differences:
        return "not comparable: " + "; ".join(differences)
    if line.metric == ACCEPTANCE_RATE and reference.comparability.k is None:
        return "not comparable: acceptance rates have no meaning without one K, and K is not known"
    shared = sum(1 for question in reference.values if question in candidate.values)
    if shared < MIN_SHARED_PROMPTS:
        return f"only {shared} prompts of {line.metric} shared with the baseline, {MIN_SHARED_PROMPTS} are needed"
    return None
