"""What the documents of all incidents have in common, whatever opened them. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import verbatim
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

METRIC_NAMES = {
    "acceptance_length": "acceptance length",
    "tokens_per_step": "tokens per step",
    "accepted_per_step": "accepted tokens per step",
    "acceptance_rate": "acceptance rate",
    "throughput": "tokens per second",
    "first_position_survival": "first-position survival",
}

RUNBOOK = "specwatch runbook"
"""Where to read on when alerting.yaml names neither a runbook_url nor an external_url."""


def head(
    *,
    incident_id: int,
    transition: Transition,
    route: str,
    labels: Mapping[str, str],
    severity: str,
    involved: Mapping[str, Mapping[str, Any]],
    opened_at: datetime,
    now: datetime,
    external_url: str | None,
    route_domains: Collection[str] = (),
) -> dict[str, Any]:
    """The keys that receivers read of any transition; a kind of incident adds its own.

    `route_domains`: all that the route is measured by; empty for what is not of a route.
    """
    return {
        "incident_id": incident_id,
        "transition": transition.value,
        "route": route,
        "labels": dict(labels),
        "route_domains": sorted(route_domains),
        "severity": severity,
        "raised_from": None,
        "involved": {name: dict(involved[name]) for name in sorted(involved)},
        "verdict": None,
        "opened_at": opened_at.isoformat(),
        "happened_at": now.isoformat(),
        "link": None if external_url is None else f"{external_url}/incidents/{incident_id}",
        "runbook_url": None,
    }


def head_of_receiver(
    incident: Mapping[str, Any],
    kind: str,
    transition: Transition,
    receiver: str,
    now: datetime,
    external_url: str | None,
) -> dict[str, Any]:
    """The keys of a transition of an `incident`, by its document, that is of a receiver and not of a route."""
    common = head(
        incident_id=incident["id"],
        transition=transition,
        route=incident["route"],
        labels={"receiver": receiver},
        severity=incident["severity"],
        involved=incident["domains"],
        opened_at=datetime.fromisoformat(incident["opened_at"]),
        now=now,
        external_url=external_url,
    )
    return {**common, "kind": kind, "rule": kind, "domain": receiver}


def note_about(document: Mapping[str, Any]) -> tuple[str, int]:
    """What a note is about, by kind and number: it is of no incident."""
    kind = "silence" if "silence_id" in document else "bump"
    return kind, document[f"{kind}_id"]


def headline(document: Mapping[str, Any], told: str, step: str | None = None) -> str:
    """The first line: what is told, then what to run, or of what is over, without a `step`, the incident's number."""
    number = document["incident_id"]
    if document["transition"] == Transition.RESOLVED.value and step is None:
        return f"{told}; incident {number}"
    return f"{told}; next: {step or f'specwatch incidents {number}'}"


def alerted(incident: Mapping[str, Any] | None, confirming: Collection[str]) -> list[str]:
    """Whether anybody is alerted of what a message finds: the route's open incident, domains being confirmed."""
    parts = [] if incident is None else [f"incident {incident['id']} ({incident['severity']}) is open"]
    return [*parts, *(["an alert follows if confirmation runs agree"] if confirming else [])]


def with_text(document: dict[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    """The document with its text: the summary, then these lines."""
    return {**document, "text": "\n".join([document["summary"], *lines])}


def next_lines(document: Mapping[str, Any], steps: Sequence[str], first: str | None = None) -> list[str]:
    """What to do next: `first`, where the first line names that, the incident's own page of the shell, the `steps`.

    Below them its link where it has one.
    """
    own = f"specwatch incidents {document['incident_id']}"
    lines = verbatim("next", list(dict.fromkeys([*([first] if first else []), own, *steps])))
    return [*lines, *verbatim("link", [document["link"]])] if document["link"] else lines
