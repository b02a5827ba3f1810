"""`specwatch receivers` and `config check`: who would be told what, and whether it arrives; no store is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import SpecwatchError
from tests.acceptance.hooks import Hook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULE = {"name": "acceptance-drop", "drop": "15%"}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with Hook().running() as found:
        monkeypatch.setenv("HOOK_URL", f"{found.url}/s3cret")
        yield found


def specwatch(directory: Path, *arguments: str, **alerting: Any) -> Result:
    """With one route and two receivers, a log and a hook whose address is a secret."""
    route = {"name": "chat-prod", "replicas": ["http://vllm-0:8000"], "domains": ["coding"]}
    receivers = [{"name": "log", "log": {}}, {"name": "hook", "webhook": {"url": {"env": "HOOK_URL"}}}]
    (directory / "routes.yaml").write_text(yaml.safe_dump({"routes": [route]}))
    (directory / "alerting.yaml").write_text(yaml.safe_dump({"rules": [RULE], "receivers": receivers, **alerting}))
    return CliRunner().invoke(cli, ["--config", str(directory), *arguments])


def error(result: Result) -> tuple[int, str]:
    assert isinstance(result.exception, SpecwatchError)
    return result.exception.exit_code, str(result.exception)


def test_a_test_reaches_the_receiver_as_a_marked_alert_and_its_end(tmp_path: Path, hook: Hook) -> None:
    result = specwatch(tmp_path, "receivers", "test", "hook")
    host = hook.url.split("/")[2]
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        f"TEST of receiver hook: this is not an alert, nothing is wrong\n  sent to hook: {host}: HTTP 200\n"
        f"RESOLVED TEST of receiver hook: this is not an alert, nothing is wrong\n  sent to hook: {host}: HTTP 200\n"
    )
    firing, resolved = (message.body for message in hook.messages)
    assert (firing["status"], resolved["status"]) == ("firing", "resolved")
    assert firing["commonLabels"] == resolved["commonLabels"]
    assert (firing["commonLabels"]["test"], firing["commonLabels"]["severity"]) == ("true", "warning")
    assert len({message.key for message in hook.messages}) == 2


def test_a_test_can_have_the_severity_of_a_page(tmp_path: Path, hook: Hook) -> None:
    assert specwatch(tmp_path, "receivers", "test", "hook", "--severity", "page").exit_code == 0
    assert {message.body["commonLabels"]["severity"] for message in hook.messages} == {"page"}


def test_a_test_that_is_not_accepted_ends_with_13_and_the_answer(tmp_path: Path, hook: Hook) -> None:
    hook.answer = 401
    result = specwatch(tmp_path, "receivers", "test", "hook")
    host = hook.url.split("/")[2]
    assert error(result) == (13, f"hook: the test message was not accepted: {host}: HTTP 401")
    assert "s3cret" not in result.output
    assert len(hook.messages) == 1


def test_a_test_of_a_receiver_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    result = specwatch(tmp_path, "receivers", "test", "nope")
    assert error(result) == (2, "there is no receiver nope in alerting.yaml; there are: log, hook")


def test_receivers_are_listed_with_where_they_are_and_what_they_hear(tmp_path: Path, hook: Hook) -> None:
    routing = [{"receiver": "hook", "severity": ["page"]}]
    result = specwatch(tmp_path, "receivers", "list", "--format", "json", routing=routing)
    assert json.loads(result.stdout) == [
        {
            "name": "log",
            "kind": "log",
            "trigger_only": False,
            "where": "the log",
            "hears": {"page": [], "warning": []},
            "peers": None,
        },
        {
            "name": "hook",
            "kind": "webhook",
            "trigger_only": False,
            "where": hook.url.split("/")[2],
            "hears": {"page": ["chat-prod"], "warning": []},
            "peers": None,
        },
    ]


def test_a_receiver_whose_address_is_not_known_now_is_listed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_URL", raising=False)
    _, hook = json.loads(specwatch(tmp_path, "receivers", "list", "--format", "json").stdout)
    assert hook["where"].startswith("environment variable HOOK_URL is not set")


def test_checking_the_configuration_shows_who_would_be_told_what(tmp_path: Path, hook: Hook) -> None:
    result = specwatch(tmp_path, "config", "check", routing=[{"receiver": "hook", "severity": ["page"]}])
    lines = result.stdout.splitlines()
    assert lines[0].endswith(": 1 route, 1 rule, no problems")
    assert lines[2:] == [
        "  receiver log → the log: nothing",
        f"  receiver hook → {hook.url.split('/')[2]}: page of chat-prod",
    ]


def test_every_peer_of_an_alertmanager_is_shown_with_what_it_answers_now(tmp_path: Path, hook: Hook) -> None:
    up, down = hook.url.split("/")[2], "127.0.0.1:1"
    receivers = [{"name": "am", "alertmanager": {"urls": [f"http://{up}", f"http://{down}"]}}]
    [row] = json.loads(specwatch(tmp_path, "receivers", "list", "--format", "json", receivers=receivers).stdout)
    assert row["peers"] == {up: f"{up}: HTTP 200", down: f"{down}: connection refused"}
    assert [message.body for message in hook.messages] == [[]], "no alert is sent to ask"
    tested = specwatch(tmp_path, "receivers", "test", "am", receivers=receivers)
    assert tested.exit_code == 0, tested.output
    said = f"  sent to am: {up}: HTTP 200; a peer did not take it: {down}: connection refused"
    assert tested.stdout.splitlines()[1::2] == [said, said]
