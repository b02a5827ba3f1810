"""What is said before a silence ends whose incident still fires. Neither firing nor resolved: a note. Pure.

It is told in time to prolong the silence: when it has ended, what it held is told.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from monitor.alerting.document import with_text
from monitor.alerting.domains import named
from monitor.alerting.layout import clock, duration, figures_of, labelled, verbatim
from monitor.core.bumps import NOTE
from monitor.core.format import silenced

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime


def silence_end_event(
    silence: Mapping[str, Any],
    route: str,
    labels: Mapping[str, str],
    incidents: Sequence[Mapping[str, Any]],
    *,
    route_domains: Collection[str],
    now: datetime,
    runbook_url: str | None,
) -> dict[str, Any]:
    """The document. `incidents`: those of the route that still fire, each with `id`, `severity`, `domains`,
    `opened_at`, `acknowledged_by`, and the `summary` of what was last told of it, at `told_at`.
    """
    document: dict[str, Any] = {
        "silence_id": silence["id"],
        "transition": NOTE,
        "route": route,
        "labels": dict(labels),
        "route_domains": sorted(route_domains),
        "silence": dict(silence),
        "incidents": [dict(incident) for incident in incidents],
        "opened_at": silence["created_at"],
        "happened_at": now.isoformat(),
        "link": None,
        "runbook_url": runbook_url,
    }
    document["summary"] = _summary(document)
    return with_text(document, _lines(document))


def _summary(document: Mapping[str, Any]) -> str:
    silence, incidents = document["silence"], document["incidents"]
    domains = dict.fromkeys(domain for incident in incidents for domain in incident["domains"])
    left = duration(document["happened_at"], silence["ends_at"])
    fire = [f"incident {incident['id']} ({incident['severity']})" for incident in incidents]
    still = "is still open" if len(fire) == 1 else "are still open"
    of = named(domains, document["route_domains"])
    figures = figures_of(incidents[0]["summary"])
    return (
        f"SILENCE ENDS SOON {document['route']} · {of}: “{silence['reason']}” by {silence['by']} "
        f"ends in {left}, at {clock(silence['ends_at'])}, and {' and '.join(fire)} {still}: {figures}; "
        f"next: specwatch incidents {incidents[0]['id']}"
    )


def _lines(document: Mapping[str, Any]) -> list[str]:
    silence, incidents = document["silence"], document["incidents"]
    said = f"silence {silence['id']} of {silenced(silence)}, by {silence['by']}: {silence['reason']}"
    those = "it" if len(incidents) == 1 else "them"
    return [
        *labelled("silence", said),
        *(line for incident in incidents for line in labelled(f"incident {incident['id']}", _told(incident))),
        *labelled(
            "then",
            f"receivers that have not heard of {those} are told at that time; to keep silent, add a silence before",
        ),
        *verbatim("next", [*(f"specwatch incidents {incident['id']}" for incident in incidents), _anew(silence)]),
        *(verbatim("runbook", [url]) if (url := document["runbook_url"]) else []),
    ]


def _told(incident: Mapping[str, Any]) -> str:
    """Since when it is open, who looks after it, and what was last told of it, at that time."""
    by = incident["acknowledged_by"]
    looked_after = "acknowledged by nobody" if by is None else f"acknowledged by {by}"
    told = f"as told at {clock(incident['told_at'])}: {figures_of(incident['summary'])}"
    return f"{incident['severity']}, open since {clock(incident['opened_at'])}, {looked_after}; {told}"


def _anew(silence: Mapping[str, Any]) -> str:
    """What makes the same silence for another two hours."""
    options = {"--route": silence["route"], "--severity": silence["severity"]}
    words = [word for option, value in options.items() if value for word in (option, value)]
    words += [word for name, value in sorted(silence["labels"].items()) for word in ("--label", f"{name}={value}")]
    return shlex.join(["specwatch", "silence", "add", "--by", "NAME", "--reason", "REASON", "--for", "2h", *words])
