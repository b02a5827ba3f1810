"""Which replica of a route differs from the others, if one does. Pure.

Replicas are measured one after the other, so a change in time could pass for a difference between them: one replica
differs only when its run lies apart, to the same side, from the others' runs both just before and just after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.core.judge import MIN_SHARED_PROMPTS
from monitor.core.statistics import (
    RUN_SIGMA_UNKNOWN,
    PairedEstimate,
    baseline_values,
    paired_estimate,
    pooled_differences,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

LEAST_CHANGE = 0.05
"""A smaller difference is not worth a word, however significant."""
DIFFERS_P = 0.001
"""Two-sided, divided by the number of replicas: every domain is looked at each time (docs/statistics.md)."""
PASSED_OVER = 2
"""A replica that every other has been measured this often since has left the rotation."""


@dataclass(frozen=True)
class ReplicaRun:
    """A valid run with its per-prompt values; those of one comparison have equal identity, source, K and sampling."""

    id: int
    replica: str
    started_at: datetime
    values: Mapping[str, float]


@dataclass(frozen=True)
class ReplicaDifference:
    """The replica that differs, by which of its runs, and from which runs of which others."""

    replica: str
    run_id: int
    others: tuple[str, ...]
    other_run_ids: tuple[int, ...]
    source: str
    estimate: PairedEstimate

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a difference between replicas (docs/json.md)."""
        return {
            "replica": self.replica,
            "run_id": self.run_id,
            "others": list(self.others),
            "other_run_ids": list(self.other_run_ids),
            "source": self.source,
            "change": self.estimate.change,
            "change_interval": list(self.estimate.change_interval),
            "prompts": self.estimate.n,
        }


def differing_replica(runs: Sequence[ReplicaRun], source: str) -> ReplicaDifference | None:
    """The replica that differs the most surely, None when none does; of two that differ, the lower one is named."""
    replicas = {run.replica for run in runs}
    if len(replicas) < 2:
        return None
    found = [_difference(replica, runs, source, DIFFERS_P / len(replicas)) for replica in sorted(replicas)]
    surest = [difference for difference in found if difference is not None]
    if len(replicas) == 2:
        return min(surest, key=lambda difference: difference.estimate.mean, default=None)
    return max(surest, key=lambda d: abs(d.estimate.mean) / d.estimate.standard_error, default=None)


def _difference(replica: str, runs: Sequence[ReplicaRun], source: str, p: float) -> ReplicaDifference | None:
    in_time = sorted(runs, key=lambda run: (run.started_at, run.id))
    own = _last_with_a_follower(replica, in_time)
    if own is None:
        return None
    position = in_time.index(own)
    before = _nearest(replica, reversed(in_time[:position]))
    after = _nearest(replica, in_time[position + 1 :])
    newest = [run for run in in_time if run.replica == replica][-1]
    estimates = [
        _estimate(own, before),
        _estimate(own, after),
        _estimate(newest, before + after),  # one that has come back differs no more
        _estimate(own, before + after),
    ]
    if any(estimate is None or abs(estimate.change) < LEAST_CHANGE for estimate in estimates):
        return None
    known = [estimate for estimate in estimates if estimate is not None]
    whole = known[-1]
    one_side = len({estimate.mean > 0 for estimate in known}) == 1
    if not one_side or 2 * min(whole.p_drop, 1 - whole.p_drop) >= p:
        return None
    others = before + after
    ids = tuple(sorted(run.id for run in others))
    return ReplicaDifference(replica, own.id, tuple(sorted({run.replica for run in others})), ids, source, whole)


def _last_with_a_follower(replica: str, in_time: Sequence[ReplicaRun]) -> ReplicaRun | None:
    """The replica's last run that another's follows; None for a replica that has left the rotation."""
    since: dict[str, int] = dict.fromkeys({run.replica for run in in_time} - {replica}, 0)
    for run in reversed(in_time):
        if run.replica != replica:
            since[run.replica] += 1
        elif min(since.values()) >= PASSED_OVER:
            return None
        elif any(since.values()):
            return run
    return None


def _nearest(replica: str, runs: Iterable[ReplicaRun]) -> list[ReplicaRun]:
    """The first run of each other replica, in the order given."""
    found: dict[str, ReplicaRun] = {}
    for run in runs:
        if run.replica == replica and found:
            break
        if run.replica != replica:
            found.setdefault(run.replica, run)
    return list(found.values())


def _estimate(own: ReplicaRun, others: Sequence[ReplicaRun]) -> PairedEstimate | None:
    if not others:
        return None
    reference = baseline_values([run.values for run in others])
    differences = pooled_differences([own.values], reference.values)
    if len(differences) < MIN_SHARED_PROMPTS:
        return None
    return paired_estimate(differences, max(reference.run_sigma, RUN_SIGMA_UNKNOWN), reference.runs)
