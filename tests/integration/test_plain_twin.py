"""A replica measured beside its plain twin: over real HTTP, through the queue, into the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from monitor.core.records import Sampling
from monitor.engines.vllm import VllmEngine
from monitor.probing.client import Target
from monitor.probing.speedup import measure_speedup
from monitor.probing.sweep import Plan
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer
from tests.integration.replicas import QUICK, prompt_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.core.speedup import Speedup

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
