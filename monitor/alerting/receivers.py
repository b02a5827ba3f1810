"""Receivers: one class per kind, one registry. `docs/contributing.md` lists the steps to add one."""

from __future__ import annotations

import abc
import asyncio
import json
import logging
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from monitor.alerting import alertmanager, apprise_services, mail, pagerduty, slack, teams
from monitor.alerting.own_threads import OwnThreads
from monitor.alerting.peers import Peers
from monitor.alerting.posting import Arrival, Failure, Post, Why, host_of, post
from monitor.alerting.signing import signed_headers
from monitor.config.receivers import Alertmanager, Apprise, Email, Log, PagerDuty, Slack, Teams, Webhook
from monitor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from monitor.config.alerting import Alerting
    from monitor.config.secrets import Secret
    from monitor.store.outbox import Delivery

logger = logging.getLogger("specwatch.alerts")

RESEND_EVERY_SECONDS = 60.0
"""Alertmanager forgets an alert that is not sent again; ours are given four times as long."""


def _now() -> datetime:
    return datetime.now(UTC)


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
        level = logging.INFO if delivery.is_note else logging.WARNING
        logger.log(level, "%s", delivery.document["text"], extra={"delivery": delivery.key})
        return Arrival("written to the log")


class _PostingReceiver(abc.ABC):
    """POSTs a body in JSON; any 2xx is arrival. Says host and cause, and never more of the address."""

    def __init__(self, name: str, settings: Any, external_url: str | None) -> None:
        self.name = name
        self.settings = settings
        self.external_url = external_url

    def where(self) -> str:
        return host_of(_revealed(self.settings.url))

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        try:
            request = self.request(delivery)
        except ConfigError as error:
            return Failure(str(error), why=Why.SECRET)
        return await post(request, self.settings.timeout.total_seconds())

    @abc.abstractmethod
    def request(self, delivery: Delivery) -> Post:
        """What is sent, in the shape of the other side. Raises ConfigError when a secret of it cannot be had."""


class WebhookReceiver(_PostingReceiver):
    """Alertmanager's version-4 body, with the key of the delivery, and signed when there is a secret to sign with."""

    settings: Webhook

    def request(self, delivery: Delivery) -> Post:
        if delivery.is_note:
            document = alertmanager.webhook_note(self.name, delivery.document, self.external_url)
        else:
            document = alertmanager.webhook_body(self.name, delivery.incident_id, delivery.document, self.external_url)
        body = _encoded(document)
        own = {name: _revealed(value) for name, value in self.settings.headers.items()}
        signed = {}
        if self.settings.signing_secret is not None:
            secret = _revealed(self.settings.signing_secret)
            signed = signed_headers(secret, delivery.key, int(time.time()), body)
        return Post(_revealed(self.settings.url), body, {**own, "X-Specwatch-Delivery": delivery.key, **signed})


class AlertmanagerReceiver:
    """Alerts for every peer of an Alertmanager; what one of them takes has arrived, since all are sent it again.

    While `lock` is held nothing else is sent: what is read and sent again under it is never older than what was sent.
    """

    def __init__(self, name: str, settings: Alertmanager, now: Callable[[], datetime] = _now) -> None:
        self.settings = settings
        self.lock = asyncio.Lock()
        self.now = now
        self.peers = Peers(name, settings.urls)

    def where(self) -> str:
        return ", ".join(map(host_of, self.settings.urls))

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        if delivery.is_note:
            return Arrival("not sent: an Alertmanager takes only what fires or has ended")
        async with self.lock:
            return await self.post([(delivery.incident_id, delivery.document)])

    async def post(self, incidents: Sequence[tuple[int, Mapping[str, Any]]]) -> Arrival | Failure:
        """The alerts of these incidents, by number and document, to each peer at once; none of them asks the peers."""
        lasts = timedelta(seconds=4 * RESEND_EVERY_SECONDS)
        alerts = [alert for number, doc in incidents for alert in alertmanager.api_body(number, doc, self.now(), lasts)]
        try:
            headers = {name: _revealed(value) for name, value in self.settings.headers.items()}
        except ConfigError as error:
            return Failure(str(error), why=Why.SECRET)
        posts = [Post(f"{url}/api/v2/alerts", _encoded(alerts), headers) for url in self.settings.urls]
        seconds = self.settings.timeout.total_seconds()
        answers = await asyncio.gather(*(post(request, seconds) for request in posts))
        self.peers.note(dict(zip(self.peers.names, answers, strict=True)), self.now())
        return _of_peers(answers)


def _of_peers(answers: Sequence[Arrival | Failure]) -> Arrival | Failure:
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    arrivals = [answer.answer for answer in answers if isinstance(answer, Arrival)]
    missed = "; ".join(failure.error for failure in failures)
    if arrivals:
        return Arrival("; ".join(arrivals) + (f"; a peer did not take it: {missed}" if missed else ""))
    pauses = [failure.retry_after_seconds for failure in failures if failure.retry_after_seconds is not None]
    final = all(failure.final for failure in failures)
    why = next(failure.why for failure in failures if final or not failure.final)
    return Failure(missed, final, max(pauses, default=None), why=why)


class PagerDutyReceiver(_PostingReceiver):
    """Triggers, acknowledges and resolves one alert per incident; a bump is a change event.

    What acts on an alert that is there is sent under the former keys as well, since one of them may have triggered it:
    under a key that did not, PagerDuty takes it and does nothing.
    """

    settings: PagerDuty

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        answer = await super().send(delivery)
        former = self.settings.former_routing_keys
        if (
            isinstance(answer, Failure)
            or delivery.is_note
            or not pagerduty.acts_on_alert(delivery.document)
            or not former
        ):
            return answer
        try:
            posts = [self._event(_revealed(key), delivery) for key in former]
        except ConfigError as error:
            return Failure(str(error), why=Why.SECRET)
        answers = [await post(request, self.settings.timeout.total_seconds()) for request in posts]
        again = next((one for one in answers if isinstance(one, Failure) and not one.final), None)
        if again is not None:
            return replace(again, error=f"under a former key: {again.error}")
        told = (one.error if isinstance(one, Failure) else one.answer for one in answers)
        return Arrival("; under a former key: ".join([answer.answer, *told]))

    def request(self, delivery: Delivery) -> Post:
        routing_key = _revealed(self.settings.routing_key)
        if delivery.is_note:
            url = pagerduty.change_url(self.settings.url)
            return Post(url, _encoded(pagerduty.change_body(routing_key, delivery.document)))
        return self._event(routing_key, delivery)

    def _event(self, routing_key: str, delivery: Delivery) -> Post:
        document = pagerduty.event_body(routing_key, delivery.incident_id, delivery.document, self.external_url)
        return Post(self.settings.url, _encoded(document))


class SlackReceiver(_PostingReceiver):
    """A message in the channel of an incoming web hook."""

    settings: Slack

    def request(self, delivery: Delivery) -> Post:
        return Post(_revealed(self.settings.url), _encoded(slack.message_body(delivery.document)))


class TeamsReceiver(_PostingReceiver):
    """A card in the chat or channel of a workflow."""

    settings: Teams

    def request(self, delivery: Delivery) -> Post:
        return Post(_revealed(self.settings.url), _encoded(teams.card_body(delivery.document)))


class EmailReceiver:
    """A mail in text and HTML over SMTP; acceptance by the server is arrival."""

    def __init__(self, settings: Email) -> None:
        self.settings = settings
        self._threads = OwnThreads()

    def where(self) -> str:
        return f"{', '.join(self.settings.to)} by {self.settings.host}:{self.settings.port}"

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        settings = self.settings
        message = mail.made_message(settings.sender, settings.to, delivery.key, delivery.incident_id, delivery.document)
        seconds = settings.timeout.total_seconds()
        try:
            credentials = self._credentials()
            async with asyncio.timeout(seconds):
                return await self._threads.run(
                    mail.handed_over, message, settings.host, settings.port, settings.security, credentials, seconds
                )
        except ConfigError as error:
            return Failure(str(error), why=Why.SECRET)
        except TimeoutError:
            return Failure(f"{settings.host}:{settings.port}: no answer within {seconds:g} s", why=Why.NO_ANSWER)

    def _credentials(self) -> tuple[str, str] | None:
        if self.settings.user is None or self.settings.password is None:
            return None
        return self.settings.user, _revealed(self.settings.password)


class AppriseReceiver:
    """A message by one of the services that Apprise knows; what it takes has arrived. Needs its extra to be made."""

    def __init__(self, name: str, settings: Apprise) -> None:
        apprise_services.require_apprise(name)
        self.settings = settings
        self._threads = OwnThreads()

    def where(self) -> str:
        return apprise_services.scheme_of(_revealed(self.settings.url))

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        """What is not done in time is tried again, though its thread may still deliver it: at least once."""
        seconds = self.settings.timeout.total_seconds()
        try:
            url = _revealed(self.settings.url)
            async with asyncio.timeout(seconds):
                return await self._threads.run(apprise_services.handed_over, url, delivery.document, seconds)
        except ConfigError as error:
            return Failure(str(error), why=Why.SECRET)
        except TimeoutError:
            return Failure(f"{self.where()}: no answer within {seconds:g} s", why=Why.NO_ANSWER)


def _encoded(document: Mapping[str, Any] | list[dict[str, Any]]) -> bytes:
    return json.dumps(document).encode()


def _revealed(value: str | Secret) -> str:
    """The text, or the secret as it is now. Raises ConfigError when it cannot be had."""
    return value if isinstance(value, str) else value.reveal(os.environ)


_KINDS: dict[type, Callable[[str, Any, str | None], Receiver]] = {
    Webhook: WebhookReceiver,
    Alertmanager: lambda name, settings, _: AlertmanagerReceiver(name, settings),
    PagerDuty: PagerDutyReceiver,
    Slack: SlackReceiver,
    Teams: TeamsReceiver,
    Email: lambda _, settings, __: EmailReceiver(settings),
    Apprise: lambda name, settings, _: AppriseReceiver(name, settings),
    Log: lambda *_: LogReceiver(),
}


TRIGGER_ONLY = (Apprise,)
"""Kinds that can end nothing and have no keys: to be told by, and nothing that a rota should hang on."""


def build_receivers(alerting: Alerting) -> dict[str, Receiver]:
    """Name → receiver, for every receiver of alerting.yaml. Raises ConfigError for one that is not installed."""
    return {
        receiver.name: _KINDS[type(receiver.settings)](receiver.name, receiver.settings, alerting.external_url)
        for receiver in alerting.receivers
    }
