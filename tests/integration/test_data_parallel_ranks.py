"""Data-parallel engines behind one address, each measured as a replica of its own."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from monitor.cli import cli
from monitor.core.figures import aggregate
from monitor.core.records import Reason, Run, Sampling
from monitor.engines.vllm import VllmEngine
from monitor.probing.replay import replay
from monitor.probing.target import Target
from monitor.service.discovery import Replicas
from monitor.service.jobs import ProbeJob
from monitor.service.probes import run_probe, run_speedup
from monitor.service.scheduler import Scheduler
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer
from tests.factories import make_route
from tests.integration.replicas import QUICK, prompt_set

if TYPE_CHECKING:
    from monitor.store.database import Database

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
ALL = 12


class RankOneIsIll(SimulatedServer):
    """Its engine 1 accepts nearly nothing."""

    def drafter_of(self, domain: str, prompt_tokens: int, rank: int | None) -> Drafter:
        usual = super().drafter_of(domain, prompt_tokens, rank)
        return usual.with_acceptance("default", (0.05, 0.05, 0.05, 0.05)) if rank == 1 else usual


@pytest.fixture
def server() -> SimulatedServer:
    return RankOneIsIll(ServerConfig(engines=2))


async def run_at(url: str, rank: int | None, **options: object) -> Run:
    target = Target(url, timeouts=QUICK, data_parallel_rank=rank)
    settings = {"route": "r", "sampling": Sampling(max_tokens=40), **options}
    run = await replay(target, VllmEngine(), prompt_set(ALL), **settings)  # type: ignore[arg-type]
    assert isinstance(run, Run)
    return run


def test_each_rank_is_a_replica_of_its_own_in_the_route_s_turns(database: Database) -> None:
    route = make_route(replicas=["http://a:1", "http://b:1"], data_parallel_ranks=2)
    replicas = Replicas([route])
    assert replicas.known(route) == ("http://a:1#rank=0", "http://a:1#rank=1", "http://b:1#rank=0", "http://b:1#rank=1")
    assert replicas.number() == 2
    for slot in range(4):
        scheduler = Scheduler(database, [route], now=lambda slot=slot: NOW + slot * route.every)
        assert scheduler.queue_slot(route, "coding")
    with database.transaction() as connection:
        jobs = connection.execute(text("SELECT args->'job'->>'replica' AS replica, lock FROM procrastinate_jobs")).all()
    assert {job.replica for job in jobs} == set(replicas.known(route))
    assert {job.lock for job in jobs} == {"replica http://a:1", "replica http://b:1"}


async def test_the_ill_rank_is_found_and_the_run_names_it(url: str, server: SimulatedServer) -> None:
    route = make_route(replicas=[url], data_parallel_ranks=2, model=None, min_prompts=ALL)
    lengths = {}
    for replica in Replicas([route]).known(route):
        run = await run_probe(route, ProbeJob("k", route.name, "coding", replica, Reason.SCHEDULED), prompt_set(ALL))
        assert isinstance(run, Run)
        assert (run.replica, run.invalid_reason, run.warnings) == (replica, None, ())
        lengths[replica] = aggregate("coding", run.samples).acceptance_length
    assert lengths[f"{url}#rank=0"] > 2 > 1.3 > lengths[f"{url}#rank=1"]
    assert [sum(engine.finished.values()) for engine in server.engines] == [ALL, ALL]


async def test_counters_are_the_rank_s_own_while_the_others_serve(url: str, server: SimulatedServer) -> None:
    told = await run_at(url, 0, source="request")
    busy = asyncio.create_task(_traffic(server, rank=1))
    read = await run_at(url, 0, source="counters")
    busy.cancel()
    assert read.invalid_reason is None
    assert all(sample.valid for sample in read.samples)
    assert told.acceptance_by_source.keys() == {"request", "stream", "counters"}
    assert read.regime.preemptions == 0
    server.traffic(rank=0)
    crowded = asyncio.create_task(_traffic(server, rank=0))
    assert (await run_at(url, 0, source="counters")).invalid_reason == "contaminated"
    crowded.cancel()


async def _traffic(server: SimulatedServer, rank: int) -> None:
    while True:
        server.traffic(rank=rank, requests=5)
        await asyncio.sleep(0.001)


async def test_a_rank_that_is_not_there_is_refused_in_the_server_s_words(url: str) -> None:
    run = await run_at(url, 2)
    assert run.replica == f"{url}#rank=2"
    assert (run.invalid_reason, run.identity.model) == ("error_in_stream", "tiny")
    assert run.invalid_detail is not None
    assert "data_parallel_rank 2 is out of range [0, 2)" in run.invalid_detail


async def test_counters_that_moved_at_another_rank_are_said_to_be_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a gateway drops the header."""
    monkeypatch.setattr("monitor.sim.pages._rank", lambda _: 0)
    monkeypatch.setattr("monitor.probing.walk.CROSSCHECK_SETTLE_SECONDS", 0.1)
    with SimulatedServer(ServerConfig(engines=2)).run_in_thread() as url:
        run = await run_at(url, 1)
    assert any("its counters show 0 of our" in warning for warning in run.warnings)


async def test_speedup_of_a_rank_is_measured_beside_one_engine_of_the_twin() -> None:
    steps = Behaviour(step_time_seconds=0.002)
    plain = SimulatedServer(ServerConfig(drafter=Drafter(method=None), engines=2), steps)
    fast = SimulatedServer(ServerConfig(engines=2), steps)
    with plain.run_in_thread() as twin, fast.run_in_thread() as url:
        route = make_route(replicas=[url], plain_twin=twin, data_parallel_ranks=2, model=None, max_tokens=16)
        job = ProbeJob("k", route.name, "coding", f"{url}#rank=1", Reason.SPEEDUP)
        found = await run_speedup(route, job, prompt_set(ALL), twin)
    assert (found.replica, found.plain_twin, found.invalid_reason) == (f"{url}#rank=1", f"{twin}#rank=0", None)
    assert [bool(engine.generation_tokens) for engine in (*plain.engines, *fast.engines)] == [True, False, False, True]


class TestProbe:
    def test_one_rank_is_measured_and_named(self, url: str, server: SimulatedServer) -> None:
        result = CliRunner().invoke(
            cli,
            ["probe", url, "--data-parallel-rank", "1", "--domain", "coding", "--prompts", "3", "--format", "json"],
        )
        assert json.loads(result.stdout)["replica"] == f"{url}#rank=1"
        assert [engine.finished.total() for engine in server.engines] == [0, 3]

    def test_another_engine_has_no_ranks(self, url: str) -> None:
        result = CliRunner().invoke(cli, ["probe", url, "--data-parallel-rank", "1", "--engine", "sglang"])
        assert result.exit_code == 2
        assert "--data-parallel-rank is for vLLM, which this server is not" in result.stderr
