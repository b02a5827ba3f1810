"""The life of an incident: which transition a verdict causes. Pure; the store makes it durable.

One incident per route. Its domains break and heal one by one; the incident resolves when the last one has healed.
Invalid verdicts move nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from monitor.core.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.judge import Verdict


class Transition(enum.StrEnum):
    """What is told to receivers; each is delivered once to every receiver it is routed to."""

    OPENED = "opened"
    UPDATED = "updated"
    RESOLVED = "resolved"


SEVERITIES = ("warning", "page")
"""From mild to severe."""


@dataclass(frozen=True)
class BrokenDomain:
    """One domain of an open incident; `well_runs` counts consecutive valid runs above the resolve line."""

    rule: str
    severity: str
    well_runs: int = 0


@dataclass(frozen=True)
class IncidentState:
    """An open incident's domains, or none when the route is well."""

    domains: Mapping[str, BrokenDomain] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        return max((d.severity for d in self.domains.values()), key=SEVERITIES.index)


def covers(state: IncidentState, domain: str, severity: str) -> bool:
    """Whether the open incident already says this much about the domain: then another trip has nothing to add."""
    known = state.domains.get(domain)
    return known is not None and SEVERITIES.index(known.severity) >= SEVERITIES.index(severity)


def on_confirmed(
    state: IncidentState, domain: str, rule: str, severity: str
) -> tuple[IncidentState, Transition | None]:
    """A confirmed drop opens the incident, adds its domain, or raises the domain's severity; a repeat says nothing."""
    if covers(state, domain, severity):
        known = replace(state.domains[domain], well_runs=0)
        return replace(state, domains={**state.domains, domain: known}), None
    changed = replace(state, domains={**state.domains, domain: BrokenDomain(rule, severity)})
    return changed, Transition.UPDATED if state.domains else Transition.OPENED


def on_judged(
    state: IncidentState, domain: str, rule: str, verdict: Verdict, runs_to_resolve: int
) -> tuple[IncidentState, Transition | None]:
    """A valid run of a broken domain, judged by the rule that broke it, counts towards its healing or restarts it."""
    broken = state.domains.get(domain)
    if broken is None or broken.rule != rule or verdict.outcome is Outcome.INVALID:
        return state, None
    if not verdict.above_resolve_line:
        return replace(state, domains={**state.domains, domain: replace(broken, well_runs=0)}), None
    if broken.well_runs + 1 < runs_to_resolve:
        healing = replace(broken, well_runs=broken.well_runs + 1)
        return replace(state, domains={**state.domains, domain: healing}), None
    remaining = {name: d for name, d in state.domains.items() if name != domain}
    return replace(state, domains=remaining), None if remaining else Transition.RESOLVED
