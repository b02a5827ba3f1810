"""Absolute rules: a run is held against a floor, whatever its baseline or whether there is one. Pure.

A drafter whose acceptance length was under 1.18 can never lose 15 percent of it; one that proposes nothing the target
accepts is seen by its first-position survival. A run has thousands of steps behind that share, so no test of
significance is made; confirmation runs are asked for as with any rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitor.core.judge import MIN_SHARED_PROMPTS, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_POSITION_SURVIVAL = "first_position_survival"
RESOLVE_FACTOR = 2
"""A domain is well again from this multiple of the floor on (10 % for 5 %): hysteresis."""


@dataclass(frozen=True)
class Floor:
    """The threshold of one absolute rule, as a fraction (0.05 is 5 percent)."""

    below: float

    @property
    def resolve(self) -> float:
        return min(1.0, self.below * RESOLVE_FACTOR)


@dataclass(frozen=True)
class FirstPosition:
    """A run as an absolute rule sees it: the share of its `steps` whose first draft token was accepted.

    `survival` is None where its source does not show it.
    """

    run_id: int
    survival: float | None
    steps: int
    prompts: int
    source: str
    invalid_reason: str | None = None


def judge_floor(run: FirstPosition, floor: Floor) -> Verdict:
    """One run: ok, tripped, or invalid with the reason."""
    if (problem := _cannot_judge(run)) is not None:
        return _invalid(run, floor, problem)
    if _below(run, floor):
        return _judged(Outcome.TRIPPED, "below the floor", [run], floor)
    return _judged(Outcome.OK, "not below the floor", [run], floor)


def confirm_floor(trip: FirstPosition, confirmations: Sequence[FirstPosition], floor: Floor) -> Verdict:
    """Confirmed when every fresh run is below the floor as well."""
    runs = [trip, *confirmations]
    for run in runs:
        if (problem := _cannot_judge(run)) is not None:
            return _invalid(run, floor, problem)
    if all(_below(run, floor) for run in confirmations):
        return _judged(Outcome.CONFIRMED, "the trip and its confirmations are below the floor", runs, floor)
    return _judged(Outcome.NOT_CONFIRMED, "a confirmation run is not below the floor", runs, floor)


def _below(run: FirstPosition, floor: Floor) -> bool:
    return run.survival is not None and run.survival < floor.below


def _judged(outcome: Outcome, reason: str, runs: Sequence[FirstPosition], floor: Floor) -> Verdict:
    """The value is pooled over the steps of all runs."""
    steps = sum(run.steps for run in runs)
    value = sum((run.survival or 0.0) * run.steps for run in runs) / steps
    return Verdict(
        outcome,
        reason,
        FIRST_POSITION_SURVIVAL,
        None,
        run_ids=tuple(run.run_id for run in runs),
        value=value,
        above_resolve_line=value >= floor.resolve,
        source=runs[-1].source,
        below=floor.below,
        prompts=min(run.prompts for run in runs),
    )


def _invalid(run: FirstPosition, floor: Floor, problem: str) -> Verdict:
    return Verdict(Outcome.INVALID, problem, FIRST_POSITION_SURVIVAL, None, run_ids=(run.run_id,), below=floor.below)


def _cannot_judge(run: FirstPosition) -> str | None:
    if run.invalid_reason is not None:
        return f"run {run.run_id} is invalid: {run.invalid_reason}"
    if run.survival is None or not run.steps:
        return f"run {run.run_id} does not show survival by position: its source {run.source} counts none"
    if run.prompts < MIN_SHARED_PROMPTS:
        return f"only {run.prompts} valid prompts, {MIN_SHARED_PROMPTS} are needed"
    return None
