"""What is told, with which body, and when a failed message is tried again."""

from __future__ import annotations

import asyncio
import base64
import errno
import functools
import hmac
import json
import socket
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.alerting.alertmanager import api_body, webhook_body
from monitor.alerting.posting import LONGEST_PAUSE_SECONDS, Arrival, Failure, Why, host_of, retry_after
from monitor.alerting.receivers import (
    AlertmanagerReceiver,
    EmailReceiver,
    LogReceiver,
    PagerDutyReceiver,
    SlackReceiver,
    TeamsReceiver,
    WebhookReceiver,
    build_receivers,
)
from monitor.alerting.sender import LONGEST_RETRY_SECONDS, retry_delay_seconds
from monitor.alerting.signing import signed_headers
from monitor.core.incidents import Transition
from monitor.errors import ConfigError
from monitor.store.outbox import Delivery
from tests.factories import make_alerting

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
DOCUMENT: dict[str, Any] = {
    "transition": "opened",
    "route": "chat-prod",
    "labels": {"team": "chat"},
    "severity": "page",
    "domain": "coding",
    "domains": ["coding", "math"],
    "opened_at": "2026-03-02T10:11:00+00:00",
    "happened_at": "2026-03-02T10:31:00+00:00",
    "link": "https://specwatch.example.com/incidents/12",
    "summary": "PAGE chat-prod · coding: …",
    "text": "PAGE chat-prod · coding: …\n  evidence   …",
}
DELIVERY = Delivery(5, "hook", 12, 8, "opened", DOCUMENT, 1)


def test_the_body_is_alertmanagers_version_4() -> None:
    labels = {
        "alertname": "SpecwatchAcceptanceDrop",
        "route": "chat-prod",
        "incident": "12",
        "severity": "page",
        "team": "chat",
    }
    annotations = {
        "summary": "PAGE chat-prod · coding: …",
        "description": "PAGE chat-prod · coding: …\n  evidence   …",
        "severity": "page",
        "domains": "coding, math",
        "transition": "opened",
    }
    assert webhook_body("hook", 12, DOCUMENT, "https://specwatch.example.com") == {
        "version": "4",
        "groupKey": "specwatch/chat-prod/12",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "hook",
        "groupLabels": {"route": "chat-prod"},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "https://specwatch.example.com",
        "alerts": [
            {
                "status": "firing",
                "labels": labels,
                "annotations": annotations,
                "startsAt": "2026-03-02T10:11:00+00:00",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "https://specwatch.example.com/incidents/12",
                "fingerprint": "100000000000000c",
            }
        ],
    }


def test_a_resolved_body_ends_the_same_alert() -> None:
    opened = webhook_body("hook", 12, DOCUMENT, None)
    resolved = webhook_body("hook", 12, {**DOCUMENT, "transition": "resolved", "domains": [], "link": None}, None)
    assert (resolved["status"], resolved["alerts"][0]["status"]) == ("resolved", "resolved")
    assert resolved["alerts"][0]["endsAt"] == "2026-03-02T10:31:00+00:00"
    assert resolved["alerts"][0]["annotations"]["domains"] == "coding"
    assert (resolved["externalURL"], resolved["alerts"][0]["generatorURL"]) == ("", "")
    for same in ("groupKey", "groupLabels", "commonLabels"):
        assert resolved[same] == opened[same]
    assert resolved["alerts"][0]["fingerprint"] == opened["alerts"][0]["fingerprint"]


def test_a_warning_that_becomes_a_page_is_a_new_alert_and_the_end_of_the_old_one() -> None:
    """Alertmanager's identity of an alert is all of its labels, the severity among them."""
    warned = webhook_body("hook", 12, {**DOCUMENT, "severity": "warning"}, None)
    raised = webhook_body("hook", 12, {**DOCUMENT, "transition": "updated", "raised_from": "warning"}, None)
    resolved = webhook_body("hook", 12, {**DOCUMENT, "transition": "resolved"}, None)
    page, warning = raised["alerts"]
    assert (raised["status"], page["status"], warning["status"]) == ("firing", "firing", "resolved")
    assert (page["labels"]["severity"], warning["labels"]) == ("page", warned["alerts"][0]["labels"])
    assert (page["endsAt"], warning["endsAt"]) == ("0001-01-01T00:00:00Z", "2026-03-02T10:31:00+00:00")
    assert warning["fingerprint"] == warned["alerts"][0]["fingerprint"] != page["fingerprint"]
    assert "severity" not in raised["commonLabels"]
    assert raised["groupKey"] == warned["groupKey"]
    [end] = resolved["alerts"]
    assert (end["labels"], end["fingerprint"]) == (page["labels"], page["fingerprint"])


def test_a_runbook_is_an_annotation_where_there_is_one() -> None:
    body = webhook_body("hook", 12, {**DOCUMENT, "runbook_url": "https://wiki.example.com/specwatch"}, None)
    assert body["commonAnnotations"]["runbook_url"] == "https://wiki.example.com/specwatch"
    assert "runbook_url" not in webhook_body("hook", 12, {**DOCUMENT, "runbook_url": None}, None)["commonAnnotations"]


def test_a_resolution_names_every_domain_that_was_broken() -> None:
    resolved = {**DOCUMENT, "transition": "resolved", "domains": [], "involved": {"coding": {}, "math": {}}}
    assert webhook_body("hook", 12, resolved, None)["commonAnnotations"]["domains"] == "coding, math"


def test_a_label_of_the_users_cannot_take_the_place_of_the_incidents_identity() -> None:
    body = webhook_body("hook", 12, {**DOCUMENT, "labels": {"incident": "none", "tier": "gold"}}, None)
    assert body["commonLabels"]["incident"] == "12"
    assert body["commonLabels"]["tier"] == "gold"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("-3", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("", None),
        ("Mon, 02 Mar 2026 10:00:30 GMT", 30.0),
        ("Mon, 02 Mar 2026 11:00:30 +0100", 30.0),
        ("Mon, 02 Mar 2026 10:00:30", 30.0),
        ("Mon, 02 Mar 2026 09:00:00 GMT", 0.0),
        ("Mon, 02 Mar 99999 10:00:00 GMT", None),
        ("9" * 400, LONGEST_PAUSE_SECONDS),
        ("Mon, 02 Mar 2099 10:00:00 GMT", LONGEST_PAUSE_SECONDS),
    ],
)
def test_a_receiver_may_ask_for_a_pause_in_seconds_or_until_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds
    assert retry_after(header, NOW.astimezone(timezone(timedelta(hours=9)))) == seconds


@given(st.text())
def test_no_header_breaks_the_sender(header: str) -> None:
    seconds = retry_after(header)
    assert seconds is None or 0 <= seconds <= LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize(
    ("attempts", "jitter", "seconds"),
    [(1, 1.0, 5.0), (1, 0.0, 2.5), (2, 1.0, 10.0), (5, 0.5, 60.0), (10, 1.0, 2560.0), (11, 1.0, 3600.0)],
)
def test_the_pause_doubles_from_five_seconds_to_an_hour(attempts: int, jitter: float, seconds: float) -> None:
    assert retry_delay_seconds(attempts, Failure("HTTP 500"), jitter) == seconds


def test_a_receiver_is_never_tried_sooner_than_it_asked() -> None:
    assert retry_delay_seconds(1, Failure("HTTP 429", retry_after_seconds=90.0), 1.0) == 90.0
    assert retry_delay_seconds(9, Failure("HTTP 429", retry_after_seconds=90.0), 1.0) == 1280.0


@given(st.integers(1, 100), st.floats(0, 1))
def test_every_attempt_waits_and_none_longer_than_an_hour(attempts: int, jitter: float) -> None:
    assert 2.5 <= retry_delay_seconds(attempts, Failure("HTTP 500"), jitter) <= LONGEST_RETRY_SECONDS


def test_each_receiver_is_built_by_its_kind_and_says_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_URL", "TEAMS_URL"):
        monkeypatch.setenv(name, f"https://{name[:5].lower()}.example/s3cret")
    mail = {"host": "smtp.example", "sender": "a@b.example", "to": ["c@d.example", "e@f.example"]}
    receivers = [
        {"name": "console", "log": {}},
        {"name": "hook", "webhook": {"url": "http://alerts:9000/hook"}},
        {"name": "peers", "alertmanager": {"urls": ["http://am-0:9093/", "http://am-1:9093"]}},
        {"name": "pager", "pagerduty": {"routing_key": {"env": "KEY"}}},
        {"name": "chat", "slack": {"url": {"env": "SLACK_URL"}}},
        {"name": "office", "teams": {"url": {"env": "TEAMS_URL"}}},
        {"name": "mail", "email": mail},
    ]
    built = build_receivers(make_alerting(receivers=receivers))
    assert {name: (type(receiver), receiver.where()) for name, receiver in built.items()} == {
        "console": (LogReceiver, "the log"),
        "hook": (WebhookReceiver, "alerts:9000"),
        "peers": (AlertmanagerReceiver, "am-0:9093, am-1:9093"),
        "pager": (PagerDutyReceiver, "events.pagerduty.com"),
        "chat": (SlackReceiver, "slack.example"),
        "office": (TeamsReceiver, "teams.example"),
        "mail": (EmailReceiver, "c@d.example, e@f.example by smtp.example:587"),
    }


async def test_the_log_receiver_writes_the_whole_text(caplog: pytest.LogCaptureFixture) -> None:
    assert await LogReceiver().send(DELIVERY) == Arrival("written to the log")
    assert [record.getMessage() for record in caplog.records] == [DOCUMENT["text"]]
    assert caplog.records[0].__dict__["delivery"] == "specwatch-8-hook"


async def sent(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[httpx.Request], Any], **settings: Any
) -> Arrival | Failure:
    """What a webhook receiver makes of this answer; nothing leaves the process."""
    return await sent_by(monkeypatch, answer, {"webhook": {"url": "http://alerts:9000/hook", **settings}})


async def sent_by(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[httpx.Request], Any],
    kind: dict[str, Any],
    delivery: Delivery = DELIVERY,
) -> Arrival | Failure:
    """The same of a receiver of any kind that POSTs."""
    client = functools.partial(httpx.AsyncClient, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(httpx, "AsyncClient", client)
    (receiver,) = build_receivers(make_alerting(receivers=[{"name": "hook", **kind}])).values()
    return await receiver.send(delivery)


KINDS = [
    ({"pagerduty": {"routing_key": {"env": "SECRET"}}}, "https://events.pagerduty.com/v2/enqueue"),
    ({"slack": {"url": {"env": "SECRET_URL"}}}, "https://chat.example/s3cret"),
    ({"teams": {"url": {"env": "SECRET_URL"}}}, "https://chat.example/s3cret"),
]


@pytest.mark.parametrize(("kind", "url"), KINDS, ids=["pagerduty", "slack", "teams"])
@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (202, {}, (Arrival, False, None)),
        (400, {}, (Failure, True, None)),
        (403, {}, (Failure, True, None)),
        (429, {"Retry-After": "30"}, (Failure, False, 30.0)),
        (500, {}, (Failure, False, None)),
    ],
)
async def test_every_kind_that_posts_reads_an_answer_alike(
    monkeypatch: pytest.MonkeyPatch,
    kind: dict[str, Any],
    url: str,
    status: int,
    headers: dict[str, str],
    outcome: tuple[type, bool, float | None],
) -> None:
    monkeypatch.setenv("SECRET", "R0123")
    monkeypatch.setenv("SECRET_URL", "https://chat.example/s3cret")
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, headers=headers)

    found = await sent_by(monkeypatch, answer, kind)
    assert (seen[0].method, str(seen[0].url)) == ("POST", url)
    assert seen[0].headers["Content-Type"] == "application/json"
    assert DOCUMENT["summary"] in json.dumps(json.loads(seen[0].content), ensure_ascii=False)
    said = found.answer if isinstance(found, Arrival) else found.error
    assert said.endswith(f": HTTP {status}")
    assert "s3cret" not in said
    final, pause = (False, None) if isinstance(found, Arrival) else (found.final, found.retry_after_seconds)
    assert (type(found), final, pause) == outcome


EXCHANGED = {"pagerduty": {"routing_key": {"env": "NEW"}, "former_routing_keys": [{"env": "OLD"}, {"env": "OLDER"}]}}


def of_transition(transition: Transition) -> Delivery:
    return replace(DELIVERY, transition=transition.value, document={**DOCUMENT, "transition": transition.value})


@pytest.mark.parametrize(
    ("transition", "under"),
    [
        (Transition.OPENED, ["new"]),
        (Transition.UPDATED, ["new"]),
        (Transition.ACKNOWLEDGED, ["new", "old", "older"]),
        (Transition.RESOLVED, ["new", "old", "older"]),
    ],
)
async def test_what_acts_on_an_alert_is_sent_under_the_keys_too_that_may_have_triggered_it(
    monkeypatch: pytest.MonkeyPatch, transition: Transition, under: list[str]
) -> None:
    seen = exchanged(monkeypatch)
    assert isinstance(await sent_by(monkeypatch, seen.answer, EXCHANGED, of_transition(transition)), Arrival)
    assert [body["routing_key"] for body in seen.bodies] == under
    assert len({body["dedup_key"] for body in seen.bodies}) == 1


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (
            400,
            Arrival(
                "events.pagerduty.com: HTTP 202; under a former key: events.pagerduty.com: HTTP 400; "
                "under a former key: events.pagerduty.com: HTTP 202"
            ),
        ),
        (500, Failure("under a former key: events.pagerduty.com: HTTP 500", why=Why.ERROR)),
    ],
    ids=["refused for good", "to be tried again"],
)
async def test_a_former_key_that_is_refused_holds_nothing_up_and_one_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, status: int, outcome: Arrival | Failure
) -> None:
    seen = exchanged(monkeypatch, old=status)
    assert await sent_by(monkeypatch, seen.answer, EXCHANGED, of_transition(Transition.RESOLVED)) == outcome


async def test_a_former_key_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = exchanged(monkeypatch)
    monkeypatch.delenv("OLD")
    found = await sent_by(monkeypatch, seen.answer, EXCHANGED, of_transition(Transition.RESOLVED))
    assert isinstance(found, Failure)
    assert (found.why, "OLD" in found.error) == (Why.SECRET, True)


class Exchanged:
    """PagerDuty, as it answers by key."""

    def __init__(self, old: int) -> None:
        self.old = old
        self.bodies: list[dict[str, Any]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        return httpx.Response(self.old if self.bodies[-1]["routing_key"] == "old" else 202)


def exchanged(monkeypatch: pytest.MonkeyPatch, old: int = 202) -> Exchanged:
    for name in ("NEW", "OLD", "OLDER"):
        monkeypatch.setenv(name, name.lower())
    return Exchanged(old)


PEERS = {"alertmanager": {"urls": ["http://am-0:9093/", "http://am-1:9093"]}}


async def test_every_peer_of_an_alertmanager_is_sent_the_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    assert await sent_by(monkeypatch, answer, PEERS) == Arrival("am-0:9093: HTTP 200; am-1:9093: HTTP 200")
    assert {str(request.url) for request in seen} == {
        "http://am-0:9093/api/v2/alerts",
        "http://am-1:9093/api/v2/alerts",
    }
    [alert] = json.loads(seen[0].content)
    [as_hook] = webhook_body("hook", 12, DOCUMENT, None)["alerts"]
    assert alert["labels"] == as_hook["labels"]
    assert alert["annotations"]["summary"] == DOCUMENT["summary"]
    assert 200 < (datetime.fromisoformat(alert["endsAt"]) - datetime.now(UTC)).total_seconds() < 250
    assert json.loads(seen[0].content) == json.loads(seen[1].content)


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ((200, 500), Arrival("am-0:9093: HTTP 200; a peer did not take it: am-1:9093: HTTP 500")),
        ((400, 500), Failure("am-0:9093: HTTP 400; am-1:9093: HTTP 500")),
        ((400, 400), Failure("am-0:9093: HTTP 400; am-1:9093: HTTP 400", final=True)),
    ],
)
async def test_one_peer_is_enough_since_all_are_sent_it_again(
    monkeypatch: pytest.MonkeyPatch, statuses: tuple[int, int], outcome: Arrival | Failure
) -> None:
    by_host = dict(zip(("am-0", "am-1"), statuses, strict=True))
    assert await sent_by(monkeypatch, lambda r: httpx.Response(by_host[r.url.host]), PEERS) == outcome


def test_an_alert_for_the_api_ends_when_the_incident_did() -> None:
    ended = {**DOCUMENT, "transition": "resolved"}
    [alert] = api_body(12, ended, NOW, timedelta(minutes=4))
    assert alert["endsAt"] == DOCUMENT["happened_at"]
    assert set(alert) == {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
    [fires] = api_body(12, DOCUMENT, NOW, timedelta(minutes=4))
    assert fires["endsAt"] == "2026-03-02T10:04:00+00:00"
    assert (fires["labels"], fires["startsAt"]) == (alert["labels"], alert["startsAt"])


@pytest.mark.parametrize(("kind", "url"), KINDS, ids=["pagerduty", "slack", "teams"])
async def test_a_secret_that_cannot_be_had_is_a_failure_that_may_pass(
    monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any], url: str
) -> None:
    for name in ("SECRET", "SECRET_URL"):
        monkeypatch.delenv(name, raising=False)
    failure = await sent_by(monkeypatch, lambda request: httpx.Response(200), kind)
    assert isinstance(failure, Failure)
    assert failure.error.startswith("environment variable SECRET")
    assert not failure.final


async def test_a_signed_message_can_be_checked_as_standard_webhooks_says(monkeypatch: pytest.MonkeyPatch) -> None:
    key = bytes(range(32))
    monkeypatch.setenv("SIGNING", f"whsec_{base64.b64encode(key).decode()}")
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    assert await sent(monkeypatch, answer, signing_secret={"env": "SIGNING"}) == Arrival("alerts:9000: HTTP 204")
    headers = seen[0].headers
    assert headers["webhook-id"] == headers["X-Specwatch-Delivery"] == "specwatch-8-hook"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + seen[0].content
    expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_a_signature_is_that_of_the_specifications_example() -> None:
    """The vector that the specification's own libraries are tested with."""
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "secret", ["s3cret", "whsec_", "whsec_###", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
)
def test_a_signing_secret_of_another_shape_is_refused_unquoted(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"the signing secret is not whsec_ followed by a key of 24 bytes") as caught:
        signed_headers(secret, "id", 0, b"")
    assert "s3cret" not in str(caught.value)


async def test_a_webhook_is_posted_with_its_headers_and_the_key_of_the_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "s3cret")
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    headers = {"X-Team": "chat", "Authorization": {"env": "HOOK_TOKEN"}}
    assert await sent(monkeypatch, answer, headers=headers) == Arrival("alerts:9000: HTTP 204")
    assert (seen[0].method, str(seen[0].url)) == ("POST", "http://alerts:9000/hook")
    assert seen[0].headers["X-Specwatch-Delivery"] == "specwatch-8-hook"
    assert (seen[0].headers["X-Team"], seen[0].headers["Authorization"]) == ("chat", "s3cret")
    assert json.loads(seen[0].content) == webhook_body("hook", 12, DOCUMENT, "https://specwatch.example.com")


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (200, {}, Arrival("alerts:9000: HTTP 200")),
        (302, {"Location": "/login"}, Failure("alerts:9000: HTTP 302")),
        (400, {}, Failure("alerts:9000: HTTP 400", final=True)),
        (401, {}, Failure("alerts:9000: HTTP 401", final=True)),
        (408, {}, Failure("alerts:9000: HTTP 408")),
        (429, {"Retry-After": "30"}, Failure("alerts:9000: HTTP 429", retry_after_seconds=30.0)),
        (500, {}, Failure("alerts:9000: HTTP 500")),
        (503, {"Retry-After": "soon"}, Failure("alerts:9000: HTTP 503")),
    ],
)
async def test_an_answer_is_arrival_a_reason_to_try_again_or_final(
    monkeypatch: pytest.MonkeyPatch, status: int, headers: dict[str, str], outcome: Arrival | Failure
) -> None:
    assert await sent(monkeypatch, lambda request: httpx.Response(status, headers=headers)) == outcome


@pytest.mark.parametrize(("status", "why"), [(401, Why.REFUSED), (429, Why.THROTTLED), (503, Why.ERROR)])
async def test_a_failure_is_counted_by_what_the_receiver_means(
    monkeypatch: pytest.MonkeyPatch, status: int, why: Why
) -> None:
    failure = await sent(monkeypatch, lambda request: httpx.Response(status))
    assert isinstance(failure, Failure)
    assert failure.why is why


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


REFUSED = OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 9000)")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (caused(httpx.ConnectError("All attempts failed"), ExceptionGroup("", [REFUSED])), "connection refused"),
        (caused(httpx.ConnectError(""), socket.gaierror(-2, "")), "the host name cannot be resolved"),
        (caused(httpx.ConnectError(""), ssl.SSLError("")), "no TLS connection; perhaps it speaks plain http://"),
        (httpx.ConnectError("to /hook?token=s3cret"), "no connection"),
        (httpx.ConnectTimeout(""), "no connection within the time allowed"),
        (httpx.ReadTimeout(""), "no answer within the time allowed"),
        (httpx.UnsupportedProtocol("in 's3cret'"), "its URL does not begin with http:// or https://"),
        (httpx.ReadError(""), "the connection broke before an answer"),
        (
            httpx.RemoteProtocolError(""),
            "it closed the connection without an answer, or does not speak HTTP",
        ),
        (httpx.TooManyRedirects("to /hook?token=s3cret"), "the request failed (TooManyRedirects)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_failure_names_host_and_cause_and_no_more_of_the_address(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    monkeypatch.setenv("HOOK_URL", "http://user:pass@alerts.example:9000/hook?token=s3cret")
    assert await sent(monkeypatch, answer, url={"env": "HOOK_URL"}) == Failure(f"alerts.example:9000: {words}")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://hooks.example.com/services/T0/s3cret", "hooks.example.com"),
        ("http://alerts:9000/?token=s3cret", "alerts:9000"),
        ("http://user:s3cret@alerts:9000", "alerts:9000"),
        ("http://[::1]:9000/hook", "[::1]:9000"),
        ("s3cret", "its URL, which names no host"),
        ("http://[s3cret", "its URL, which is not one"),
    ],
)
def test_only_host_and_port_of_an_address_are_shown(url: str, host: str) -> None:
    assert host_of(url) == host


async def test_a_receiver_that_never_finishes_its_answer_is_left_at_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    assert await sent(monkeypatch, answer, timeout="20ms") == Failure("alerts:9000: no answer within 0.02 s")


async def test_a_secret_that_is_missing_now_may_be_there_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK_URL", raising=False)
    failure = await sent(monkeypatch, lambda request: httpx.Response(200), url={"env": "HOOK_URL"})
    assert failure == Failure(
        "environment variable HOOK_URL is not set; set it, or set HOOK_URL_FILE to the path of a file"
    )
