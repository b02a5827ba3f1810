"""What the incident of an Alertmanager's peers that take no alerts says. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, head_of_receiver, headline, next_lines, with_text
from monitor.alerting.layout import clock, duration, labelled, verbatim
from monitor.core.incidents import Transition
from monitor.core.peers import KIND

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime


LIST = "specwatch receivers list"


def peers_event(
    incident: Mapping[str, Any],
    transition: Transition,
    receiver: str,
    answers: Mapping[str, str],
    taking: Collection[str],
    *,
    now: datetime,
    external_url: str | None,
    runbook_url: str | None,
) -> dict[str, Any]:
    """The document of one transition. `answers`: every peer of the receiver → what it answered last, with its host;
    `taking`: those that took what they were sent last.
    """
    down = {name: domain for name, domain in incident["domains"].items() if domain["left_at"] is None}
    document = {
        **head_of_receiver(incident, KIND, transition, receiver, now, external_url),
        "domain": ", ".join(sorted(down or incident["domains"])),
        "domains": sorted(down),
        "peers": dict(answers),
        "reason": "; ".join(answers[name] for name in sorted(down) if name in answers) or None,
        "runbook_url": None if transition is Transition.RESOLVED else runbook_url,
    }
    if transition is Transition.RESOLVED:
        lasted = duration(incident["opened_at"], now.isoformat())
        again = f"{_takes(incident['domains'])} alerts again, {lasted} after it was told"
        told = f"RESOLVED {incident['route']}: {document['domain']} {again}; what is open was sent there"
        document["summary"] = headline(document, told)
        return with_text(document, next_lines(document, []))
    since = min(domain["joined_at"] for domain in down.values())
    left = [name for name in answers if name in taking]
    others = f"{', '.join(left)} {_takes(left)} them" if left else "no other peer is left"
    document["since"] = since
    told = (
        f"{incident['severity'].upper()} {incident['route']}: {document['domain']} {_takes(down)} no alerts since "
        f"{clock(since)}; {others}"
    )
    document["summary"] = headline(document, told, LIST)
    lines = [
        *verbatim("peers", [answers[name] for name in sorted(answers)]),
        *labelled("meaning", _meaning(left)),
        *next_lines(document, [], first=LIST),
        *verbatim("runbook", [runbook_url or RUNBOOK]),
    ]
    return with_text(document, lines)


def _takes(names: Collection[str]) -> str:
    return "takes" if len(names) == 1 else "take"


def _meaning(left: list[str]) -> str:
    if left:
        return (
            "alerts arrive, with fewer peers to tell of them; a peer is sent what is open within a minute of its return"
        )
    return "no alert arrives there; messages wait in the outbox, and are sent within an hour of a peer's return"
