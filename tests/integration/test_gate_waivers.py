"""Waivers of gates: kept for good, shown in later verdicts of the route, and no verdict is another for one."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.core.gate import GateReason
from monitor.core.gate_verdict import GateSide, GateThresholds, GateVerdict
from monitor.errors import UsageError
from monitor.store.forget import forget_route
from monitor.store.gate_requests import begin, finish
from tests.factories import START

if TYPE_CHECKING:
    from monitor.store.database import Database

LATER = datetime.now().astimezone() + timedelta(hours=1)
"""When the gates after a waiver end."""


def keep(database: Database, reason: GateReason, at: datetime = START, route: str = "chat") -> int:
    verdict = GateVerdict(
        route=route,
        against="production",
        candidate=GateSide("http://candidate:8000", None),
        reference=GateSide("http://vllm-0:8000", None),
        thresholds=GateThresholds("acceptance_length", 0.1, 12, 900.0, {"math": 1.0}),
        concurrency=4,
        sampling={},
        started_at=at,
        finished_at=at,
        refusal=(reason, "as the test wants it"),
    )
    with database.transaction() as connection:
        gate_id = begin(connection, verdict.as_dict())
        assert finish(connection, gate_id, verdict.as_dict(), verdict.finished_at)
    return gate_id


def specwatch(database: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"DATABASE_URL": database.url.render_as_string(hide_password=False)})


def shown(database: Database, gate_id: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(specwatch(database, "gates", str(gate_id), "--format", "json").stdout)
    return found


def waive(database: Database, gate_id: int, until: str = "7d") -> Result:
    words = ("--by", "ann", "--reason", "rollback drill", "--until", until)
    return specwatch(database, "gate", "waive", str(gate_id), *words)


def test_a_waiver_says_who_why_and_until_when_and_leaves_the_verdict(database: Database) -> None:
    gate_id = keep(database, GateReason.REGRESSION)
    before = shown(database, gate_id)
    result = waive(database, gate_id)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"gate {gate_id} (fail, regression) is waived until ")
    after = shown(database, gate_id)
    [waiver] = after.pop("waivers")
    assert after == {name: value for name, value in before.items() if name != "waivers"}
    assert (after["verdict"], after["exit_code"], before["waivers"]) == ("fail", 10, [])
    assert (waiver["gate"], waiver["by"], waiver["reason"]) == (gate_id, "ann", "rollback drill")
    assert waiver["waived"] == {"verdict": "fail", "reason": "regression"}
    length = datetime.fromisoformat(waiver["until"]) - datetime.fromisoformat(waiver["created_at"])
    assert timedelta(days=6, hours=23) < length <= timedelta(days=7)


def test_later_gates_of_the_route_show_it_until_it_ends_and_no_others_do(database: Database) -> None:
    waived = keep(database, GateReason.UNDECIDED)
    waive(database, waived)
    later = keep(database, GateReason.REGRESSION, LATER)
    over = keep(database, GateReason.REGRESSION, LATER + timedelta(days=7))
    other = keep(database, GateReason.REGRESSION, LATER, route="code")
    earlier = keep(database, GateReason.REGRESSION)
    assert [waiver["gate"] for waiver in shown(database, later)["waivers"]] == [waived]
    assert shown(database, later)["exit_code"] == 10
    for gate_id in (over, other, earlier):
        assert shown(database, gate_id)["waivers"] == []
    told = " ".join(specwatch(database, "gates", str(later)).stdout.split())
    assert f"waiver gate {waived} (inconclusive, undecided) is waived until" in told


def test_the_list_of_gates_names_who_waived_which(database: Database) -> None:
    waived = keep(database, GateReason.REGRESSION)
    waive(database, waived)
    keep(database, GateReason.REGRESSION, LATER)
    text = specwatch(database, "gates", "--format", "markdown").stdout
    assert [(" by ann |" in line) for line in text.splitlines()[2:]] == [False, True]
    table = specwatch(database, "gates").stdout.splitlines()
    assert max(map(len, table)) <= 100
    assert "waived until (" in table[2]


def test_junit_and_markdown_name_the_waiver_and_stay_failures(database: Database) -> None:
    gate_id = keep(database, GateReason.REGRESSION)
    waive(database, gate_id)
    suite = ElementTree.fromstring(specwatch(database, "gates", str(gate_id), "--format", "junit").stdout)[0]
    assert suite.get("failures") == "1"
    [waiver] = suite.findall("properties/property")
    assert str(waiver.get("value")).startswith("this gate is waived until ")
    assert "- waiver: this gate is waived" in specwatch(database, "gates", str(gate_id), "--format", "markdown").stdout


@pytest.mark.parametrize(
    ("reason", "words"), [(GateReason.NO_REGRESSION, "passed: there is nothing to waive"), (None, "there is no gate 1")]
)
def test_what_passed_or_is_not_there_cannot_be_waived(
    database: Database, reason: GateReason | None, words: str
) -> None:
    if reason is not None:
        keep(database, reason)
    result = waive(database, 1)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


@pytest.mark.parametrize(("until", "words"), [("2020-01-01", "is over"), ("soon", "neither a duration")])
def test_an_end_that_is_past_or_none_is_refused(database: Database, until: str, words: str) -> None:
    result = waive(database, keep(database, GateReason.REGRESSION), until)
    assert (result.exit_code, words in result.output) == (2, True), result.output


def test_a_route_with_the_name_of_a_command_can_still_be_asked() -> None:
    result = CliRunner().invoke(cli, ["gate", "run", "waive", "--candidate", "http://x", "--max-tokens", "5"])
    assert "--max-tokens is for a gate without ROUTE" in result.output


def test_help_of_gate_leads_to_every_option() -> None:
    text = click.unstyle(CliRunner().invoke(cli, ["gate", "--help"]).stdout)
    assert "specwatch gate run" in text
    assert "waive" in text


def test_a_forgotten_route_takes_its_gates_and_their_waivers_with_it(database: Database) -> None:
    waive(database, keep(database, GateReason.REGRESSION))
    other = keep(database, GateReason.REGRESSION, route="batch")
    waive(database, other)
    with database.transaction() as connection:
        forget_route(connection, "chat")
    assert [gate["id"] for gate in json.loads(specwatch(database, "gates", "--format", "json").stdout)] == [other]
    assert [waiver["gate"] for waiver in shown(database, other)["waivers"]] == [other]
