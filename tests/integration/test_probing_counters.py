"""Source `counters`: a simulated server's metrics page around one prompt at a time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from replicas import lookups, prompt_set, run_of

from monitor.core.figures import acceptance_length, aggregate
from monitor.core.records import Counts, Identity, Run, Sampling, Source
from monitor.engines.failures import failure
from monitor.engines.vllm import VllmEngine
from monitor.probing import walk, watch, window
from monitor.probing.replay import replay
from monitor.probing.target import Target
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.core.records import Sample
    from monitor.engines.base import Glance, Observation, Replica
    from monitor.errors import TargetError

ALL = 8
NGRAM = Identity(method="ngram", declared=("method",))


def total(run: Run) -> Counts:
    return sum((sample.counts for sample in run.samples), Counts())


def pooled_acceptance_length(run: Run) -> float | None:
    return acceptance_length(total(run))


class Interrupted(VllmEngine):
    """vLLM whose page is looked at only after `meanwhile(look)` has been called: look n is the one after prompt n."""

    def __init__(self, meanwhile: Callable[[int], None]) -> None:
        self._meanwhile, self._looks = meanwhile, 0

    async def glance(self, replica: Replica, model: str | None) -> Glance:
        self._looks += 1
        self._meanwhile(self._looks)
        return await super().glance(replica, model)


async def interrupted(url: str, meanwhile: Callable[[int], None], **options: object) -> Run:
    run = await replay(
        Target(url), Interrupted(meanwhile), prompt_set(ALL), route="r", sampling=Sampling(max_tokens=40),
        **{"source": "counters", **options},  # type: ignore[arg-type]
    )  # fmt: skip
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize("method", ["draft_model", "ngram"])
async def test_on_a_quiet_server_the_counters_say_of_each_prompt_what_the_answers_say(method):
    runs = {}
    for source in ("request", "counters"):
        server = SimulatedServer(ServerConfig(drafter=Drafter(method=method), engines=2))
        with server.run_in_thread() as url:
            runs[source] = await run_of(url, prompt_set(ALL, turns=2), source=source, concurrency=4)
    told, read = runs["request"], runs["counters"]
    assert [sample.counts for sample in read.samples] == [sample.counts for sample in told.samples]
    assert all(sample.source is Source.COUNTERS and sample.valid for sample in read.samples)
    assert {sample.k for sample in read.samples} == {4}
    assert (told.concurrency, read.concurrency) == (4, 1)
    assert (read.invalid_reason, read.warnings) == (None, ())
    figures = aggregate("coding", read.samples)
    assert 1 + sum(figures.survival) == pytest.approx(figures.acceptance_length)
    assert figures.coverage == aggregate("coding", told.samples).coverage


async def test_traffic_of_others_makes_the_run_invalid_with_the_numbers():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await interrupted(url, lambda look: server.traffic(requests=1, max_tokens=30))
    own = sum(sample.completion_tokens for sample in run.samples)
    assert {sample.invalid_reason for sample in run.samples} == {"contaminated"}
    assert run.invalid_reason == "contaminated"
    assert run.invalid_detail == (
        f"{url}: the server generated {ALL * 30} tokens for others beside our {own} ({ALL * 30 / own:.1%}, 1.0% is "
        "allowed), and its counters hold both; measure when it is quiet, or use source request or stream"
    )


async def test_one_visitor_costs_one_prompt():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await interrupted(url, lambda look: server.traffic(requests=int(look == 3)))
    assert [sample.invalid_reason for sample in run.samples] == [None, None, "contaminated", *[None] * 5]
    assert run.invalid_reason is None


async def test_a_run_disturbed_in_half_of_its_prompts_reports_none():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await interrupted(url, lambda look: server.traffic(requests=int(look > ALL // 2)))
    assert {sample.invalid_reason for sample in run.samples} == {"contaminated"}
    assert run.invalid_reason == "contaminated"
    assert aggregate("coding", run.samples).acceptance_length is None


async def test_what_contamination_is_allowed_is_the_routes_to_say():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await interrupted(url, lambda _: server.traffic(max_tokens=4), max_contamination_ratio=0.5)
    assert run.invalid_reason is None


async def test_a_restart_between_two_looks_costs_the_prompt_around_it():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await interrupted(url, lambda look: server.restart() if look == 4 else None)
    assert [sample.invalid_reason for sample in run.samples] == [*[None] * 3, "counters_reset", *[None] * 4]
    assert run.invalid_reason is None


async def test_counters_that_jump_between_servers_are_those_of_a_load_balancer():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await interrupted(url, lambda _: server.restart())
    assert [sample.invalid_reason for sample in run.samples] == ["counters_reset", *["load_balancer"] * (ALL - 1)]
    assert run.invalid_reason == "load_balancer"
    assert "began anew 2 times in one run; the address is that of several servers" in (run.invalid_detail or "")


async def test_a_page_that_could_not_be_read_twice_is_read_again(monkeypatch):
    monkeypatch.setattr(watch, "LOAD_EVERY_SECONDS", 60.0)

    class Stalling(VllmEngine):
        looks = 0

        async def page(self, replica: Replica) -> str | TargetError:
            self.looks += 1  # the first is before prompt 1, the second after it
            if self.looks in (3, 4):
                return failure("stalled", replica.url, "no event for 10 s")
            return await super().page(replica)

    with SimulatedServer().run_in_thread() as url:
        run = await replay(
            Target(url), Stalling(), prompt_set(ALL), route="r", sampling=Sampling(max_tokens=40), source="counters"
        )
    assert [sample.invalid_reason for sample in run.samples] == [None, "stalled", "stalled", *[None] * (ALL - 3)]


async def test_counters_of_a_server_that_did_not_answer_us_never_catch_up(monkeypatch):
    monkeypatch.setattr(window, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(walk, "CROSSCHECK_SETTLE_SECONDS", 0.05)
    other = SimulatedServer()

    class ElsewhereEngine(VllmEngine):
        async def glance(self, replica: Replica, model: str | None) -> Glance:
            return self.__dict__.setdefault("first", await super().glance(replica, model))

        async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
            found = await super().observe(replica, model, declared)
            return dataclasses.replace(found, glance=await self.glance(replica, model))

    with other.run_in_thread() as url:
        run = await replay(
            Target(url), ElsewhereEngine(), prompt_set(ALL), route="r", sampling=Sampling(max_tokens=40),
            source="counters",
        )  # fmt: skip
    assert isinstance(run, Run)
    assert run.invalid_reason == "counters_behind"
    assert "its counters show 0 of our 40 tokens" in (run.invalid_detail or "")
    assert "behind a load balancer" in (run.invalid_detail or "")
    assert sum(sample.completion_tokens > 0 for sample in run.samples) == 3  # then the replica is left alone


async def test_a_server_that_counts_a_little_late_is_waited_for():
    server = SimulatedServer()
    pages: list[Glance] = []

    class LateEngine(VllmEngine):
        async def glance(self, replica: Replica, model: str | None) -> Glance:
            pages.append(await super().glance(replica, model))
            return pages[max(0, len(pages) - 3)]

        async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
            found = await super().observe(replica, model, declared)
            return dataclasses.replace(found, glance=await self.glance(replica, model))

    with server.run_in_thread() as url:
        run = await replay(
            Target(url), LateEngine(), prompt_set(ALL), route="r", sampling=Sampling(max_tokens=40), source="counters"
        )
    assert isinstance(run, Run)
    assert run.invalid_reason is None
    assert len(pages) > ALL + 2


async def test_a_server_without_the_page_is_not_asked_a_single_prompt():
    class HiddenEngine(VllmEngine):
        async def page(self, replica: Replica) -> str:
            return ""

    server = SimulatedServer()
    with server.run_in_thread() as url:
        run = await replay(
            Target(url), HiddenEngine(), prompt_set(ALL), route="r", sampling=Sampling(), source="counters"
        )
    assert isinstance(run, Run)
    assert run.invalid_reason == "no_counters"
    assert {sample.completion_tokens for sample in run.samples} == {0}
    assert server.engines[0].generation_tokens == 0


async def test_a_plain_server_has_no_speculation_by_its_counters_either():
    with SimulatedServer(ServerConfig(drafter=Drafter(method=None))).run_in_thread() as url:
        run = await run_of(url, prompt_set(ALL), source="counters")
    assert run.invalid_reason == "no_speculation"


class TestTheBestThereIs:
    async def test_a_lookup_method_without_counts_per_request_is_measured_by_counters(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=Drafter(method="ngram")))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(ALL), declared_identity=NGRAM)
        assert {sample.source for sample in run.samples} == {Source.COUNTERS}
        assert (run.invalid_reason, run.concurrency) == (None, 1)
        assert pooled_acceptance_length(run) is not None
        assert any(warning.startswith("counts are those of the whole server") for warning in run.warnings)

    async def test_once_an_answer_has_counts_the_other_prompts_go_together(self):
        server = SimulatedServer(ServerConfig(drafter=Drafter(method="ngram")))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(ALL), declared_identity=NGRAM, concurrency=4)
        assert {sample.source for sample in run.samples} == {Source.REQUEST}
        assert (run.invalid_reason, run.concurrency, run.warnings) == (None, 4, ())

    async def test_a_busy_server_falls_back_to_the_stream_and_says_why(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=Drafter(method="ngram")))
        with server.run_in_thread() as url:
            run = await interrupted(
                url, lambda look: server.traffic(requests=int(look > 0)), source="auto", declared_identity=NGRAM
            )
        assert {sample.source for sample in run.samples} == {Source.STREAM}
        assert (run.invalid_reason, pooled_acceptance_length(run)) == (None, None)
        assert any("counters are no use: the server generated " in warning for warning in run.warnings)

    async def test_a_method_that_always_drafts_is_measured_by_its_stream(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", dev_mode=True))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(ALL), concurrency=4)
        assert {sample.source for sample in run.samples} == {Source.STREAM}
        assert run.concurrency == 4


async def test_progress_is_told_of_prompts_with_the_counts_that_the_run_will_have():
    told: list[Sample] = []
    with SimulatedServer().run_in_thread() as url:
        run = await run_of(url, prompt_set(ALL), source="counters", on_sample=told.append)
    assert [sample.counts for sample in told] == [sample.counts for sample in run.samples]


async def test_speculators_1095_positions_divided_by_the_data_parallel_engines_are_never_a_figure():
    """An exporter kept one engine's positions in place of their sum: acceptance length right, survival a half of it."""
    server = SimulatedServer(ServerConfig(engines=2), Behaviour(divide_positions=True))
    with server.run_in_thread() as url:
        by_counters = await run_of(url, prompt_set(ALL), source="counters")
        by_request = await run_of(url, prompt_set(ALL), source="request")
    assert {sample.invalid_reason for sample in by_counters.samples} == {"inconsistent_counts"}
    assert "so AL is not 1 + Σ" in (by_counters.samples[0].invalid_detail or "")
    assert by_counters.invalid_reason is not None
    assert by_request.invalid_reason is None
    assert "counters" not in by_request.acceptance_by_source


class TestSourcesSideBySide:
    async def test_on_a_quiet_server_request_and_counters_are_equal_and_the_stream_is_near(self):
        with SimulatedServer(ServerConfig(dev_mode=True, engines=2)).run_in_thread() as url:
            run = await run_of(url, prompt_set(24), sampling=Sampling(max_tokens=128), concurrency=4)
        found = dict(run.acceptance_by_source)
        assert found.keys() == {"request", "stream", "counters"}
        assert found["counters"] == found["request"] == pooled_acceptance_length(run)
        assert found["stream"] == pytest.approx(found["request"], rel=0.02)
        assert (run.concurrency, run.invalid_reason) == (4, None)

    async def test_beside_others_the_counters_are_left_out(self):
        server = SimulatedServer()
        with server.run_in_thread() as url:
            run = await interrupted(url, lambda look: server.traffic(requests=int(look >= 0)), source="request")
        assert run.acceptance_by_source.keys() == {"request"}
        assert (run.invalid_reason, run.warnings) == (None, ())

    async def test_a_lookup_method_has_no_acceptance_length_by_its_stream(self):
        with SimulatedServer(ServerConfig(dev_mode=True, drafter=Drafter(method="ngram"))).run_in_thread() as url:
            run = await run_of(url, prompt_set(ALL), source="stream")
        assert run.acceptance_by_source.keys() == {"request", "counters"}

    async def test_a_page_that_is_another_servers_after_the_run_is_told(self):
        server = SimulatedServer()
        with server.run_in_thread() as url:
            run = await interrupted(url, lambda look: server.restart() if look == 1 else None, source="request")
        assert run.invalid_reason is None
        (warning,) = run.warnings
        assert warning == (
            "the server was restarted during the run; if it repeats, this is a load balancer: name one replica"
        )


@pytest.mark.parametrize(
    ("drafter", "options", "reads"),
    [
        (Drafter(), {"source": "request"}, 2),
        (Drafter(), {"source": "stream"}, 2),
        (Drafter(), {"source": "counters"}, 1 + ALL),
        (
            Drafter(method="ngram"),
            {"source": "auto", "declared_identity": NGRAM},
            3,
        ),  # until an answer has counts
        (Drafter(method=None), {"source": "auto", "plain": True}, 2),
    ],
)
async def test_the_page_is_read_once_for_each_moment_that_somebody_wants_to_know_of(
    monkeypatch, drafter, options, reads
):
    asked = lookups(monkeypatch)
    with SimulatedServer(ServerConfig(drafter=drafter)).run_in_thread() as url:
        run = await run_of(url, prompt_set(ALL), sampling=Sampling(max_tokens=40), **options)
    assert run.invalid_reason is None
    assert asked.count("/metrics") == reads
    assert run.regime.running_before == 0
    if not options.get("plain"):
        assert "counters" in run.acceptance_by_source


async def test_what_others_ask_before_the_first_look_and_after_the_last_is_not_the_runs():
    server = SimulatedServer()
    with server.run_in_thread() as url:
        server.traffic(requests=3, max_tokens=50)
        run = await run_of(url, prompt_set(ALL), sampling=Sampling(max_tokens=40), source="request")
        server.traffic(requests=3, max_tokens=50)
    assert run.acceptance_by_source["counters"] == pytest.approx(run.acceptance_by_source["request"], abs=1e-12)
