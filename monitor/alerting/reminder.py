"""What is said again of an incident that is open and that nobody looks after. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, headline, with_text
from monitor.alerting.domains import Told, named, ranked
from monitor.alerting.layout import clock, duration, figures_of, verbatim
from monitor.alerting.text import fallen, impact_lines
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime


def reminder_event(
    last: Mapping[str, Any],
    *,
    severity: str,
    opened_at: datetime,
    now: datetime,
    involved: Mapping[str, Mapping[str, Any]],
    current: Mapping[str, Mapping[str, Any] | None],
    since: str,
    route_domains: Collection[str] = (),
) -> dict[str, Any]:
    """The document of a reminder: as the incident's `last`, with the newest figures and how old they are.

    `opened_at`: when it last opened; `since`: when the first run began that showed it. `current`: every domain that is
    broken now → its newest valid verdict with `run_id` and `finished_at`, or None.
    """
    names = _worst_first(current)
    document: dict[str, Any] = {
        **last,
        "transition": Transition.REMINDER.value,
        "route_domains": sorted(route_domains),
        "severity": severity,
        "raised_from": None,
        "domain": names[0],
        "domains": sorted(current),
        "involved": {name: dict(involved[name]) for name in sorted(involved)},
        "since": since,
        "verdict": current[names[0]],
        "current": {name: current[name] for name in names},
        "joined": {},
        "ended_at": None,
        "happened_at": now.isoformat(),
    }
    figures = _as_told(last) if last.get("kind") else _figures(document)
    told = (
        f"{severity.upper()}, STILL {document['route']} · {named(names, route_domains)}: {figures}; "
        f"open for {duration(opened_at.isoformat(), now.isoformat())}, nobody has acknowledged it"
    )
    acknowledge = f"specwatch incidents ack {document['incident_id']} --by NAME"
    document["summary"] = headline(document, told, acknowledge)
    return with_text(document, _lines(document, acknowledge, last["domain"]))


def _worst_first(current: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """What was not measured since it broke comes last; what a floor broke has no fall."""

    def fall(name: str) -> tuple[bool, float, str]:
        verdict = current[name]
        return (verdict is None, 0.0 if verdict is None else verdict["change"] or -1.0, name)

    return sorted(current, key=fall)


def _figures(document: Mapping[str, Any]) -> str:
    """Of the domain that is worst now, and how long ago that was measured."""
    verdict = document["verdict"]
    if verdict is None:
        return f"not measured since, broken since {clock(document['since'])}"
    which = f"{document['domain']}, the worst, " if len(document["domains"]) > 1 else ""
    return f"{which}{fallen(verdict)}, as last measured {_ago(verdict, document)}, since {clock(document['since'])}"


def _ago(verdict: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    return f"{duration(verdict['finished_at'], document['happened_at'])} ago"


def _as_told(last: Mapping[str, Any]) -> str:
    """An incident of another kind than acceptance: no verdict on a run tells how it stands."""
    return f"{figures_of(last['summary'])} (told {clock(last['happened_at'])})"


_SHOWS = {"stale": "specwatch runs --route {route}", "speedup": "specwatch speedup {route}"}
"""What shows how an incident of this kind stands; those of acceptance have none."""


def _lines(document: Mapping[str, Any], acknowledge: str, last_domain: str) -> list[str]:
    number, route = document["incident_id"], document["route"]
    steps = [
        acknowledge,
        f"specwatch incidents {number}",
        f"specwatch run now {route}",
        _SHOWS.get(document.get("kind", ""), "specwatch history {route} --since 24h").format(route=route),
    ]
    standing = [] if document.get("kind") else _standing(document, last_domain)
    return [
        *standing,
        *verbatim("next", steps),
        *(verbatim("link", [document["link"]]) if document["link"] else []),
        *verbatim("runbook", [document.get("runbook_url") or RUNBOOK]),
    ]


def _standing(document: Mapping[str, Any], last_domain: str) -> list[str]:
    """`last_domain`: what the impact was looked at in when the incident last moved."""
    current = [_current(name, verdict, document) for name, verdict in document["current"].items()]
    return [*impact_lines(document, of=last_domain if len(current) > 1 else None), *ranked("measured", current)]


def _current(name: str, verdict: Mapping[str, Any] | None, document: Mapping[str, Any]) -> Told:
    if verdict is None:
        return Told(name, ": not measured since it broke")
    when = f"run {verdict['run_id']}, {_ago(verdict, document)}, at {clock(verdict['finished_at'])}"
    return Told(name, f": {fallen(verdict)}, {when}", verdict["change"])
