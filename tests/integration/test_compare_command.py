"""`specwatch compare`: two stored runs beside each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import UsageError
from monitor.store.runs import store_run
from tests.factories import make_run

if TYPE_CHECKING:
    from monitor.store.database import Database


@pytest.fixture
def stored(database: Database) -> Database:
    """Run 1, run 2 that lost a tenth and one prompt half, run 3 of another K, run 4 of another domain."""
    fallen = {f"q{number:02}": 2.16 for number in range(23)} | {"q23": 1.2}
    runs = [make_run(2.4), make_run(fallen), make_run(2.4, k=4), make_run(2.4, domain="math")]
    with database.transaction() as connection:
        for number, run in enumerate(runs):
            store_run(connection, str(number), run)
    return database


def compare(database: Database, *arguments: str) -> Result:
    url = database.url.render_as_string(hide_password=False)
    return CliRunner().invoke(cli, ["compare", *arguments], env={"DATABASE_URL": url})


def test_the_change_has_an_interval_and_the_biggest_mover_is_first(stored: Database) -> None:
    found = compare(stored, "1", "2", "--movers", "3").stdout
    document = json.loads(compare(stored, "1", "2", "--format", "json").stdout)
    assert document["change"] == pytest.approx(0.9 ** (23 / 24) * 0.5 ** (1 / 24) - 1, abs=1e-3)
    assert document["change_interval"][0] < document["change"] < document["change_interval"][1]
    assert document["per_prompt"][0]["question_id"] == "q23"
    assert len(document["now"]["survival"]) == 3
    rows = [line.split() for line in found.splitlines() if line.startswith("q")]
    assert (rows[0], len(rows)) == (["q23", "2.40", "1.20", "-50.0%"], 3)
    assert "source request" in found


@pytest.mark.parametrize(("other", "why"), [("3", "K 4 is not run 1's 3"), ("4", "domain math is not coding")])
def test_runs_that_are_not_comparable_say_why(stored: Database, other: str, why: str) -> None:
    found = " ".join(compare(stored, "1", other).stdout.split())
    assert f"not comparable: {why}" in found
    assert "interval" not in found


def test_a_run_that_is_not_there_is_wrong_usage(stored: Database) -> None:
    result = compare(stored, "1", "99")
    assert isinstance(result.exception, UsageError)
    assert "there is no run 99" in str(result.exception)
