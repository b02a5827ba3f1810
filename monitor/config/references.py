"""What alerting.yaml names of the routes and of itself, read as it is written: also beside mistakes of another kind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.config.document import Document

SELECTING = ("rules", "routing", "maintenance")
"""Lists of alerting.yaml whose entries select routes."""


@dataclass(frozen=True)
class Written:
    """What a route can be selected by. None where it is written so that it cannot be read: then it may be anything."""

    name: str
    domains: tuple[str, ...] | None
    labels: Mapping[str, str] | None


def written_routes(routes: object) -> tuple[Written, ...]:
    """The routes of routes.yaml that have a name, with what `defaults` gives them already in place."""
    return tuple(
        Written(route["name"], _texts(route["domains"]), _labels(route.get("labels", {})))
        for route in _mappings(routes).values()
        if isinstance(route.get("name"), str)
    )


def unmatched(alerting: Document, routes: tuple[Written, ...]) -> None:
    """Adds a problem for each name that means nothing: a rule or receiver would be silenced unnoticed."""
    for section in SELECTING:
        for position, entry in _mappings(alerting.data.get(section)).items():
            found = [*_no_routes(entry, routes), *(_no_domains(entry, routes) if section == "rules" else ())]
            found += _no_receiver(entry, alerting.data) if section == "routing" else ()
            alerting.problems += [alerting.problem((section, position, key), message) for key, message in found]


def _no_routes(entry: Mapping[str, Any], routes: tuple[Written, ...]) -> Iterator[tuple[str, str]]:
    names = [route.name for route in routes]
    for name in _texts(entry.get("routes")) or ():
        if name not in names:
            yield "routes", f"there is no route {name!r}; there are: {', '.join(names)}"
    match = _labels(entry.get("match", {}))
    if match and not any(route.labels is None or match.items() <= route.labels.items() for route in routes):
        yield "match", "no route has these labels"


def _no_domains(entry: Mapping[str, Any], routes: tuple[Written, ...]) -> Iterator[tuple[str, str]]:
    if any(route.domains is None for route in routes):
        return
    domains = sorted({domain for route in routes for domain in route.domains or ()})
    for name in _texts(entry.get("domains")) or ():
        if name not in domains:
            yield "domains", f"no route replays {name!r}; there are: {', '.join(domains)}"


def _no_receiver(entry: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    receivers = _mappings(data.get("receivers")).values()
    names = [receiver["name"] for receiver in receivers if isinstance(receiver.get("name"), str)]
    name = entry.get("receiver")
    if isinstance(name, str) and names and name not in names:
        yield "receiver", f"there is no receiver {name!r}; there are: {', '.join(names)}"


def _mappings(value: object) -> dict[int, Mapping[str, Any]]:
    """The entries of a list that are mappings, by their position in it."""
    items = value if isinstance(value, list) else []
    return {position: item for position, item in enumerate(items) if isinstance(item, Mapping)}


def _texts(value: object) -> tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def _labels(value: object) -> Mapping[str, str] | None:
    return value if isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values()) else None
