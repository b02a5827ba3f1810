"""What other receivers are told of one that could not be told. Pure.

The first line alone says at three in the morning which receiver, what it was not told since when, why, and what to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, head_of_receiver, headline, next_lines, with_text
from monitor.alerting.layout import clock, duration, labelled, subject, verbatim
from monitor.core.format import count
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

KIND = "undelivered"


def undelivered_event(
    incident: Mapping[str, Any],
    transition: Transition,
    receiver: str,
    lost: Mapping[str, Any],
    *,
    why: str,
    raised_from: str | None,
    told: Collection[str],
    now: datetime,
    external_url: str | None,
    runbook_url: str | None,
) -> dict[str, Any]:
    """The document of the opening of the receiver's `incident`, or of a later loss that somebody is to hear of.

    `lost`: the document of the message that did not arrive. `told`: who is told of that now.
    """
    number = lost.get("incident_id")
    document = {
        **head_of_receiver(incident, KIND, transition, receiver, now, external_url),
        "raised_from": raised_from,
        "domains": [receiver],
        "reason": why,
        "since": lost["happened_at"],
        "lost": {"summary": lost["summary"], "incident_id": number},
        "runbook_url": runbook_url,
    }
    of = f" of incident {number}" if number else ""
    said = (
        f"{incident['severity'].upper()} {incident['route']}: could not deliver, since {clock(lost['happened_at'])}, "
        f"“{subject(lost['summary'])}”{of}: {why}"
    )
    test = f"specwatch receivers test {receiver}"
    document["summary"] = headline(document, said, test)
    steps = [
        f"specwatch receivers retry {receiver}",
        *([f"specwatch incidents {number}"] if number else []),
    ]
    lines = [
        *labelled("not told", lost["summary"]),
        *labelled("why", why),
        *labelled("told of it", ", ".join(sorted(told)) or "nobody: there is no other receiver"),
        *labelled("meanwhile", f"no more is said of {receiver} until it takes a message; it may miss others too"),
        *next_lines(document, steps, first=test),
        *verbatim("runbook", [runbook_url or RUNBOOK]),
    ]
    return with_text(document, lines)


def delivered_event(
    incident: Mapping[str, Any], receiver: str, *, missed: int, now: datetime, external_url: str | None
) -> dict[str, Any]:
    """The document of the end: the receiver took a message. `missed`: how many it was sent meanwhile and never got."""
    document = {
        **head_of_receiver(incident, KIND, Transition.RESOLVED, receiver, now, external_url),
        "domains": [],
        "reason": "it took a message",
        "missed": missed,
    }
    lasted = duration(incident["opened_at"], now.isoformat())
    left = f"{count(missed, 'message')} never reached it" if missed else "nothing that it missed is left to tell"
    document["summary"] = headline(
        document, f"RESOLVED {incident['route']}: it takes messages again, after {lasted}; {left}"
    )
    return with_text(document, next_lines(document, [f"specwatch receivers retry {receiver}"] if missed else []))
