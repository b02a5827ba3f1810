"""Peers of an Alertmanager that take no alerts, while others may: what becomes of the incident. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.core.incidents import BrokenDomain, IncidentState, Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

KIND = "peer_down"
SEVERITY = "warning"
DOWN_AFTER = timedelta(minutes=10)
"""A restart or a move to another machine is over by then, and the next round reaches the peer."""


def on_peers(
    state: IncidentState, failing: Mapping[str, datetime], taking: Collection[str], now: datetime
) -> tuple[IncidentState, Transition | None]:
    """The incident's domains are the peers that are down. `failing`: peer → since when it has taken nothing.

    One that is in the incident leaves it when it is among those `taking` alerts; of one that is in neither nothing is
    known, as before a process has asked for the first time.
    """
    fresh = [peer for peer, since in failing.items() if now - since >= DOWN_AFTER and peer not in state.domains]
    after = state.without(taking, now)
    for peer in fresh:
        after = after.with_broken(peer, BrokenDomain(KIND, SEVERITY, joined_at=failing[peer]))
    if fresh:
        return after, Transition.UPDATED if state.domains else Transition.OPENED
    return after, Transition.RESOLVED if state.domains and not after.domains else None
