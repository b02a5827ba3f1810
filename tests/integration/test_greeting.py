"""What `serve` says when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monitor import __version__
from monitor.cli.greeting import greeting
from monitor.config.load import Config
from monitor.prompts.sets import bundled_directory, load_prompt_sets
from monitor.service.discovery import Replicas
from monitor.store import approvals, baselines, runs
from tests.factories import START, make_alerting, make_route, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from monitor.config.routes import Route
    from monitor.store.database import Database

SETS = load_prompt_sets(bundled_directory())


def said(database: Database, directory: Path, *routes: Route) -> list[str]:
    config = Config(directory=directory, prompts=None, routes=routes, alerting=make_alerting())
    return greeting(config, SETS, Replicas(config.routes), database, ("127.0.0.1", 8400), own=False).splitlines()


def store_runs(database: Database, domain: str, number: int, *, approve: bool = False) -> None:
    with database.transaction() as connection:
        for n in range(number):
            run_id = runs.store_run(connection, f"{domain} {n}", make_run(2.4, domain=domain))
        if approve:
            assert run_id is not None
            baseline_id = baselines.create_baseline(connection, [run_id], "ann", START)
            approvals.approve_baseline(connection, baseline_id, "ann", "it is good", START)


def test_the_block_names_version_configuration_store_load_and_pages(database: Database, tmp_path: Path) -> None:
    lines = said(database, tmp_path, make_route("chat"), make_route("code", replicas=["http://a", "http://b"]))
    assert lines[0] == f"specwatch {__version__}"
    assert lines[1] == f"  config     {tmp_path}"
    assert lines[2].startswith("  store      postgresql")
    assert database.url.password not in lines[2]
    assert lines[3:5] == [
        "  routes     chat: 1 replica, 2 domains every 40m; no baseline yet: 0 of 10 valid runs",
        "             code: 2 replicas, 2 domains every 40m; no baseline yet: 0 of 10 valid runs",
    ]
    assert lines[5].startswith("  receivers  ")
    assert "generated tokens and 6 runs an hour" in "".join(lines)
    assert "  pages      http://127.0.0.1:8400: /healthz /readyz /metrics /runbook" in lines


@pytest.mark.parametrize(
    ("coding", "math", "expected"),
    [
        ((0, False), (0, False), "no baseline yet: 0 of 10 valid runs"),
        ((2, False), (7, False), "no baseline yet: 2 to 7 of 10 valid runs"),
        ((2, True), (3, False), "baselines of 1 of 2 domains: 3 of 10 valid runs"),
        ((2, True), (3, True), "baselines of 2 domains"),
    ],
)
def test_a_route_says_how_far_it_is_from_being_judged(
    database: Database, tmp_path: Path, coding: tuple[int, bool], math: tuple[int, bool], expected: str
) -> None:
    for domain, (number, approve) in (("coding", coding), ("math", math)):
        store_runs(database, domain, number, approve=approve)
    assert said(database, tmp_path, make_route())[3].partition("; ")[2] == expected


def test_a_route_whose_baseline_a_person_approves_names_the_command(database: Database, tmp_path: Path) -> None:
    [line] = [line for line in said(database, tmp_path, make_route(baseline={})) if "routes" in line]
    assert line.endswith(
        "no baseline yet: no rule can trip there until 'specwatch baseline create chat-prod --approve'"
    )
