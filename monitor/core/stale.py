"""A route that is not measured: since when, and what becomes of its incident. Pure.

Invalid runs decide nothing about acceptance, so without this a route that cannot be measured would look well for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.core.incidents import BrokenDomain, IncidentState, Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

RULE = "stale"
OF_LATE = timedelta(minutes=30)
"""So far back a passive reading still says how a server is: a row is of ten minutes."""
LEAST = timedelta(minutes=2)
"""However short the period, so long a valid run may be away: a run itself takes its time."""


@dataclass(frozen=True)
class Measured:
    """What is known of the runs of one domain. `invalid`: reason → runs since the last valid one.

    `last_run_id` and `last_detail` are of the newest run since then; None when no run was made.
    """

    first_run_at: datetime | None = None
    last_valid_run_id: int | None = None
    last_valid_at: datetime | None = None
    invalid: Mapping[str, int] = field(default_factory=dict)
    last_run_id: int | None = None
    last_detail: str | None = None


@dataclass(frozen=True)
class Reading:
    """The newest passive reading of one replica: looks that worked and that did not, until `ended_at`."""

    replica: str
    reads: int
    failures: int
    ended_at: datetime
    last_failure: str | None = None


@dataclass(frozen=True)
class Around:
    """Of a route that is not measured: whether a worker lives, how many of its probes wait, who was read of late."""

    worker_lives: bool
    waiting: int
    readings: Sequence[Reading] = ()


def stale_since(
    measured: Measured, every: timedelta, periods: int, watched_since: datetime, now: datetime
) -> datetime | None:
    """Since when there is no valid run, where that is too long; None while it is not.

    Too long is `periods` times `every` and LEAST, counted from the last valid run, else from the first run, else from
    `watched_since`, when scheduling began. A start after a long stop has one period to measure before anything is said.
    """
    since = measured.last_valid_at or measured.first_run_at or watched_since
    if now - since <= max(periods * every, LEAST) or now - watched_since <= every:
        return None
    return since


def on_stale(
    state: IncidentState, domains: Collection[str], severity: str, now: datetime
) -> tuple[IncidentState, Transition | None]:
    """The first of them open the incident. Those that follow join it and say nothing: slots are spread over the period,
    and what keeps one domain from being measured keeps the others too, one after the other."""
    transition = Transition.OPENED if domains and not state.domains else None
    for domain in sorted(set(domains) - state.domains.keys()):
        state = state.with_broken(domain, BrokenDomain(RULE, severity, joined_at=now))
    return state, transition


def on_measured(state: IncidentState, domain: str, now: datetime) -> tuple[IncidentState, Transition | None]:
    """A valid run takes its domain out; with the last one the incident is over."""
    if domain not in state.domains:
        return state, None
    state = state.without({domain}, now)
    return state, None if state.domains else Transition.RESOLVED
