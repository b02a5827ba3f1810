"""`specwatch compare`: stored runs, days, identities and baselines beside each other."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete

from monitor.cli import cli
from monitor.core.records import Reason
from monitor.errors import UsageError
from monitor.store import approvals, baselines
from monitor.store.runs import store_run
from monitor.store.schema import samples
from tests.factories import IDENTITY, ROUTE, START, make_run

if TYPE_CHECKING:
    from monitor.core.records import Run
    from monitor.store.database import Database

OLD = replace(IDENTITY, fingerprint="vllm-0.32.0-0a7585a5", drafter=None)
NEW = replace(OLD, fingerprint="vllm-0.32.0-0ade4c40", version="0.32.0")
MONDAY, TUESDAY = START, START + timedelta(days=1)


def store(database: Database, *runs: Run) -> None:
    with database.transaction() as connection:
        for run in runs:
            store_run(connection, uuid.uuid4().hex, run)


@pytest.fixture
def stored(database: Database) -> Database:
    """Run 1, run 2 that lost a tenth and one prompt half, run 3 of another K, run 4 of another domain."""
    fallen = {f"q{number:02}": 2.16 for number in range(23)} | {"q23": 1.2}
    store(database, make_run(2.4), make_run(fallen), make_run(2.4, k=4), make_run(2.4, domain="math"))
    return database


@pytest.fixture
def days(database: Database) -> Database:
    """Monday three runs of each of two domains (1 to 6, identity 1), Tuesday as many with coding a tenth lower (7 to
    12, identity 7), and three more of coding: 13 of another concurrency, 14 invalid, 15 a gate's.
    """
    monday = [
        make_run(2.4, domain=domain, identity=OLD, started_at=MONDAY + timedelta(hours=n))
        for domain in ("coding", "math")
        for n in range(3)
    ]
    tuesday = [
        make_run(
            2.16 if domain == "coding" else 2.4, domain=domain, identity=NEW, started_at=TUESDAY + timedelta(hours=n)
        )
        for domain in ("coding", "math")
        for n in range(3)
    ]
    other = make_run(3.0, identity=NEW, concurrency=8, started_at=TUESDAY)
    invalid = make_run(1.2, identity=NEW, invalid_reason="busy", started_at=TUESDAY)
    gate = make_run(1.2, identity=NEW, started_at=TUESDAY, reason=Reason.GATE)
    store(database, *monday, *tuesday, other, invalid, gate)
    return database


def compare(database: Database, *arguments: str) -> Result:
    url = database.url.render_as_string(hide_password=False)
    return CliRunner().invoke(cli, ["compare", *arguments], env={"DATABASE_URL": url})


def parts(database: Database, *arguments: str) -> dict[str, Any]:
    """Domain → its part of the document."""
    result = compare(database, *arguments, "--format", "json")
    assert result.exit_code == 0, result.exception
    return {part["domain"]: part for part in json.loads(result.stdout)["domains"]}


def refusal(database: Database, *arguments: str) -> str:
    result = compare(database, *arguments)
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


def test_the_change_has_an_interval_and_the_biggest_mover_is_first(stored: Database) -> None:
    found = compare(stored, "1", "2", "--movers", "3").stdout
    part = parts(stored, "1", "2")["coding"]
    assert part["change"] == pytest.approx(0.9 ** (23 / 24) * 0.5 ** (1 / 24) - 1, abs=1e-3)
    assert part["change_interval"][0] < part["change"] < part["change_interval"][1]
    assert part["per_prompt"][0]["question_id"] == "q23"
    assert len(part["now"]["survival"]) == 3
    rows = [line.split() for line in found.splitlines() if line.startswith("q")]
    assert (rows[0], len(rows)) == (["q23", "2.40", "1.20", "-50.0%"], 3)
    assert "source request" in found
    profile = [line.split() for line in found.splitlines() if line.startswith("coding ")]
    assert profile[-2:] == [
        ["coding", "before", "2.40", "1.0", ".40", ".00"],
        ["coding", "now", "2.12", ".97", ".15", ".00"],
    ]


@pytest.mark.parametrize(("other", "why"), [("3", "K 4 is not run 1's 3"), ("4", "domain math is not coding")])
def test_runs_that_are_not_comparable_say_why(stored: Database, other: str, why: str) -> None:
    (part,) = parts(stored, "1", other).values()
    assert (part["comparable"], part["differences"], part["change"]) == (False, [why], None)
    assert why in " ".join(compare(stored, "1", other).stdout.split())


def test_days_are_compared_by_domain_and_only_what_is_comparable_is_pooled(days: Database) -> None:
    found = parts(days, "2026-03-02", "2026-03-03", "--route", ROUTE)
    coding, math = found["coding"], found["math"]
    assert coding["change"] == pytest.approx(-0.1, abs=1e-3)
    assert math["change"] == pytest.approx(0, abs=1e-6)
    assert (coding["before"]["run_ids"], coding["now"]["run_ids"]) == ([3, 2, 1], [9, 8, 7])
    assert coding["now"]["left_out"] == [
        {"why": "concurrency 8 is not 4", "runs": 1},
        {"why": "invalid", "runs": 1},
    ]
    assert coding["now"]["acceptance_length"] == pytest.approx(2.16, abs=1e-3)
    assert 1 + sum(coding["now"]["survival"]) == pytest.approx(2.16, abs=1e-3)
    assert coding["identity_changes"] == {
        "fingerprint": [OLD.fingerprint, NEW.fingerprint],
        "version": ["0.29.1", "0.32.0"],
    }
    shown = " ".join(compare(days, "2026-03-02", "2026-03-03").stdout.split())
    assert "before 2026-03-02 of chat-prod, 6 runs" in shown
    assert "left out of now, 1 run: concurrency 8 is not 4 (coding); of now, 1 run: invalid (coding)" in shown


def test_a_side_that_pools_several_identities_says_so_with_the_runs_of_each(days: Database) -> None:
    span = ("2026-03-02..2026-03-03", "2026-03-03", "--domain", "coding")
    part = parts(days, *span)["coding"]
    assert (part["before"]["identity_runs"], part["now"]["identity_runs"]) == ({"1": 3, "7": 3}, {"7": 3})
    shown = " ".join(compare(days, *span).stdout.split())
    assert (
        "before holds several identities: identity:1 (3 runs), identity:7 (3 runs); name identity:N as a side" in shown
    )
    assert " differ in nothing that the servers show, between the newest run of each side " in shown
    assert "now holds several" not in shown
    alone = compare(days, "2026-03-02", "2026-03-03").stdout
    assert "several identities" not in alone
    assert "newest run" not in alone


def test_more_runs_of_a_day_tell_more_than_one_of_each(days: Database) -> None:
    def width(part: dict[str, Any]) -> float:
        low, high = part["change_interval"]
        return float(high - low)

    of_days = parts(days, "2026-03-02", "2026-03-03", "--domain", "coding")["coding"]
    assert width(of_days) < width(parts(days, "1", "7")["coding"])


@pytest.mark.parametrize(
    "name", ["2026-03-02..2026-03-03", "2026-03-03..", "2026-03-03T00:00..2026-03-03T23:00", "..2026-03-03"]
)
def test_a_span_holds_its_last_day_and_may_be_open(days: Database, name: str) -> None:
    found = parts(days, name, name, "--domain", "math")["math"]["now"]["run_ids"]
    assert set(found) >= {10, 11, 12}
    assert (1 in found or 4 in found) == name.startswith(("2026-03-02", ".."))


def test_yesterday_and_today_are_days_here(database: Database) -> None:
    noon = datetime.now().astimezone().replace(hour=0, minute=0, second=1)
    store(database, make_run(2.4, started_at=noon - timedelta(days=1)), make_run(2.0, started_at=noon))
    found = parts(database, "yesterday", "today")["coding"]
    assert (found["before"]["run_ids"], found["now"]["run_ids"]) == ([1], [2])


@pytest.mark.parametrize(
    ("before", "now"),
    [("identity:1", "identity:7"), ("vllm-0.32.0-0a7", "vllm-0.32.0-0ade4c40"), ("vllm-0.32.0-0a7", "identity:7")],
)
def test_identities_are_named_by_number_or_by_the_beginning_of_a_fingerprint(
    days: Database, before: str, now: str
) -> None:
    found = parts(days, before, now)
    assert found["coding"]["change"] == pytest.approx(-0.1, abs=1e-3)
    assert (found["coding"]["before"]["identity_ids"], found["coding"]["now"]["identity_ids"]) == ([1], [7])
    assert len(found["math"]["now"]["run_ids"]) == 3


def test_an_ambiguous_or_unknown_fingerprint_lists_what_there_is(days: Database) -> None:
    both = f"{OLD.fingerprint}, {NEW.fingerprint}"
    assert refusal(days, "vllm-0.32", "1") == f"vllm-0.32: several fingerprints of route {ROUTE} begin so: {both}"
    unknown = refusal(days, "yesturday", "1")
    assert unknown.startswith(
        f"yesturday: no fingerprint of route {ROUTE} begins so, and it is no number of a run, day"
    )
    assert f"there are: identity:1 ({OLD.fingerprint}), identity:7 ({NEW.fingerprint})" in unknown
    assert "route chat-prod has no such identity; there are: identity:1" in refusal(days, "identity:9", "1")


def test_generations_are_the_approved_baselines_of_each_domain_in_their_order(days: Database) -> None:
    with days.transaction() as connection:
        for ids in ([1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11]):
            baselines.create_baseline(connection, ids, "me", START)
        for baseline_id in (1, 2, 3, 1):  # the first is brought back: it stays generation 1, and is in force
            approvals.approve_baseline(connection, baseline_id, "me", "", START)
    found = parts(days, "generation:1", "generation:2")
    assert found["coding"]["change"] == pytest.approx(-0.1, abs=1e-3)
    assert (found["coding"]["before"]["baseline_id"], found["coding"]["now"]["baseline_id"]) == (1, 3)
    assert found["math"]["differences"] == ["generation:2 has no valid run of math with samples"]
    against = parts(days, "baseline", "2026-03-03")
    assert {domain: part["before"]["baseline_id"] for domain, part in against.items()} == {"coding": 1, "math": 2}
    assert against["coding"]["change"] == pytest.approx(-0.1, abs=1e-3)
    assert list(parts(days, "baseline:2", "2026-03-03")) == ["math"]
    assert refusal(days, "generation:3", "1") == (
        "generation:3: route chat-prod has no such generation; there are 1 to 2, see 'specwatch baseline list'"
    )


def test_the_list_of_baselines_numbers_the_generations(days: Database) -> None:
    with days.transaction() as connection:
        for ids in ([1], [2], [3]):
            baselines.create_baseline(connection, ids, "me", START)
        for baseline_id in (2, 1):
            approvals.approve_baseline(connection, baseline_id, "me", "", START)
        found = {row["id"]: row["generation"] for row in baselines.list_baselines(connection)}
    assert found == {1: 2, 2: 1, 3: None}


def test_a_run_chooses_the_domain_and_route_of_a_day_beside_it(days: Database) -> None:
    store(days, make_run(2.0, route="other", started_at=MONDAY))
    assert list(parts(days, "2026-03-02", "7")) == ["coding"]
    assert refusal(days, "2026-03-02", "2026-03-03") == "name the route with --route; there are: chat-prod, other"


def test_a_domain_that_only_one_side_has_is_said_to_lack_on_the_other(days: Database) -> None:
    store(days, make_run(2.0, domain="qa", started_at=TUESDAY))
    assert parts(days, "2026-03-02", "2026-03-03")["qa"]["differences"] == [
        "2026-03-02 has no valid run of qa with samples"
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("1", "99"), "there is no run 99; see 'specwatch runs'"),
        (("baseline:9", "1"), "there is no baseline 9; see 'specwatch baseline list'"),
        (("baseline", "1"), "baseline: route chat-prod has no approved baseline"),
        (("2020-01-01", "1"), "there is no run of route chat-prod there; its runs are from 2026-03-02 10:00 to"),
        (("1", "2", "--domain", "poetry"), "there is no domain poetry in this store"),
        (("1", "2", "--route", "chut"), "there is no route chut in this store"),
    ],
)
def test_what_is_not_there_is_wrong_usage_and_says_what_is(
    days: Database, arguments: tuple[str, ...], told: str
) -> None:
    assert told in refusal(days, *arguments)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("2026-03-03..2026-03-02", "ends before it begins"),
        ("..", "neither a beginning nor an end"),
        ("soon..", "neither an age such as 24h"),
        ("2026-13-01", "'2026-13-01' is no day; write for example 2026-11-01"),
        ("9999-12-31", "'9999-12-31' is not in the years 1970 to 2999"),
        ("0001-01-01..9999-12-31", "'0001-01-01' is not in the years 1970 to 2999"),
        ("0001-01-01T00:00..", "neither an age such as 24h"),
        ("", "is empty; name a run"),
    ],
)
def test_a_span_that_is_none_is_wrong_usage(database: Database, name: str, told: str) -> None:
    result = compare(database, name, "1")
    assert (result.exit_code, told in result.output) == (2, True), result.output


def test_runs_whose_samples_were_removed_are_left_out_and_counted_but_a_baseline_keeps_its_values(
    days: Database,
) -> None:
    with days.transaction() as connection:
        baselines.create_baseline(connection, [1, 2, 3], "me", START)
        connection.execute(delete(samples).where(samples.c.run_id.in_([1, 2, 8])))
    found = parts(days, "2026-03-02", "2026-03-03")["coding"]
    assert (found["before"]["run_ids"], found["now"]["run_ids"]) == ([3], [9, 7])
    assert found["before"]["left_out"] == [{"why": "their samples were removed", "runs": 2}]
    assert found["change"] == pytest.approx(-0.1, abs=1e-3)
    assert parts(days, "baseline:1", "7")["coding"]["change"] == pytest.approx(-0.1, abs=1e-3)
    assert parts(days, "1", "7")["coding"]["differences"] == [
        "no prompt of run 1 has a value; its samples may have been removed"
    ]


def test_a_baseline_of_too_few_runs_tells_no_more_of_their_spread_than_these_runs_do(days: Database) -> None:
    with days.transaction() as connection:
        baselines.create_baseline(connection, [1, 2, 3], "me", START)
    kept, read = (parts(days, side, "7", "--domain", "coding")["coding"] for side in ("baseline:1", "2026-03-02"))
    assert kept["before"]["run_ids"] == read["before"]["run_ids"] == [3, 2, 1]
    assert kept["change_interval"] == pytest.approx(read["change_interval"])
