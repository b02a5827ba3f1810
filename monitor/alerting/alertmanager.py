"""Alertmanager's two shapes of an alert: of its web hook, version 4, and of its API, version 2. Pure.

The first is what our web hooks send, so that what takes Alertmanager's messages takes these; the second is what
Alertmanager itself takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import note_about
from monitor.core.incidents import SEVERITIES, Transition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

NOT_ENDED = "0001-01-01T00:00:00Z"
"""Alertmanager's way to say that an alert has not ended."""
NAMES = {
    "stale": "SpecwatchNotMeasured",
    "speedup": "SpecwatchSpeedup",
    "undelivered": "SpecwatchUndelivered",
    "peer_down": "SpecwatchPeerDown",
}
"""Kind of incident → `alertname`, where it is not the drop's."""
API_KEYS = ("labels", "annotations", "startsAt", "endsAt", "generatorURL")


def webhook_body(
    receiver: str, incident_id: int, document: Mapping[str, Any], external_url: str | None
) -> dict[str, Any]:
    """One alert per incident, its labels its identity. A warning that becomes a page is another alert: the first ends.

    `severity` is a label because routing by it is what Alertmanager's receivers do; nothing else in the labels changes.
    """
    alerts = _alerts(incident_id, document)
    return {
        "version": "4",
        "groupKey": f"specwatch/{document['route']}/{incident_id}",
        "truncatedAlerts": 0,
        "status": alerts[0]["status"],
        "receiver": receiver,
        "groupLabels": {"route": document["route"]},
        "commonLabels": _common([alert["labels"] for alert in alerts]),
        "commonAnnotations": _common([alert["annotations"] for alert in alerts]),
        "externalURL": external_url or "",
        "alerts": alerts,
    }


def webhook_note(receiver: str, document: Mapping[str, Any], external_url: str | None) -> dict[str, Any]:
    """The same body with no alert in it and the status `note`: what loops over alerts does nothing."""
    labels = {**document["labels"], "route": document["route"]}
    kind, number = note_about(document)
    return {
        "version": "4",
        "groupKey": f"specwatch/{document['route']}/{kind}/{number}",
        "truncatedAlerts": 0,
        "status": document["transition"],
        "receiver": receiver,
        "groupLabels": {"route": document["route"]},
        "commonLabels": labels,
        "commonAnnotations": {"summary": document["summary"], "description": document["text"]},
        "externalURL": external_url or "",
        "alerts": [],
        kind: dict(document),
    }


def api_body(incident_id: int, document: Mapping[str, Any], now: datetime, lasts: timedelta) -> list[dict[str, Any]]:
    """The same for `POST /api/v2/alerts`; one that fires ends by itself `lasts` from now unless it is sent again."""
    alerts = [{key: alert[key] for key in API_KEYS} for alert in _alerts(incident_id, document)]
    until = (now + lasts).isoformat()
    return [{**alert, "endsAt": until if alert["endsAt"] == NOT_ENDED else alert["endsAt"]} for alert in alerts]


def _alerts(incident_id: int, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    resolved = document["transition"] == Transition.RESOLVED.value
    alerts = [_alert(incident_id, document, document["severity"], document["happened_at"] if resolved else None)]
    if document.get("raised_from") is not None:
        alerts.append(_alert(incident_id, document, document["raised_from"], document["happened_at"]))
    return alerts


def _alert(incident_id: int, document: Mapping[str, Any], severity: str, ends_at: str | None) -> dict[str, Any]:
    annotations = {
        "summary": document["summary"],
        "description": document["text"],
        "severity": document["severity"],
        "domains": ", ".join(document["domains"] or document.get("involved") or [document["domain"]]),
        "transition": document["transition"],
    }
    if source := document.get("source"):
        annotations["source"] = source
    runbook = document.get("runbook_url")
    return {
        "status": "firing" if ends_at is None else "resolved",
        "labels": {
            **document["labels"],
            "alertname": NAMES.get(document.get("kind", ""), "SpecwatchAcceptanceDrop"),
            "route": document["route"],
            "incident": str(incident_id),
            "severity": severity,
        },
        "annotations": annotations if runbook is None else {**annotations, "runbook_url": runbook},
        "startsAt": document["opened_at"],
        "endsAt": ends_at or NOT_ENDED,
        "generatorURL": document["link"] or "",
        "fingerprint": f"{SEVERITIES.index(severity):x}{incident_id:015x}",
    }


def _common(sets: list[dict[str, str]]) -> dict[str, str]:
    return {name: value for name, value in sets[0].items() if all(other.get(name) == value for other in sets)}
