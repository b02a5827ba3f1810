"""Who is told: one class per kind of receiver, one registry. `docs/contributing.md` lists the steps to add one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import httpx

from monitor.alerting.payload import webhook_body
from monitor.core.incidents import SEVERITIES
from monitor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from monitor.config.alerting import Alerting, Webhook
    from monitor.config.routes import Route
    from monitor.store.outbox import Delivery

logger = logging.getLogger("specwatch.alerts")

NEVER_SUCCEEDS = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
"""Answers that the same message will get again: the delivery is parked as dead and shown, not repeated."""
LONGEST_PAUSE_SECONDS = 86_400.0
"""A receiver that asks for a longer pause is tried again after a day all the same."""


@dataclass(frozen=True)
class Arrival:
    """A delivery was accepted; `answer` is where and how: `alerts.example:9000: HTTP 200`."""

    answer: str


@dataclass(frozen=True)
class Failure:
    """Why a delivery did not arrive; `retry_after_seconds` when the receiver asked for a pause, `final` when never."""

    error: str
    final: bool = False
    retry_after_seconds: float | None = None


class Receiver(Protocol):
    """Something that takes a delivery."""

    def where(self) -> str:
        """Where deliveries go, without what may be secret of it. Raises ConfigError when that cannot be known now."""
        ...

    async def send(self, delivery: Delivery) -> Arrival | Failure: ...


class LogReceiver:
    """Writes the text to the program's log."""

    def where(self) -> str:
        return "the log"

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        logger.warning("%s", delivery.document["text"], extra={"delivery": delivery.key})
        return Arrival("written to the log")


class WebhookReceiver:
    """POSTs Alertmanager's version-4 body; any 2xx is arrival. Says host and cause, and never more of the address."""

    def __init__(self, name: str, settings: Webhook, external_url: str | None) -> None:
        self.name = name
        self.settings = settings
        self.external_url = external_url

    def where(self) -> str:
        return host_of(self._address()[0])

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        try:
            url, headers = self._address()
        except ConfigError as error:
            return Failure(str(error))
        body = webhook_body(self.name, delivery.incident_id, delivery.document, self.external_url)
        headers = {**headers, "X-Specwatch-Delivery": delivery.key}
        seconds = self.settings.timeout.total_seconds()
        host = host_of(url)
        try:
            # httpx limits each phase of a request; the whole of it must end within the setting.
            async with asyncio.timeout(seconds), httpx.AsyncClient(timeout=seconds) as client:
                response = await client.post(url, json=body, headers=headers)
        except TimeoutError:
            return Failure(f"{host}: no answer within {seconds:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Failure(f"{host}: {_cause(error)}")
        answer = f"{host}: HTTP {response.status_code}"
        if response.is_success:
            return Arrival(answer)
        final = response.status_code in NEVER_SUCCEEDS
        return Failure(answer, final, retry_after(response.headers.get("Retry-After")))

    def _address(self) -> tuple[str, dict[str, str]]:
        def revealed(value: Any) -> str:
            return value if isinstance(value, str) else str(value.reveal(os.environ))

        headers = {name: revealed(value) for name, value in self.settings.headers.items()}
        return revealed(self.settings.url), headers


def heard(alerting: Alerting, routes: Iterable[Route]) -> dict[str, dict[str, list[str]]]:
    """Receiver → severity → names of the routes it hears of at that severity; severest first, nothing left out."""
    found: dict[str, dict[str, list[str]]] = {
        receiver.name: {severity: [] for severity in reversed(SEVERITIES)} for receiver in alerting.receivers
    }
    for route in routes:
        for severity in SEVERITIES:
            for name in receivers_for(alerting, route, severity):
                found[name][severity].append(route.name)
    return found


def host_of(url: str) -> str:
    """Host and port of an address: what may be shown of it, since its path or query may be a secret."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "its URL, which names no host"
    except ValueError:
        return "its URL, which is not one"


def _cause(error: Exception) -> str:
    """What went wrong, in words that hold nothing of the request: the libraries' own may quote its address."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is refused ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return "no TLS connection; perhaps it speaks plain http://"
        if isinstance(cause, socket.gaierror):
            return "the host name cannot be resolved"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
    known = [words for kind, words in _MEANINGS.items() if isinstance(error, kind)]
    return known[0] if known else f"the request failed ({type(error).__name__})"


_MEANINGS = {
    httpx.ConnectTimeout: "no connection within the time allowed",
    httpx.TimeoutException: "no answer within the time allowed",
    httpx.ConnectError: "no connection",
    httpx.NetworkError: "the connection broke before an answer",
    httpx.RemoteProtocolError: "it closed the connection without an answer, or does not speak HTTP",
    httpx.UnsupportedProtocol: "its URL does not begin with http:// or https://",
    httpx.InvalidURL: "its URL is not one",
}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from; of several attempts to connect, one per address of the host, each."""
    if error is None:
        return
    yield error
    for inner in getattr(error, "exceptions", ()):
        yield from _causes(inner)
    yield from _causes(error.__cause__ or error.__context__)


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


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds a Retry-After header asks for, from either of its forms; None when absent or unreadable.

    A date without a zone is UTC, as HTTP dates are. Never more than LONGEST_PAUSE_SECONDS.
    """
    if value is None:
        return None
    text = value.strip()
    seconds = float(text) if text.isdecimal() else _seconds_until(text, now or datetime.now(UTC))
    return None if seconds is None else min(max(0.0, seconds), LONGEST_PAUSE_SECONDS)


def _seconds_until(http_date: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(http_date)
    except (ValueError, OverflowError):
        return None
    return (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
