"""`specwatch advise`, from runs and a sweep measured on simulated servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import UsageError
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.store.database import Database

BATCHES_COST = Behaviour(step_time_seconds=0.003, token_time_seconds=0.0005)
PRICED = "gpus: 2, gpu_price_per_hour: 3.0"


@pytest.fixture
def servers() -> Iterator[tuple[str, str]]:
    """A speculative server and its plain twin, whose steps take longer the more tokens they verify."""
    plain = SimulatedServer(ServerConfig(drafter=Drafter(method=None)), BATCHES_COST)
    with SimulatedServer(behaviour=BATCHES_COST).run_in_thread() as speculative, plain.run_in_thread() as twin:
        yield speculative, twin


@pytest.fixture
def environment(servers: tuple[str, str], tmp_path: Path, database: Database) -> dict[str, str]:
    route = f"name: chat, replicas: ['{servers[0]}'], plain_twin: '{servers[1]}', domains: [math, coding], {PRICED}"
    (tmp_path / "routes.yaml").write_text(f"routes: [{{{route}}}]")
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\nreceivers: [{name: log, log: {}}]\n"
    )
    return {
        "SPECWATCH_CONFIG": str(tmp_path),
        "DATABASE_URL": database.url.render_as_string(hide_password=False),
    }


def specwatch(environment: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment)


def test_advice_rests_on_the_routes_runs_and_its_latest_sweep(servers: Any, environment: dict[str, str]) -> None:
    options = ("--prompts", "12", "--max-tokens", "48")
    domains = ("--domain", "math", "--domain", "coding")
    without_runs = specwatch(environment, "advise", "chat")
    assert specwatch(environment, "probe", servers[0], *options, *domains, "--save", "--route", "chat").exit_code == 0
    without_sweep = specwatch(environment, "advise", "chat")
    swept = specwatch(environment, "sweep", "chat", *options, "--concurrency", "1,16", "--repeats", "2", "--save")
    assert swept.exit_code == 0, swept.output
    document = json.loads(specwatch(environment, "advise", "chat", "--format", "json").stdout)
    shown = specwatch(environment, "advise", "chat").stdout

    assert isinstance(without_runs.exception, UsageError)
    assert isinstance(without_sweep.exception, UsageError)
    assert str(without_sweep.exception) == ("route chat has no saved sweep; run 'specwatch sweep chat --save' first")
    assert (document["route"], document["k"], document["source"], len(document["run_ids"])) == ("chat", 4, "request", 2)
    assert [row["concurrency"] for row in document["draft_lengths"]] == [1, 16]
    assert [line["topic"] for line in document["advice"]][:2] in (["draft length", "batch size"], ["draft length"] * 2)
    assert all(line["evidence"] and line["uncertainty"] for line in document["advice"])
    assert [cost["concurrency"] for cost in document["cost_per_million_tokens"]] == [1, 16]
    assert document["cost_per_million_tokens"][0]["plain"] > 0
    assert "evidence (measured): measured from concurrency 1 to 16" in shown
    assert "a million tokens at concurrency 16: " in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_sweep_of_another_draft_length_is_not_used(servers: Any, environment: dict[str, str]) -> None:
    options = ("--prompts", "12", "--max-tokens", "48")
    with SimulatedServer(
        ServerConfig(drafter=Drafter(num_speculative_tokens=2)), BATCHES_COST
    ).run_in_thread() as other:
        arguments = ("--save", "--route", "chat", "--domain", "math")
        assert specwatch(environment, "probe", other, *options, *arguments).exit_code == 0
    swept = specwatch(environment, "sweep", "chat", *options, "--concurrency", "1", "--repeats", "1", "--save")
    assert swept.exit_code == 0, swept.output
    refused = specwatch(environment, "advise", "chat")
    assert isinstance(refused.exception, UsageError)
    assert (
        "is of vllm tiny, K = 4 and route chat runs vllm tiny, K = 2 now; run 'specwatch sweep chat --save' again"
        in str(refused.exception)
    )
