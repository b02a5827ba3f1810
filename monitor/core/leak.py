"""A slow leak: drift too slow for any one run, seen by a one-sided CUSUM against the pinned baseline. Pure.

Every run adds how far it lies below the baseline, in its own standard errors, less an allowance; what is above the
baseline takes away. The procedure and its run lengths are those of docs/statistics.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from monitor.core.judge import Line, Outcome, Verdict, judge_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monitor.core.judge import Candidate, Reference

ALLOWANCE = 1.5
"""Standard errors below the baseline that add nothing."""
LIMIT = 7.0
"""Accumulated standard errors at which the leak is told, and what is accumulated at most: of a leak that lasted for
weeks no more has to be taken away than of one just found."""
MOST_OF_ONE_RUN = 4.0
"""What lies further below counts as this: no fewer than three runs are a leak; a drop has its own rules."""
WINDOW = 200
"""Runs looked back at, at most: from any state the sum has been at nothing within them, or at the limit."""
ANY_DROP = 0.1
"""A leak has no lines: an estimate is made with any."""


@dataclass(frozen=True)
class Look:
    """One valid run against the baseline: its change, as a fraction, and the standard error of its logarithm."""

    run_id: int
    change: float
    standard_error: float

    @property
    def below(self) -> float:
        """Standard errors below the baseline."""
        return min(-math.log1p(self.change) / self.standard_error, MOST_OF_ONE_RUN)


@dataclass(frozen=True)
class Accumulated:
    """The sum after the last look, from 0 to LIMIT, and the runs since it last was 0."""

    sum: float = 0.0
    run_ids: tuple[int, ...] = ()


NOTHING = Accumulated()


def accumulate(looks: Iterable[Look], found: Accumulated = NOTHING) -> Accumulated:
    """The sum after these looks, oldest first, added to what was `found` before them."""
    for look in looks:
        total = min(LIMIT, max(0.0, found.sum + look.below - ALLOWANCE))
        found = Accumulated(total, (*found.run_ids, look.run_id) if total > 0 else ())
    return found


def judge_leak(candidate: Candidate, reference: Reference | None, metric: str, earlier: Sequence[Look]) -> Verdict:
    """Confirmed while the sum is at its limit: it has accumulated over runs, and needs no others to confirm it.

    `earlier`: the rule's looks before this run against the same baseline, oldest first. The domain is well where the
    sum is back at nothing.
    """
    verdict = replace(judge_run(candidate, reference, Line(metric, ANY_DROP)), drop=None)
    estimate = verdict.estimate
    if estimate is None:
        return verdict
    found = accumulate([*earlier, Look(candidate.id, estimate.change, estimate.standard_error)])
    leaks = found.sum >= LIMIT
    return replace(
        verdict,
        outcome=Outcome.CONFIRMED if leaks else Outcome.OK,
        reason="accumulated over runs, at the limit" if leaks else "below the limit of what accumulates over runs",
        above_resolve_line=found.sum == 0,
        accumulated=found.sum,
        accumulated_over=found.run_ids,
    )
