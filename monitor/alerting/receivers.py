"""Who is told: one class per kind of receiver, one registry. `docs/contributing.md` lists the steps to add one."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from monitor.core.incidents import Transition
from monitor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.config.alerting import Alerting, Webhook
    from monitor.config.routes import Route
    from monitor.store.outbox import Delivery

logger = logging.getLogger("specwatch.alerts")

NEVER_SUCCEEDS = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
"""Answers that the same message will get again: the delivery is parked as dead and shown, not repeated."""
LONGEST_PAUSE_SECONDS = 86_400.0
"""A receiver that asks for a longer pause is tried again after a day all the same."""


@dataclass(frozen=True)
class Failure:
    """Why a delivery did not arrive; `retry_after_seconds` when the receiver asked for a pause, `final` when never."""

    error: str
    final: bool = False
    retry_after_seconds: float | None = None


class Receiver(Protocol):
    """Something that takes a delivery: None when it arrived."""

    async def send(self, delivery: Delivery) -> Failure | None: ...


class LogReceiver:
    """Writes the text to the program's log."""

    async def send(self, delivery: Delivery) -> Failure | None:
        logger.warning("%s", delivery.document["text"], extra={"delivery": delivery.key})
        return None


class WebhookReceiver:
    """POSTs Alertmanager's version-4 body; any 2xx is arrival."""

    def __init__(self, name: str, settings: Webhook, external_url: str | None) -> None:
        self.name = name
        self.settings = settings
        self.external_url = external_url

    async def send(self, delivery: Delivery) -> Failure | None:
        try:
            url, headers = self._address()
        except ConfigError as error:
            return Failure(str(error))
        body = webhook_body(self.name, delivery.incident_id, delivery.document, self.external_url)
        headers = {**headers, "X-Specwatch-Delivery": delivery.key}
        seconds = self.settings.timeout.total_seconds()
        try:
            # httpx limits each phase of a request; the whole of it must end within the setting.
            async with asyncio.timeout(seconds), httpx.AsyncClient(timeout=seconds) as client:
                response = await client.post(url, json=body, headers=headers)
        except TimeoutError:
            return Failure(f"no answer within {seconds:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Failure(f"{type(error).__name__}: no answer from the receiver")
        if response.is_success:
            return None
        final = response.status_code in NEVER_SUCCEEDS
        return Failure(f"HTTP {response.status_code}", final, retry_after(response.headers.get("Retry-After")))

    def _address(self) -> tuple[str, dict[str, str]]:
        def revealed(value: Any) -> str:
            return value if isinstance(value, str) else str(value.reveal(os.environ))

        headers = {name: revealed(value) for name, value in self.settings.headers.items()}
        return revealed(self.settings.url), headers


def build_receivers(alerting: Alerting) -> dict[str, Receiver]:
    """Name → receiver, for every receiver of alerting.yaml."""
    found: dict[str, Receiver] = {}
    for settings in alerting.receivers:
        if settings.webhook is not None:
            found[settings.name] = WebhookReceiver(settings.name, settings.webhook, alerting.external_url)
        else:
            found[settings.name] = LogReceiver()
    return found


def receivers_for(alerting: Alerting, route: Route, severity: str) -> set[str]:
    """Names of the receivers that alerting.yaml routes this route and severity to."""
    return {
        entry.receiver
        for entry in alerting.routing
        if severity in entry.severity
        and (entry.routes is None or route.name in entry.routes)
        and all(route.labels.get(name) == value for name, value in entry.match.items())
    }


def webhook_body(
    receiver: str, incident_id: int, document: Mapping[str, Any], external_url: str | None
) -> dict[str, Any]:
    """Alertmanager's webhook body, version 4: one alert per incident, its labels the incident's identity for life."""
    resolved = document["transition"] == Transition.RESOLVED.value
    status = "resolved" if resolved else "firing"
    labels = {
        **document["labels"],
        "alertname": "SpecwatchAcceptanceDrop",
        "route": document["route"],
        "incident": str(incident_id),
    }
    annotations = {
        "summary": document["summary"],
        "description": document["text"],
        "severity": document["severity"],
        "domains": ", ".join(document["domains"] or [document["domain"]]),
        "transition": document["transition"],
    }
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": document["opened_at"],
        "endsAt": document["happened_at"] if resolved else "0001-01-01T00:00:00Z",
        "generatorURL": document["link"] or "",
        "fingerprint": f"{incident_id:016x}",
    }
    return {
        "version": "4",
        "groupKey": f"specwatch/{document['route']}/{incident_id}",
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": {"route": document["route"]},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": external_url or "",
        "alerts": [alert],
    }


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds a Retry-After header asks for, from either of its forms; None when absent or unreadable.

    A date without a zone is UTC, as HTTP dates are. Never more than LONGEST_PAUSE_SECONDS.
    """
    if value is None:
        return None
    seconds = float(value) if value.strip().isdecimal() else _seconds_until(value, now or datetime.now(UTC))
    return None if seconds is None else min(max(0.0, seconds), LONGEST_PAUSE_SECONDS)


def _seconds_until(http_date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(http_date)
    except (ValueError, OverflowError):
        return None
    return (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
