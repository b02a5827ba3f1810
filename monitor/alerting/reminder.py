"""What is said again of an incident that is open and that nobody looks after. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, with_text
from monitor.alerting.layout import clock, duration, verbatim
from monitor.alerting.text import fallen, named
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


def reminder_event(
    last: Mapping[str, Any],
    *,
    severity: str,
    opened_at: datetime,
    now: datetime,
    involved: Mapping[str, Mapping[str, Any]],
    current: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, Any]:
    """The document of a reminder: as the incident's `last`, with today's figures; without runs to judge, as last told.

    `opened_at`: when it last opened. `current`: every domain that is broken now → its newest valid verdict with
    `run_id` and `finished_at`, or None.
    """
    names = _worst_first(current)
    document: dict[str, Any] = {
        **last,
        "transition": Transition.REMINDER.value,
        "severity": severity,
        "raised_from": None,
        "domain": names[0],
        "domains": sorted(current),
        "involved": {name: dict(involved[name]) for name in sorted(involved)},
        "verdict": current[names[0]],
        "current": {name: current[name] for name in names},
        "joined": {},
        "ended_at": None,
        "happened_at": now.isoformat(),
    }
    figures = _as_told(last) if last.get("kind") else _figures(document)
    document["summary"] = (
        f"{severity.upper()}, STILL {document['route']} · {named(names)}: {figures}; "
        f"open for {duration(opened_at.isoformat(), now.isoformat())}, nobody has acknowledged it"
    )
    return with_text(document, _lines(document))


def _worst_first(current: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """What was not measured since it broke comes last; what a floor broke has no fall."""

    def fall(name: str) -> tuple[bool, float, str]:
        verdict = current[name]
        return (verdict is None, 0.0 if verdict is None else verdict["change"] or -1.0, name)

    return sorted(current, key=fall)


def _figures(document: Mapping[str, Any]) -> str:
    verdict = document["verdict"]
    if verdict is None:
        return "not measured since"
    which = f"{document['domain']}, the worst, " if len(document["domains"]) > 1 else ""
    return f"{which}{fallen(verdict)}"


def _as_told(last: Mapping[str, Any]) -> str:
    """An incident of another kind than acceptance: no verdict on a run tells how it stands."""
    return f"{last['summary'].partition(': ')[2]} (told {clock(last['happened_at'])})"


_SHOWS = {"stale": "specwatch runs --route {route}", "speedup": "specwatch speedup {route}"}
"""What shows how an incident of this kind stands; those of acceptance have none."""


def _lines(document: Mapping[str, Any]) -> list[str]:
    number, route = document["incident_id"], document["route"]
    steps = [
        f"specwatch incidents {number}",
        f"specwatch incidents ack {number} --by NAME",
        _SHOWS.get(document.get("kind", ""), "specwatch history {route} --since 24h").format(route=route),
    ]
    return [
        *([] if document.get("kind") else verbatim("now", [_current(*one) for one in document["current"].items()])),
        *verbatim("next", steps),
        *(verbatim("link", [document["link"]]) if document["link"] else []),
        *verbatim("runbook", [document.get("runbook_url") or RUNBOOK]),
    ]


def _current(name: str, verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return f"{name}: not measured since it broke"
    return f"{name}: {fallen(verdict)}, run {verdict['run_id']} at {clock(verdict['finished_at'])}"
