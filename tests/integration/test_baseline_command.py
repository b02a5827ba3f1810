"""`specwatch baseline create`: runs from before and after a change are not mixed unless somebody says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monitor.errors import UsageError
from monitor.store import baselines, runs
from tests.factories import DOMAIN, IDENTITY, ROUTE, START, make_run
from tests.integration.test_shell_answers import specwatch

if TYPE_CHECKING:
    from monitor.store.database import Database

OTHER = replace(IDENTITY, drafter="org/other")
UNSEEN = replace(IDENTITY, version=None)


@pytest.fixture
def changed(database: Database) -> Database:
    """Of two domains, three runs before the drafter changed and two and four after; one did not see the version."""
    ran = {DOMAIN: [IDENTITY, UNSEEN, IDENTITY, OTHER, OTHER], "math": [*[IDENTITY] * 3, *[OTHER] * 4]}
    with database.transaction() as connection:
        for domain, seen in ran.items():
            for number, identity in enumerate(seen):
                run = make_run(domain=domain, identity=identity, started_at=START + number * timedelta(hours=1))
                runs.store_run(connection, f"{domain} {number}", run)
    return database


def made_from(database: Database) -> list[list[int]]:
    with database.transaction() as connection:
        return [row["run_ids"] for row in baselines.list_baselines(connection)]


def test_runs_of_several_identities_are_refused_with_what_changed_and_how_many_there_are_since(
    changed: Database,
) -> None:
    result = specwatch(changed, "baseline", "create", ROUTE, "--approve")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        "the last 10 runs of chat-prod are of several identities: "
        "drafter org/drafter → org/other after run 3 (2 runs since); "
        "drafter org/drafter → org/other after run 8 (4 runs since). "
        "Give --last 2, or wait for more runs of what runs now; --mixed takes them all the same"
    )
    assert made_from(changed) == []


def test_what_it_says_to_give_instead_works(changed: Database) -> None:
    assert specwatch(changed, "baseline", "create", ROUTE, "--last", "2").exit_code == 0
    assert sorted(made_from(changed)) == [[4, 5], [11, 12]]


def test_they_are_mixed_for_whoever_says_so_and_named_one_by_one(changed: Database) -> None:
    assert specwatch(changed, "baseline", "create", ROUTE, "--domain", "math", "--mixed").exit_code == 0
    assert specwatch(changed, "baseline", "create", ROUTE, "--run", "3", "--run", "4").exit_code == 0
    assert sorted(made_from(changed)) == [[3, 4], [6, 7, 8, 9, 10, 11, 12]]


def test_what_a_run_did_not_see_of_its_identity_is_no_change(changed: Database) -> None:
    with changed.transaction() as connection:
        for number in (4, 5):
            connection.exec_driver_sql(f"DELETE FROM samples WHERE run_id = {number}")
            connection.exec_driver_sql(f"DELETE FROM runs WHERE id = {number}")
    assert specwatch(changed, "baseline", "create", ROUTE, "--domain", DOMAIN).exit_code == 0
    assert made_from(changed) == [[1, 2, 3]]
