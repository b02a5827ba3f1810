"""Absolute rules: a run is held against a floor, whatever its baseline or whether there is one. Pure.

A drafter whose acceptance length was under 1.18 can never lose 15 percent of it; one that proposes nothing the target
accepts is seen by its first-position survival, and one that costs more than it saves by its break-even
(core/break_even.py). A run has thousands of steps behind these, so no test of significance is made; confirmation runs
are asked for as with any rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.judge import MIN_SHARED_PROMPTS, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.break_even import BreakEven

FIRST_POSITION_SURVIVAL = "first_position_survival"
RESOLVE_FACTOR = 2
"""A domain is well again from this multiple of a share on (10 % for 5 %): hysteresis."""


@dataclass(frozen=True)
class Floor:
    """What a run must not be below: it trips below `trips_below`, and is well again from `well_from` on.

    `modelled` says what `below` was modelled from, where it was; `problem` why there is none.
    """

    below: float | None
    trips_below: float
    well_from: float
    modelled: Mapping[str, Any] | None = None
    problem: str | None = None


def share_floor(below: float) -> Floor:
    """The floor of a share of steps, as a fraction (0.05 is 5 percent)."""
    return Floor(below, below, min(1.0, below * RESOLVE_FACTOR))


def break_even_floor(found: BreakEven) -> Floor:
    """A run trips below the whole interval of the break-even, and is well from the break-even on."""
    return Floor(found.value, found.low or 0.0, found.value or 0.0, found.as_dict(), found.problem)


@dataclass(frozen=True)
class PooledFigure:
    """A run as an absolute rule sees it: one figure over all its `steps`; None where its source does not show it."""

    run_id: int
    value: float | None
    steps: int
    prompts: int
    source: str
    invalid_reason: str | None = None
    metric: str = FIRST_POSITION_SURVIVAL


def judge_floor(run: PooledFigure, floor: Floor) -> Verdict:
    """One run: ok, tripped, or invalid with the reason."""
    if (problem := _cannot_judge(run, floor)) is not None:
        return _invalid(run, floor, problem)
    if _below(run, floor):
        return _judged(Outcome.TRIPPED, "below the floor", [run], [floor])
    return _judged(Outcome.OK, "not below the floor", [run], [floor])


def confirm_floor(runs: Sequence[PooledFigure], floors: Sequence[Floor]) -> Verdict:
    """Confirmed when every run after the first, which tripped, is below its floor as well; a floor for each."""
    for run, floor in zip(runs, floors, strict=True):
        if (problem := _cannot_judge(run, floor)) is not None:
            return _invalid(run, floor, problem)
    if all(map(_below, runs[1:], floors[1:])):
        return _judged(Outcome.CONFIRMED, "the trip and its confirmations are below the floor", runs, floors)
    return _judged(Outcome.NOT_CONFIRMED, "a confirmation run is not below the floor", runs, floors)


def _below(run: PooledFigure, floor: Floor) -> bool:
    return run.value is not None and run.value < floor.trips_below


def _judged(outcome: Outcome, reason: str, runs: Sequence[PooledFigure], floors: Sequence[Floor]) -> Verdict:
    """Value and floor are pooled over the steps of all runs."""
    steps = [run.steps for run in runs]
    value = _mean([run.value or 0.0 for run in runs], steps)
    return Verdict(
        outcome,
        reason,
        runs[-1].metric,
        None,
        run_ids=tuple(run.run_id for run in runs),
        value=value,
        above_resolve_line=value >= _mean([floor.well_from for floor in floors], steps),
        source=runs[-1].source,
        below=_mean([floor.below or 0.0 for floor in floors], steps),
        prompts=min(run.prompts for run in runs),
        break_even=floors[-1].modelled,
    )


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    if len(set(values)) == 1:
        return values[0]
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _invalid(run: PooledFigure, floor: Floor, problem: str) -> Verdict:
    return Verdict(
        Outcome.INVALID,
        problem,
        run.metric,
        None,
        run_ids=(run.run_id,),
        below=floor.below,
        break_even=floor.modelled,
    )


def _cannot_judge(run: PooledFigure, floor: Floor) -> str | None:
    if run.invalid_reason is not None:
        return f"run {run.run_id} is invalid: {run.invalid_reason}"
    if floor.problem is not None:
        return floor.problem
    if run.value is None or not run.steps:
        name = "survival by position" if run.metric == FIRST_POSITION_SURVIVAL else run.metric
        return f"run {run.run_id} does not show {name}: its source {run.source} counts none"
    if run.prompts < MIN_SHARED_PROMPTS:
        return f"only {run.prompts} valid prompts, {MIN_SHARED_PROMPTS} are needed"
    return None
