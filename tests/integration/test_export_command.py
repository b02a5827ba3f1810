"""Files of a route's history: the rows of `history`, whatever the file, and the profile of the runs that are alike."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.core.records import Source
from monitor.errors import UsageError
from monitor.exchange.references import read_references
from monitor.store import runs
from tests.factories import IDENTITY, ROUTE, START, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from monitor.store.database import Database

HOUR = timedelta(hours=1)


@pytest.fixture
def measured(database: Database) -> Database:
    """Two runs, of coding and math, and an invalid one."""
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run(2.5))
        runs.store_run(connection, "two", make_run(2.0, domain="math", started_at=START + HOUR))
        runs.store_run(connection, "bad", make_run(invalid_reason="busy", started_at=START + 2 * HOUR))
    return database


def specwatch(database: Database, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--database-url", database.conninfo(), *map(str, arguments)])


def exported(database: Database, file: Path, *arguments: str) -> Path:
    result = specwatch(database, "export", ROUTE, file, *arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.exception
    return file


def history_rows(database: Database, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        specwatch(database, "history", ROUTE, "--format", "json", *arguments).stdout
    )
    assert found
    return found


def profile(database: Database, directory: Path, *arguments: str) -> dict[str, Any]:
    file = exported(database, directory / "speculation_profile.json", "--force", *arguments)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_json_has_the_rows_of_history(measured: Database, tmp_path: Path) -> None:
    file = exported(measured, tmp_path / "out.json")
    assert json.loads(file.read_text(encoding="utf-8")) == history_rows(measured)


def test_parquet_has_the_rows_of_history(measured: Database, tmp_path: Path) -> None:
    file = exported(measured, tmp_path / "out.parquet", "--group-by", "day")
    rows = pyarrow.parquet.read_table(file).to_pylist()
    objects = ("sampling", "identity_ids")
    assert [row | {name: json.loads(row[name]) for name in objects} for row in rows] == history_rows(
        measured, "--group-by", "day"
    )


def test_in_parquet_what_happened_is_json(measured: Database, tmp_path: Path) -> None:
    first, *_ = pyarrow.parquet.read_table(exported(measured, tmp_path / "out.parquet")).to_pylist()
    assert json.loads(first["events"]) == history_rows(measured)[0]["events"]


def test_a_parquet_column_has_its_type_without_any_value(measured: Database, tmp_path: Path) -> None:
    schema = pyarrow.parquet.read_schema(exported(measured, tmp_path / "out.parquet"))
    assert {name: str(schema.field(name).type) for name in ("metric", "baseline_id", "change", "k")} == {
        "metric": "string",
        "baseline_id": "int64",
        "change": "double",
        "k": "int64",
    }


def test_csv_has_the_rows_of_history(measured: Database, tmp_path: Path) -> None:
    file = exported(measured, tmp_path / "out.csv", "--domain", "math")
    assert (
        file.read_text(encoding="utf-8")
        == specwatch(measured, "history", ROUTE, "--format", "csv", "--domain", "math").stdout
    )
    (row,) = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    assert (row["domain"], row["source"], row["acceptance_length"]) == ("math", "request", "2.0")


def test_a_profile_pools_the_valid_runs_by_position(measured: Database, tmp_path: Path) -> None:
    found = profile(measured, tmp_path)
    assert found["marginal_accept_rates"] == [1.0, 0.25, 0.0]
    assert (found["mean_accept_length"], found["mean_accept_length_per_request"]) == (2.25, 2.25)
    assert found["per_category"] == {"coding": {"mean_accept_length": 2.5}, "math": {"mean_accept_length": 2.0}}
    assert (found["draft_checkpoint"], found["target_model"]) == ({"id": "org/drafter"}, {"id": "org/target"})
    assert found["measurement_conditions"]["run_ids"] == [1, 2]
    assert (found["measurement_conditions"]["source"], found["measurement_conditions"]["concurrency"]) == ("request", 4)
    assert found["validation"]["mean_consistency"]["passed"] is True


@pytest.mark.parametrize(
    "changes",
    [
        {"source": Source.STREAM},
        {"k": 4, "identity": replace(IDENTITY, k=4)},
        {"identity": replace(IDENTITY, drafter="org/other")},
        {"concurrency": 8},
    ],
)
def test_a_profile_has_only_runs_that_are_like_the_latest(
    measured: Database, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with measured.transaction() as connection:
        runs.store_run(connection, "new", make_run(1.5, started_at=START + 3 * HOUR, **changes))
    found = profile(measured, tmp_path)
    assert (found["measurement_conditions"]["run_ids"], found["mean_accept_length"]) == ([4], 1.5)


def test_a_profile_that_was_exported_can_be_imported(measured: Database, tmp_path: Path) -> None:
    exported(measured, tmp_path / "speculation_profile.json")
    lines = read_references(tmp_path / "speculation_profile.json")
    assert [(line.domain, line.acceptance_length) for line in lines] == [(None, 2.25), ("coding", 2.5), ("math", 2.0)]
    assert lines[0].model == "org/target"


def test_a_route_without_a_valid_run_has_no_profile(database: Database, tmp_path: Path) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "bad", make_run(invalid_reason="busy"))
    result = specwatch(database, "export", ROUTE, tmp_path / "speculation_profile.json")
    assert "no valid runs" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_overwritten_only_by_force(measured: Database, tmp_path: Path) -> None:
    mine = tmp_path / "out.csv"
    mine.write_text("mine", encoding="utf-8")
    assert "is there already" in str(specwatch(measured, "export", ROUTE, mine).exception)
    assert mine.read_text(encoding="utf-8") == "mine"
    assert exported(measured, mine, "--force").read_text(encoding="utf-8").startswith("bucket,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((ROUTE, "out.xlsx"), "expected is .parquet, .csv, .json or speculation_profile.json"),
        (("nope", "out.csv"), "there is no route nope"),
        ((ROUTE, "out.csv", "--domain", "nope"), "there is no domain nope"),
        ((ROUTE, "out.csv", "--until", "2020-01-01"), "nothing was written"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    measured: Database, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    route, name, *rest = arguments
    assert said in str(specwatch(measured, "export", route, tmp_path / name, *rest).exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.json", "speculation_profile.json"])
def test_a_file_that_cannot_be_written_is_refused_with_its_name(measured: Database, tmp_path: Path, name: str) -> None:
    file = tmp_path / "nowhere" / name
    result = specwatch(measured, "export", ROUTE, file, "--domain", "coding")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith(f"cannot write {file}: ")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a device that is always full")
def test_a_full_disk_under_the_file_is_said_in_one_line(measured: Database, tmp_path: Path) -> None:
    full = tmp_path / "rows.csv"
    full.symlink_to("/dev/full")
    result = specwatch(measured, "export", ROUTE, full, "--force")
    assert str(result.exception) == f"cannot write {full}: No space left on device; make room, or name another file"
