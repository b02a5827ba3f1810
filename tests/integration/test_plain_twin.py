"""A replica measured beside its plain twin: over real HTTP, through the queue, into the store."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from monitor.cli import cli
from monitor.core.figures import aggregate
from monitor.core.records import Reason, Sampling
from monitor.engines.vllm import VllmEngine
from monitor.probing.speedup import measure_speedup
from monitor.probing.sweep import Contender, Measured, Plan, compared, interleaved
from monitor.probing.target import Target
from monitor.service.jobs import LATER, ProbeJob
from monitor.service.prober import Prober
from monitor.service.recording import Recorder
from monitor.service.scheduler import Scheduler
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.model import Target as SimulatedTarget
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import gate_requests, slots, speedups
from monitor.store.newest import newest
from monitor.store.runs import store_run
from monitor.store.schema import speedups as speedups_table
from monitor.store.snapshot import snapshot
from monitor.store.sweeps import store_sweep
from monitor.web.metrics import render
from tests.factories import make_config, make_route
from tests.integration.replicas import QUICK, prompt_set, run_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.core.speedup import Speedup
    from monitor.store.database import Database

STEPS = Behaviour(step_time_seconds=0.005)
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
PROMPTS = prompt_set(12)


@pytest.fixture
def replica() -> Iterator[str]:
    with SimulatedServer(behaviour=STEPS).run_in_thread() as url:
        yield url


@pytest.fixture
def twin_server() -> SimulatedServer:
    return SimulatedServer(ServerConfig(drafter=Drafter(method=None)), behaviour=STEPS)


@pytest.fixture
def twin(twin_server: SimulatedServer) -> Iterator[str]:
    with twin_server.run_in_thread() as url:
        yield url


async def speedup_of(replica: str, twin: str, **changes: Any) -> Speedup:
    plan = Plan(PROMPTS.prompts, Sampling(max_tokens=24), (4,), measured=12, repeats=2, max_waiting=0)
    sides = (Target(url, timeouts=QUICK) for url in (replica, twin))
    return await measure_speedup(VllmEngine(), PROMPTS, replace(plan, **changes), *sides, route="chat")


async def test_decode_first_token_and_total_are_compared_each_with_its_interval(replica: str, twin: str) -> None:
    found = await speedup_of(replica, twin)
    assert (found.invalid_reason, found.domain, found.concurrency) == (None, "coding", 4)
    point = found.point
    assert point is not None
    assert point.speedup is not None
    assert point.ttft_speedup is not None
    assert point.total_speedup is not None
    assert point.speedup.low < point.speedup.ratio < point.speedup.high
    assert point.speedup.ratio > 1.2
    assert (point.speedup.n, point.speedup.repeats) == (12, 2)
    for side in (point.plain, point.speculative):
        assert (side.prompts_valid, side.prompts_total) == (24, 24)
        for spread in (side.decode_seconds_per_token, side.ttft_seconds, side.total_seconds):
            assert spread.p50 is not None
            assert spread.p95 is not None
            assert 0 < spread.p50 <= spread.p95


async def test_a_lossless_replica_agrees_with_its_twin_as_the_twin_does_with_itself(replica: str, twin: str) -> None:
    outputs = (await speedup_of(replica, twin)).outputs
    assert outputs is not None
    assert (outputs.replica_and_twin.same, outputs.replica_and_twin.compared) == (24, 24)
    assert (outputs.twin_and_itself.same, outputs.twin_and_itself.compared) == (12, 12)


async def test_outputs_that_are_sampled_are_not_compared(replica: str, twin: str) -> None:
    found = await speedup_of(replica, twin, sampling=Sampling(max_tokens=24, temperature=0.7))
    assert found.invalid_reason is None
    assert found.outputs is None


async def test_a_twin_that_speculates_makes_the_measurement_invalid(replica: str) -> None:
    with SimulatedServer(behaviour=STEPS).run_in_thread() as other:
        found = await speedup_of(replica, other)
    assert (found.invalid_reason, found.point) == ("speculates", None)
    assert "this server speculates" in str(found.invalid_detail)


async def test_a_twin_that_is_gone_makes_the_measurement_invalid(replica: str) -> None:
    found = await speedup_of(replica, "http://127.0.0.1:1")
    assert (found.invalid_reason, found.point, found.outputs) == ("unreachable", None, None)
    assert str(found.invalid_detail).startswith("twin: ")


@pytest.mark.parametrize("which", ["replica", "twin"])
async def test_a_side_that_changed_between_two_passes_makes_the_measurement_invalid(
    twin_server: SimulatedServer, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    servers = {"replica": SimulatedServer(behaviour=STEPS), "twin": twin_server}
    made: list[str] = []

    async def measure(self: Measured, *given: Any) -> None:
        if self.contender.label == which and which in made:
            servers[which].restart(version="0.99.0")
        await measured(self, *given)
        made.append(self.contender.label)

    measured = Measured.measure
    monkeypatch.setattr(Measured, "measure", measure)
    with servers["replica"].run_in_thread() as replica, twin_server.run_in_thread() as twin:
        found = await speedup_of(replica, twin)
    assert (found.invalid_reason, found.point, found.outputs) == ("identity_changed_during_run", None, None)
    assert str(found.invalid_detail).startswith(f"{which}: changed while it was measured: ")
    assert "→ 0.99.0" in str(found.invalid_detail)


async def test_a_replica_that_queues_is_left_alone(twin: str) -> None:
    crowded = SimulatedServer(ServerConfig(max_num_seqs=1), behaviour=Behaviour(step_time_seconds=0.05))
    with crowded.run_in_thread() as url:
        others = asyncio.create_task(run_of(url, prompt_set(8), concurrency=8, sampling=Sampling(max_tokens=400)))
        while (await waiting_at(url)) < 1:  # noqa: ASYNC110  (the queue of a server wakes nobody)
            await asyncio.sleep(0.01)
        found = await speedup_of(url, twin)
        others.cancel()
        await asyncio.wait({others})
    assert found.invalid_reason == "busy"
    assert f"requests wait at {url}" in str(found.invalid_detail)


async def waiting_at(url: str) -> float:
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{url}/metrics")).text
    found = re.findall(r"^vllm:num_requests_waiting\{[^}]*\} (\S+)", page, re.MULTILINE)
    return max(map(float, found), default=0.0)


async def test_answers_read_too_late_do_not_count_and_make_it_invalid_when_too_few_are_left(
    replica: str, twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.probing.speedup.LATE_SECONDS", -1.0)
    found = await speedup_of(replica, twin)
    assert (found.invalid_reason, found.outputs is not None) == ("late_client", True)
    assert found.point is not None
    assert found.point.speedup is None


async def test_an_output_that_differs_is_found_with_its_position(replica: str) -> None:
    with SimulatedServer(
        ServerConfig(target=SimulatedTarget("another"), drafter=Drafter(method=None))
    ).run_in_thread() as url:
        outputs = (await speedup_of(replica, url)).outputs
    assert outputs is not None
    assert (outputs.replica_and_twin.same, outputs.replica_and_twin.compared) == (0, 24)
    assert len(outputs.replica_and_twin.first_differences) == 24
    assert min(outputs.replica_and_twin.first_differences) == 0
    assert (outputs.twin_and_itself.same, outputs.twin_and_itself.compared) == (12, 12)


class Stage:
    """A prober of one route on a store of its own, and what it stored and queued."""

    def __init__(self, database: Database, replica: str, twin: str | None) -> None:
        self.database = database
        self.route = make_route(replicas=[replica], plain_twin=twin, domains=["coding"], max_tokens=16, min_prompts=1)
        config = make_config(self.route)
        self.prober = Prober(
            database, Recorder(config), {"coding": PROMPTS}, on_recorded=lambda *_: None, now=lambda: NOW
        )
        self.job = ProbeJob("slot 1", self.route.name, "coding", replica, Reason.SPEEDUP)

    def stored(self) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            return speedups.newest_speedups(connection, limit=10)

    def queued(self) -> list[tuple[str, str | None, str, Any]]:
        with self.database.transaction() as connection:
            rows = connection.execute(text("SELECT task_name, lock, args->'job', scheduled_at FROM procrastinate_jobs"))
            return [(name, lock, job["reason"], at) for name, lock, job, at in rows]


async def test_a_job_is_measured_and_stored_once(database: Database, replica: str, twin: str) -> None:
    stage = Stage(database, replica, twin)
    await stage.prober.work(stage.job)
    await stage.prober.work(stage.job)
    [found] = stage.stored()
    assert (found["route"], found["domain"], found["basis"], found["valid"]) == (
        "chat-prod",
        "coding",
        "measured",
        True,
    )
    assert (found["replica"], found["plain_twin"], found["repeats"]) == (replica, twin, 3)
    assert found["outputs"]["replica_and_twin"] == {
        "same": 36,
        "compared": 36,
        "share": 1.0,
        "first_differences": [],
    }
    with database.transaction() as connection:
        assert connection.execute(text("SELECT count(*) FROM runs")).scalar_one() == 0, "it is no run"


async def test_a_twin_that_another_measures_beside_is_waited_for(database: Database, replica: str, twin: str) -> None:
    stage = Stage(database, replica, twin)
    async with slots.measuring(database.conninfo(), twin) as ours:
        assert ours
        await stage.prober.work(stage.job)
    assert stage.stored() == []
    assert stage.queued() == [(LATER, None, "speedup", NOW + timedelta(seconds=30))]
    await stage.prober.work(stage.job)
    assert len(stage.stored()) == 1


async def test_a_twin_that_a_gate_measures_beside_is_kept_off(database: Database, replica: str, twin: str) -> None:
    """Also while the gate waits for whoever began before it: it is not to wait for the next one too."""
    stage = Stage(database, replica, twin)
    with database.transaction() as connection:
        gate = gate_requests.begin(connection, {"route": "another"})
        gate_requests.claim(connection, gate, ["http://candidate:8000", twin], NOW)
    await stage.prober.work(stage.job)
    assert (stage.stored(), stage.queued()) == ([], [(LATER, None, "speedup", NOW + timedelta(seconds=10))])


async def test_a_twin_is_free_again_once_measured(database: Database, twin: str) -> None:
    for _ in range(2):
        async with (
            slots.measuring(database.conninfo(), twin) as first,
            slots.measuring(database.conninfo(), twin) as second,
        ):
            assert (first, second) == (True, False)


async def test_a_speculating_twin_is_stored_as_invalid_and_shown_nowhere_as_a_figure(
    database: Database, replica: str
) -> None:
    with SimulatedServer(behaviour=STEPS).run_in_thread() as other:
        stage = Stage(database, replica, other)
        await stage.prober.work(stage.job)
    [found] = stage.stored()
    assert (found["valid"], found["invalid_reason"], found["speedup"]) == (False, "speculates", None)
    with database.transaction() as connection:
        assert speedups.newest_speedups(connection, valid_only=True) == []


async def test_a_job_of_a_route_that_lost_its_twin_is_dropped(database: Database, replica: str) -> None:
    stage = Stage(database, replica, None)
    await stage.prober.work(stage.job)
    assert (stage.stored(), stage.queued()) == ([], [])


def test_a_due_speedup_holds_its_replica_and_gives_way_to_runs(database: Database) -> None:
    route = make_route(plain_twin="http://twin:8000", domains=["coding"])
    scheduler = Scheduler(database, [route], lambda: NOW)
    assert [scheduler.queue_slot(*series) for series in scheduler._series()] == [True, True]
    with database.transaction() as connection:
        rows = connection.execute(
            text("SELECT lock, priority, args->'job'->>'reason' FROM procrastinate_jobs ORDER BY 2")
        )
        lock = f"replica {route.replicas[0]}"
        assert [tuple(row) for row in rows] == [(lock, -10, "speedup"), (lock, 0, "scheduled")]


async def test_the_command_and_the_metrics_page_show_it(database: Database, replica: str, twin: str) -> None:
    stage = Stage(database, replica, twin)
    await stage.prober.work(stage.job)
    [found] = stage.stored()
    url = database.url.render_as_string(hide_password=False)

    def run(*options: str) -> Result:
        return CliRunner().invoke(cli, ["--database-url", url, "speedup", *options])

    assert json.loads(run("--format", "json").stdout) == [{**found, "cost_per_million_tokens": None, "verdicts": []}]
    table = run().stdout
    assert "per million" not in table
    assert re.search(r"^coding +\d\.\d\d \[\d\.\d\d, \d\.\d\d\] .* 36/36 +24/24 ", table, re.MULTILINE)
    assert table.startswith("route chat-prod · basis measured\n")
    times = run("chat-prod").stdout
    assert re.search(r"token after the first +\d\.\d\d \[.*\] +\d+\.\d\d ms→\d+\.\d\d ms", times)
    assert "first token" in times
    assert "whole answer" in times
    with database.transaction() as connection:
        page = render(snapshot(connection), {}, [stage.route]).decode()
    assert f'basis="measured",domain="coding",of="decode",replica="{replica}",route="chat-prod"' in page
    assert 'specwatch_same_output_ratio{domain="coding",pair="replica_and_twin",route="chat-prod"} 1.0' in page


async def test_a_price_shows_what_a_million_tokens_cost_on_both_sides(
    database: Database, replica: str, twin: str, tmp_path: Path
) -> None:
    stage = Stage(database, replica, twin)
    await stage.prober.work(stage.job)
    [found] = stage.stored()
    route = f"name: chat-prod, replicas: ['{replica}'], plain_twin: '{twin}', gpus: 2, gpu_price_per_hour: 1.8"
    (tmp_path / "routes.yaml").write_text(f"routes: [{{{route}}}]")
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\nreceivers: [{name: log, log: {}}]\n"
    )
    url = database.url.render_as_string(hide_password=False)
    options = ["--config", str(tmp_path), "--database-url", url, "speedup"]
    rates = {side: found[side]["tokens_per_second"] for side in ("plain", "speculative")}
    [shown] = json.loads(CliRunner().invoke(cli, [*options, "--format", "json"]).stdout)
    assert shown["cost_per_million_tokens"] == {
        **{side: pytest.approx(1000 / rate) for side, rate in rates.items()},  # 2 × 1.8 / 3600 s × 10⁶ tokens
        "basis": "measured",
        "gpu_price_per_hour": 1.8,
        "gpus": 2,
        "price_from": "routes.yaml",
    }
    plain, speculative = (f"{1000 / rate:.2f}" for rate in rates.values())
    row = f"chat-prod coding 4 {rates['plain']:.0f}→{rates['speculative']:.0f} {plain}→{speculative} 2 1.8 measured"
    for arguments in ([], ["chat-prod"]):
        table = CliRunner().invoke(cli, [*options, *arguments]).stdout
        assert row in [" ".join(line.split()) for line in table.splitlines()]
        assert "with gpus and gpu_price_per_hour of routes.yaml" in table


async def test_a_route_without_a_twin_has_the_speedup_that_a_saved_sweep_gives(
    database: Database, replica: str, twin: str
) -> None:
    plan = Plan(PROMPTS.prompts, Sampling(max_tokens=24), (4,), measured=12, repeats=2)
    sides = [Contender("plain", Target(twin), plain=True), Contender("spec", Target(replica))]
    plain, speculative = await interleaved(VllmEngine(), plan, sides)
    run = await run_of(replica, PROMPTS, route="lone", sampling=Sampling(max_tokens=24))
    with database.transaction() as connection:
        store_sweep(connection, compared(plan, plain, speculative, interleaved=True), None)
        run_id = store_run(connection, "run", run)
        [found] = speedups.newest_speedups(connection)
    assert (found["basis"], found["route"], found["run_id"]) == ("modelled", "lone", run_id)
    assert found["speedup"]["ratio"] == pytest.approx(
        aggregate("coding", run.samples).tokens_per_step / found["break_even_acceptance_length"]
    )
    shown = CliRunner().invoke(cli, ["--database-url", database.url.render_as_string(hide_password=False), "speedup"])
    assert shown.stdout.startswith("route lone · basis modelled\n")
    assert re.search(r"^coding +\d\.\d\d ", shown.stdout, re.MULTILINE)


def test_the_newest_are_found_without_reading_all(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(
            text(
                "INSERT INTO speedups (key, route, domain, valid, finished_at, document) SELECT n::text, "
                "'r' || n % 4, 'd' || n % 5, true, now(), '{}' FROM generate_series(1, 20000) AS n"
            )
        )
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE speedups"))
        statement = newest(speedups_table, speedups_table.c.valid)
        shown = statement.compile(connection, compile_kwargs={"literal_binds": True})
        plan = "\n".join(connection.execute(text(f"EXPLAIN {shown}")).scalars())
        assert "Seq Scan on speedups" not in plan
        assert "ix_speedups_route_domain_id" in plan
        assert len(connection.execute(statement).all()) == 20
