"""The body of an event for PagerDuty, Events API version 2. Pure.

Source: https://developer.pagerduty.com/docs/events-api-v2-overview (fields and their limits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import links
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping

SEVERITIES = {"page": "critical", "warning": "warning"}
ACTIONS = {Transition.RESOLVED.value: "resolve", Transition.ACKNOWLEDGED.value: "acknowledge"}
"""What is done to the alert at these transitions; every other adds to it, or opens it."""
MAX_SUMMARY = 1024
MAX_KEY = 255


def event_body(
    routing_key: str, incident_id: int, document: Mapping[str, Any], external_url: str | None
) -> dict[str, Any]:
    """A trigger for an incident that opens or changes, an acknowledge for who looks after it, a resolve for its end,
    all with one key.

    PagerDuty adds further triggers of a key to the alert that is open, so a repeat wakes nobody twice.
    """
    body = {
        "routing_key": routing_key,
        "event_action": ACTIONS.get(document["transition"], "trigger"),
        "dedup_key": dedup_key(incident_id, document),
        "payload": {
            "summary": document["summary"][:MAX_SUMMARY],
            "source": document.get("replica") or document["route"],
            "severity": SEVERITIES[document["severity"]],
            "timestamp": document["happened_at"],
            "component": document["route"],
            "class": document.get("rule") or "acceptance",
            "custom_details": {
                "text": document["text"],
                "domains": list(document["domains"] or document.get("involved") or [document["domain"]]),
                "labels": dict(document["labels"]),
            },
        },
        "client": "Specwatch",
        "links": [{"href": url, "text": title} for title, url in links(document)],
    }
    page = document["link"] or external_url
    return body if page is None else {**body, "client_url": page}


def acts_on_alert(document: Mapping[str, Any]) -> bool:
    """Whether it acknowledges or resolves an alert that is there, and triggers none."""
    return document["transition"] in ACTIONS


def dedup_key(incident_id: int, document: Mapping[str, Any]) -> str:
    """One for the life of an incident, and another one for the same number in another store.

    The end of a long route name is left out: number and time tell incidents apart.
    """
    end = f"/{incident_id}/{document['opened_at']}"
    return f"specwatch/{document['route']}"[: MAX_KEY - len(end)] + end


def change_url(events_url: str) -> str:
    """Where change events go, beside the address of events."""
    return f"{events_url.rstrip('/').removesuffix('/enqueue')}/change/enqueue"


def change_body(routing_key: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A change event of what is told of no incident, of a bump or a silence: shown beside incidents, wakes nobody.

    Source: https://developer.pagerduty.com/docs/send-change-event.
    """
    return {
        "routing_key": routing_key,
        "payload": {
            "summary": document["summary"][:MAX_SUMMARY],
            "source": document["route"],
            "timestamp": document["happened_at"],
            "custom_details": {
                "text": document["text"],
                **({"announced": document["announcement"] is not None} if "announcement" in document else {}),
                "labels": dict(document["labels"]),
            },
        },
        "links": [{"href": url, "text": title} for title, url in links(document)],
    }
