"""Reference lines in the store: kept once, listed by route, removed, and no part of any judgement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from monitor.store.database import Database

GOLDEN = "some-model:\n  thinking_on:\n    3: 3.08\n"
ACCEPTANCE = "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length\nqa,100,200,120,2.2\n"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.yaml"
    path.write_text(GOLDEN, encoding="utf-8")
    return path


def specwatch(database: Database, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--database-url", database.conninfo(), "reference", *map(str, arguments)])


def listed(database: Database, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(specwatch(database, "list", "--format", "json", *arguments).stdout)
    return found


def test_a_line_is_kept_with_its_file_and_says_that_it_was_imported(database: Database, golden: Path) -> None:
    result = specwatch(database, "import", golden, "--route", "chat")
    assert (result.exit_code, "never used for judging" in result.stderr) == (0, True)
    (line,) = listed(database)
    assert line.pop("imported_at").endswith("+00:00")
    assert line == {
        "id": 1,
        "route": "chat",
        "domain": "coding",
        "source": "imported",
        "tool": "InferenceX",
        "file_name": "golden.yaml",
        "model": "some-model",
        "label": "thinking_on",
        "k": 3,
        "acceptance_length": 3.08,
        "acceptance_rate": None,
        "survival": [],
        "steps": None,
    }


def test_a_file_is_kept_once_for_each_route(database: Database, golden: Path) -> None:
    assert specwatch(database, "import", golden).exit_code == 0
    assert "is imported already" in str(specwatch(database, "import", golden).exception)
    assert specwatch(database, "import", golden, "--route", "chat").exit_code == 0
    assert [line["route"] for line in listed(database)] == [None, "chat"]


def test_a_route_has_its_own_lines_and_those_of_every_route(database: Database, golden: Path) -> None:
    csv = golden.with_name("acceptance.csv")
    csv.write_text(ACCEPTANCE, encoding="utf-8")
    specwatch(database, "import", golden)
    specwatch(database, "import", csv, "--route", "chat")
    assert [line["tool"] for line in listed(database, "--route", "chat")] == ["InferenceX", "speculators"]
    assert [line["tool"] for line in listed(database, "--route", "other")] == ["InferenceX"]
    assert [line["tool"] for line in listed(database, "--domain", "qa")] == ["speculators"]


def test_lines_are_removed_by_their_file(database: Database, golden: Path) -> None:
    specwatch(database, "import", golden)
    assert specwatch(database, "remove", "golden.yaml").exit_code == 0
    assert listed(database) == []
    assert "no reference lines of golden.yaml" in str(specwatch(database, "remove", "golden.yaml").exception)


def test_a_refused_file_keeps_nothing(database: Database, golden: Path) -> None:
    golden.write_text("a: 1\n", encoding="utf-8")
    assert "expected is" in str(specwatch(database, "import", golden).exception)
    assert listed(database) == []
