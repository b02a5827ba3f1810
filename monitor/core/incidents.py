"""The life of an incident: which transition a verdict causes. Pure; the store makes it durable.

One incident per route. Its domains break and heal one by one; the incident resolves when the last one has healed.
A domain that has left stays on record, with its worst figure. Invalid verdicts move nothing. What breaks again soon
after the end, and is no milder, is the same incident: it reopens.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from monitor.core.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta

    from monitor.core.judge import Verdict


class Transition(enum.StrEnum):
    """What is told to receivers; each is delivered once to every receiver it is routed to."""

    OPENED = "opened"
    REOPENED = "reopened"
    UPDATED = "updated"
    REMINDER = "reminder"
    ACKNOWLEDGED = "acknowledged"
    """Somebody looks after it: of these alone, told only to receivers that can take it."""
    RESOLVED = "resolved"


SEVERITIES = ("warning", "page")
"""From mild to severe."""


@dataclass(frozen=True)
class Worst:
    """The lowest judged figure of a domain in an incident; a `change` of −0.2 is 20 percent below the baseline."""

    metric: str
    change: float
    value: float
    baseline_value: float
    run_ids: tuple[int, ...]
    source: str | None = None
    """None in an incident of an earlier version."""


@dataclass(frozen=True)
class BrokenDomain:
    """One domain of an incident; `well_runs` counts consecutive valid runs above the resolve line.

    `joined_at` is when its drop was first confirmed; `left_at` is when it was last well again, None while it is broken;
    `rejoined_at` is when it last broke again after it had left, None where it never did.
    """

    rule: str
    severity: str
    well_runs: int = 0
    worst: Worst | None = None
    joined_at: datetime | None = None
    left_at: datetime | None = None
    absolute: bool = False
    """Whether the rule that broke it holds it against a floor, whatever the baseline."""
    metric: str | None = None
    """Of that floor; None without one, and in an incident of an earlier version."""
    rejoined_at: datetime | None = None

    def judged(self, verdict: Verdict) -> BrokenDomain:
        """The domain with this verdict's figure on record when it is its worst."""
        if verdict.estimate is None or verdict.value is None or verdict.baseline_value is None:
            return self
        found = Worst(
            verdict.metric,
            verdict.estimate.change,
            verdict.value,
            verdict.baseline_value,
            verdict.run_ids,
            verdict.source,
        )
        known = self.worst
        if known is not None and known.metric == found.metric and known.change <= found.change:
            return self
        return replace(self, worst=found)


@dataclass(frozen=True)
class IncidentState:
    """The broken domains of an incident, none when the route is well, and those that were broken and have left."""

    domains: Mapping[str, BrokenDomain] = field(default_factory=dict)
    left: Mapping[str, BrokenDomain] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """The highest it ever had: an incident that woke someone stays a page until it is over."""
        return max((d.severity for d in (*self.domains.values(), *self.left.values())), key=SEVERITIES.index)

    def with_broken(self, name: str, domain: BrokenDomain) -> IncidentState:
        left = {other: d for other, d in self.left.items() if other != name}
        return IncidentState({**self.domains, name: domain}, left)

    def without(self, names: Collection[str], now: datetime) -> IncidentState:
        """These domains have left."""
        leaving = {name: replace(d, left_at=now) for name, d in self.domains.items() if name in names}
        staying = {name: d for name, d in self.domains.items() if name not in leaving}
        return IncidentState(staying, {**self.left, **leaving})


def may_reopen(state: IncidentState, severity: str, resolved_at: datetime, now: datetime, within: timedelta) -> bool:
    """Whether a drop of this severity is the resolved incident again: soon after its end and no milder than it was."""
    milder = SEVERITIES.index(severity) < SEVERITIES.index(state.severity)
    return not milder and now - resolved_at < within


def looked_after_by(acts: Sequence[Mapping[str, Any]], opened_at: datetime) -> str | None:
    """Who was the last to acknowledge the incident since it last opened; what was said before is of what had ended.

    `acts` as documents, oldest first.
    """
    since = [act for act in acts if datetime.fromisoformat(act["done_at"]) >= opened_at]
    return next((act["by"] for act in reversed(since) if act["kind"] == "acknowledged"), None)


def reminder_due(severity: str, told_at: datetime, now: datetime, every: timedelta) -> bool:
    """Whether an open incident that nobody looks after is told again: a page of which nothing was told for so long."""
    return severity == SEVERITIES[-1] and now - told_at >= every


def covers(state: IncidentState, domain: str, severity: str, *, absolute: bool = False) -> bool:
    """Whether the open incident already says this much about the domain: then another trip has nothing to add.

    That a domain which had dropped is now below an `absolute` rule's floor is news at any severity: it does not work at
    all, and something else is to be done.
    """
    known = state.domains.get(domain)
    if known is None or (absolute and not known.absolute):
        return False
    return SEVERITIES.index(known.severity) >= SEVERITIES.index(severity)


def on_confirmed(
    state: IncidentState,
    domain: str,
    rule: str,
    severity: str,
    verdict: Verdict,
    now: datetime,
    *,
    absolute: bool = False,
) -> tuple[IncidentState, Transition | None]:
    """A confirmed drop opens the incident, adds its domain, raises its severity, or is now a floor's; a repeat says
    nothing.

    A state without broken domains and with some that have left is a resolved incident: it reopens.
    """
    if covers(state, domain, severity, absolute=absolute):
        known = replace(state.domains[domain], well_runs=0)
        return state.with_broken(domain, known.judged(verdict)), None
    before = state.domains.get(domain) or state.left.get(domain) or BrokenDomain(rule, severity, joined_at=now)
    if domain in state.domains:
        severity = max(severity, before.severity, key=SEVERITIES.index)
    broken = replace(before, rule=rule, severity=severity, well_runs=0, left_at=None, absolute=absolute)
    broken = replace(broken, metric=verdict.metric if absolute else None)
    if domain in state.left:
        broken = replace(broken, rejoined_at=now)
    after = state.with_broken(domain, broken.judged(verdict))
    if state.domains:
        return after, Transition.UPDATED
    return after, Transition.REOPENED if state.left else Transition.OPENED


def on_judged(
    state: IncidentState,
    domain: str,
    rule: str,
    verdict: Verdict,
    runs_to_resolve: int,
    now: datetime,
    ill_elsewhere: bool = False,
) -> tuple[IncidentState, Transition | None]:
    """A valid run of a broken domain, judged by the rule that broke it, counts towards its healing or restarts it.

    `ill_elsewhere`: another replica was below the resolve line when last judged; the domain stays until it is well.
    """
    broken = state.domains.get(domain)
    if broken is None or broken.rule != rule or verdict.outcome is Outcome.INVALID:
        return state, None
    well_runs = broken.well_runs + 1 if verdict.above_resolve_line else 0
    state = state.with_broken(domain, replace(broken, well_runs=well_runs).judged(verdict))
    if well_runs < runs_to_resolve or ill_elsewhere:
        return state, None
    state = state.without({domain}, now)
    return state, None if state.domains else Transition.RESOLVED


def on_configured(
    state: IncidentState, domains: Collection[str], now: datetime
) -> tuple[IncidentState, Transition | None]:
    """Domains that the configuration has no more leave: no run could heal them. With the last one it is over."""
    gone = state.domains.keys() - set(domains)
    state = state.without(gone, now)
    return state, Transition.RESOLVED if gone and not state.domains else None
