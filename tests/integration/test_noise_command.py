"""`specwatch noise`, from stored runs whose noise is known."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.core.records import Reason
from monitor.errors import UsageError
from monitor.store.identities import store_bump, store_identity
from monitor.store.incidents import ACCEPTANCE
from monitor.store.runs import store_run
from monitor.store.schema import incidents
from monitor.store.stretches import undisturbed_runs
from tests.factories import DOMAIN, IDENTITY, REPLICA, ROUTE, START, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

    from monitor.store.database import Database

EVERY = timedelta(minutes=40)
METRIC = "acceptance_length"


def store_history(
    connection: Connection, count: int, *, first: int = 0, level: float = 2.4, **changes: Any
) -> list[int]:
    """A run every 40 minutes from slot `first` on, 24 prompts: 8 % per prompt, shocks of 1.5 %."""
    drawn = np.random.default_rng(first + count)
    ids = []
    for number in range(first, first + count):
        logs = drawn.normal(0, 0.08, 24) + drawn.normal(0, 0.015)
        lengths = [min(3.99, max(1.01, level * math.exp(log))) for log in logs]
        run = make_run(lengths, started_at=START + number * EVERY, **changes)
        run_id = store_run(
            connection, f"slot {changes.get('domain', DOMAIN)} {changes.get('reason', '')} {number}", run
        )
        assert run_id is not None
        ids.append(run_id)
    return ids


@pytest.fixture
def environment(tmp_path: Path, database: Database) -> dict[str, str]:
    route = f"name: {ROUTE}, replicas: ['{REPLICA}'], domains: [{DOMAIN}, math]"
    (tmp_path / "routes.yaml").write_text(f"routes: [{{{route}}}]")
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, drop: 15%, severity: page}, {name: w, drop: 10%, severity: warning},\n"
        "  {name: l, leak: true, severity: warning, domains: [coding]}]\n"
        "receivers: [{name: log, log: {}}]\n"
    )
    return {
        "SPECWATCH_CONFIG": str(tmp_path),
        "DATABASE_URL": database.url.render_as_string(hide_password=False),
    }


def noise(environment: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["noise", ROUTE, "--looks", "20000", *arguments], env=environment)


def test_a_routes_own_noise_is_measured_and_judged(environment: dict[str, str], database: Database) -> None:
    with database.transaction() as connection:
        store_history(connection, 80)
        store_history(connection, 7, domain="math")
    document = json.loads(noise(environment, "--format", "json").stdout)
    shown = noise(environment)

    coding, math_domain = document["domains"]
    assert (coding["domain"], coding["source"], coding["baseline_runs"], coding["missing"]) == (
        DOMAIN,
        "request",
        10,
        None,
    )
    assert (coding["page_drop"], coding["warn_drop"], coding["metric"]) == (0.15, 0.10, METRIC)
    assert (coding["spread"]["runs"], coding["spread"]["prompts"], coding["spread"]["pairs"]) == (80, 24, 79)
    assert coding["spread"]["prompt_sd"] == pytest.approx(0.08, rel=0.1)
    assert coding["spread"]["run_sd"] == pytest.approx(0.015, rel=0.4)
    assert [row["drop"] for row in coding["detection"]] == [0.15, 0.17, 0.20]
    assert coding["detection"][2]["paged_at_first"] > 0.99
    assert (math_domain["spread"], math_domain["detection"]) == (None, None)
    assert math_domain["missing"] == (
        "7 of 7 scheduled valid runs outside incidents lie in stretches of 5 or more between two bumps; 20 are needed"
    )
    assert (coding["lasting"], math_domain["leak_detection"]) == (0.0, None)
    assert [row["loss"] for row in coding["leak_detection"]] == [0.03, 0.05, 0.08]
    assert coding["leak_detection"][2]["told"] > 0.95
    assert coding["leak_detection"][2]["median_runs"] < 15
    assert document["looks_per_year"] == 13_140
    assert document["settings_domain"] == DOMAIN
    assert document["false_pages"]["per_year"] == 0
    assert 0 < document["false_pages"]["at_most"] < 5
    assert document["false_leaks"]["per_year"] == 0
    assert 0 < document["false_leaks"]["at_most"] < 5
    assert document["promises"] == {"drop": 0.2, "paged_at_first": 0.99, "false_pages_per_year": 0.1}
    assert 0.15 in [setting["drop"] for setting in document["settings"]]

    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(f"route {ROUTE}, a run of each domain every 40m: 13,140 a year\n")
    assert "source request\n" in shown.stdout
    assert "false pages      0.00 a year, at most" in shown.stdout
    assert "false slow leaks 0.00 a year, at most" in shown.stdout
    assert "true losses told within 400 runs: -3% 0." in shown.stdout
    assert (
        "-20% is paged at the first probe in 99%, with 0.1 false pages a year or fewer,\non coding, which"
        in shown.stdout
    )
    assert "drop 15%: " in shown.stdout
    assert "not measured: math: 7 of 7 scheduled valid runs" in shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 100


def test_too_little_history_is_said_and_nothing_guessed(environment: dict[str, str], database: Database) -> None:
    assert str(noise(environment).exception) == (
        f"the noise of route {ROUTE} cannot be measured yet: coding, math: no valid scheduled run"
    )
    with database.transaction() as connection:
        store_history(connection, 19)
    refused = noise(environment)
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception) == (
        f"the noise of route {ROUTE} cannot be measured yet: coding: 19 of 19 scheduled valid runs "
        "outside incidents lie in stretches of 5 or more between two bumps; 20 are needed; math: no valid scheduled run"
    )


def test_only_scheduled_runs_outside_incidents_count_and_bumps_part_them(database: Database) -> None:
    with database.transaction() as connection:
        before = store_history(connection, 10)
        store_history(connection, 2, first=10, level=1.7)  # these opened the incident
        after = store_history(connection, 10, first=15, level=2.0)
        store_history(connection, 3, first=30, reason=Reason.CONFIRM)
        store_history(connection, 3, first=40, prompt_set_hash="set-0", domain="math")
        span = {"opened_at": START + 11 * EVERY + timedelta(minutes=10), "resolved_at": START + 14 * EVERY}
        values = {"route": ROUTE, "kind": ACCEPTANCE, "severity": "page", "domains": {}, **span}
        connection.execute(incidents.insert().values(values))
        identity_id = store_identity(connection, IDENTITY, START)
        store_bump(connection, ROUTE, REPLICA, identity_id, identity_id, {}, START + 15 * EVERY, after[0])
        found, alike = undisturbed_runs(connection, ROUTE, DOMAIN, METRIC)
        recent, _ = undisturbed_runs(connection, ROUTE, DOMAIN, METRIC, START + 18 * EVERY)
        by_tokens, _ = undisturbed_runs(connection, ROUTE, DOMAIN, "tokens_per_step")

    assert alike is not None
    assert alike.prompt_set_hash == "set-1"
    assert len(found) == len(before) + len(after)
    assert sorted(run.started_at for run in found)[9] == START + 9 * EVERY
    assert {run.stretch for run in found} == {(identity_id, 0), (identity_id, 1)}
    assert len(recent) == 7
    first = min(found, key=lambda run: run.started_at)
    assert len(first.values) == 24
    assert next(iter(by_tokens)).values == pytest.approx(next(iter(found)).values, abs=1e-3)


def test_runs_that_cannot_be_compared_with_the_newest_are_left_out(database: Database) -> None:
    with database.transaction() as connection:
        store_history(connection, 5, prompt_set_hash="set-0")
        store_history(connection, 4, first=5)
        found, _ = undisturbed_runs(connection, ROUTE, DOMAIN, METRIC)
    assert len(found) == 4
