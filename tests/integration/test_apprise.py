"""Receivers by Apprise, with its own json:// scheme to a real local server: what arrives, and what does not in time."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from monitor.alerting.posting import Arrival, Failure, Why
from monitor.alerting.receivers import build_receivers
from monitor.cli import cli
from monitor.core.bumps import NOTE
from monitor.errors import ConfigError
from monitor.store.outbox import Delivery
from tests.acceptance.hooks import Hook
from tests.factories import ROUTE, make_alerting, make_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.alerting.receivers import Receiver


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with Hook().running() as found:
        monkeypatch.setenv("APPRISE_URL", f"json://user:s3cret@{found.url.split('/')[2]}/s3cret")
        yield found


@pytest.fixture
def elsewhere() -> Iterator[list[logging.LogRecord]]:
    """What of Apprise's log reaches the handlers of ours."""
    handler, found = logging.Handler(), list[logging.LogRecord]()
    handler.emit = lambda record: found.append(record) if record.name == "apprise" else None  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)


def receiver(**settings: Any) -> Receiver:
    kind = {"apprise": {"url": {"env": "APPRISE_URL"}, **settings}}
    return build_receivers(make_alerting(receivers=[{"name": "there", **kind}]))["there"]


def delivery(transition: str = "opened", **changes: Any) -> Delivery:
    return Delivery(5, "there", 12, 8, transition, make_document(transition, **changes), 1)


@pytest.mark.parametrize(
    ("transition", "severity", "kind"),
    [
        ("opened", "page", "failure"),
        ("updated", "warning", "warning"),
        ("reminder", "page", "failure"),
        ("resolved", "page", "success"),
        (NOTE, None, "info"),
    ],
)
async def test_each_transition_is_a_message_of_its_own_with_the_first_line_as_its_title(
    service: Hook, transition: str, severity: str | None, kind: str
) -> None:
    answer = await receiver().send(delivery(transition, severity=severity))
    assert answer == Arrival("json:// by Apprise: accepted")
    [body] = [message.body for message in service.messages]
    assert (body["title"], body["message"], body["type"]) == (f"{transition} {ROUTE} · coding", "  evidence   …", kind)


@pytest.mark.parametrize(
    ("status", "final", "why"),
    [(401, True, Why.REFUSED), (404, True, Why.REFUSED), (429, False, Why.THROTTLED), (503, False, Why.ERROR)],
)
async def test_an_answer_is_read_as_those_of_other_receivers_and_nothing_of_the_address_is_said(
    service: Hook,
    status: int,
    final: bool,
    why: Why,
    elsewhere: list[logging.LogRecord],
) -> None:
    service.answer = status
    answer = await receiver().send(delivery())
    assert answer == Failure(f"json:// by Apprise: HTTP {status}", final)
    assert isinstance(answer, Failure)
    assert answer.why is why
    assert elsewhere == [], "what Apprise logs may quote the address"


async def test_a_service_that_is_not_there_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPRISE_URL", "json://127.0.0.1:1/s3cret")
    answer = await receiver().send(delivery())
    assert answer == Failure("json:// by Apprise: it could not deliver the message")


async def test_a_service_that_is_silent_is_given_up_when_its_time_is_over(service: Hook) -> None:
    service.delay_seconds = 1.5
    began = time.monotonic()
    answer = await receiver(timeout="300ms").send(delivery())
    assert time.monotonic() - began < 1.2
    assert isinstance(answer, Failure)
    assert not answer.final


async def test_the_setting_and_not_apprises_own_four_seconds_is_the_time_that_a_service_has(service: Hook) -> None:
    service.delay_seconds = 4.5
    assert isinstance(await receiver(timeout="8s").send(delivery()), Arrival)


async def test_an_address_that_apprise_does_not_know_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPRISE_URL", "nosuch://s3cret/1")
    answer = await receiver().send(delivery())
    assert isinstance(answer, Failure)
    assert (answer.why, answer.final) == (Why.SECRET, False)
    assert answer.error.startswith("nosuch:// by Apprise: Apprise knows no such service")


async def test_the_secret_is_read_from_a_file_that_the_variable_names(
    service: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(service.url.replace("http", "json") + "\n")
    monkeypatch.delenv("APPRISE_URL")
    monkeypatch.setenv("APPRISE_URL_FILE", str(tmp_path / "url"))
    assert isinstance(await receiver().send(delivery()), Arrival)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError) as raised:
        receiver()
    assert str(raised.value) == (
        "alerting.yaml: receiver there is sent to by Apprise, which is not installed; "
        "install it with: pip install 'specwatch[apprise]'"
    )


def test_it_is_listed_as_trigger_only_and_tested_as_others_are(tmp_path: Path, service: Hook) -> None:
    route = {"name": ROUTE, "replicas": ["http://vllm-0:8000"], "domains": ["coding"]}
    (tmp_path / "routes.yaml").write_text(yaml.safe_dump({"routes": [route]}))
    receivers = [{"name": "there", "apprise": {"url": {"env": "APPRISE_URL"}}}]
    rules = [{"name": "acceptance-drop", "drop": "15%"}]
    (tmp_path / "alerting.yaml").write_text(yaml.safe_dump({"rules": rules, "receivers": receivers}))

    def specwatch(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["--config", str(tmp_path), "receivers", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "apprise (trigger-only)" in specwatch("list")
    [row] = json.loads(specwatch("list", "--format", "json"))
    assert (row["kind"], row["trigger_only"], row["where"]) == ("apprise", True, "json:// by Apprise")
    specwatch("test", "there")
    assert [message.body["type"] for message in service.messages] == ["warning", "success"]
