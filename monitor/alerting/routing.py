"""Who is told of what: the receivers that alerting.yaml routes a route and a severity to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.config.receivers import Alertmanager, PagerDuty
from monitor.core.incidents import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monitor.config.alerting import Alerting, Routing
    from monitor.config.routes import Route


def receivers_for(alerting: Alerting, route: Route, severity: str) -> set[str]:
    """Names of the receivers that alerting.yaml routes this route and severity to."""
    return {entry.receiver for entry in alerting.routing if severity in entry.severity and _selects(entry, route)}


def receivers_for_bumps(alerting: Alerting, route: Route) -> set[str]:
    """Names of the receivers that are told what became of this route after a bump; an Alertmanager takes no notes."""
    told = {entry.receiver for entry in alerting.routing if entry.hears_of_bumps and _selects(entry, route)}
    return told - takes_no_notes(alerting)


def takes_no_notes(alerting: Alerting) -> set[str]:
    """Names of the receivers for which there is only what fires or has ended."""
    return {receiver.name for receiver in alerting.receivers if isinstance(receiver.settings, Alertmanager)}


def takes_acknowledgements(alerting: Alerting) -> set[str]:
    """Names of the receivers that go on by themselves until somebody looks after what they were told."""
    return {receiver.name for receiver in alerting.receivers if isinstance(receiver.settings, PagerDuty)}


def heard(alerting: Alerting, routes: Iterable[Route]) -> dict[str, dict[str, list[str]]]:
    """Receiver → severity → names of the routes it hears of at that severity; severest first, nothing left out."""
    found: dict[str, dict[str, list[str]]] = {
        receiver.name: {severity: [] for severity in reversed(SEVERITIES)} for receiver in alerting.receivers
    }
    for route in routes:
        for severity in SEVERITIES:
            for name in receivers_for(alerting, route, severity):
                found[name][severity].append(route.name)
    return found


def _selects(entry: Routing, route: Route) -> bool:
    return (entry.routes is None or route.name in entry.routes) and all(
        route.labels.get(name) == value for name, value in entry.match.items()
    )
