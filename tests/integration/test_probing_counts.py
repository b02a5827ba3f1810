"""What a run measures, against the counters of the server that it measured."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from replicas import prompt_set, run_of

from monitor.core.figures import acceptance_length, aggregate
from monitor.core.records import Counts, Identity, Sampling, Source
from monitor.engines.answer import Answer
from monitor.engines.counts import Reading, drafts_every_step, sample_of
from monitor.engines.vllm import VllmEngine
from monitor.probing.client import Client
from monitor.probing.target import Target
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer

if TYPE_CHECKING:
    from monitor.core.records import Sample

CAPTURES = sorted((Path(__file__).parents[2].parent / "shared/fixtures/vllm-0.32.0/sse").glob("*.sse.txt"))


async def counters_of(url: str) -> dict[str, float]:
    """The speculation counters of the server, summed over its engines."""
    async with Client(Target(url), 1) as client:
        page = await client.get_text("/metrics")
    found: dict[str, float] = {}
    for name, value in re.findall(r"^vllm:spec_decode_(num_\w+_total)\{[^}]*\} (\S+)$", page, re.MULTILINE):
        found[name] = found.get(name, 0) + float(value)
    return found


def total(samples: tuple[Sample, ...]) -> Counts:
    return sum((sample.counts for sample in samples), Counts())


class TestRequest:
    @pytest.mark.parametrize("method", ["draft_model", "eagle", "ngram", "suffix"])
    async def test_samples_add_up_to_what_the_counters_of_the_server_moved_by(self, method):
        server = SimulatedServer(ServerConfig(drafter=Drafter(method=method), engines=2))
        with server.run_in_thread() as url:
            server.traffic(requests=3)
            before = await counters_of(url)
            run = await run_of(url, prompt_set(12, turns=2), sampling=Sampling(max_tokens=128))
            after = await counters_of(url)
        moved = {name: value - before[name] for name, value in after.items()}
        counts = total(run.samples)
        assert all(sample.valid and sample.source is Source.REQUEST for sample in run.samples)
        assert counts.steps == moved["num_drafts_total"] > 0
        assert counts.drafted == moved["num_draft_tokens_total"]
        assert counts.accepted == moved["num_accepted_tokens_total"]
        assert sum(counts.histogram) == counts.steps

    async def test_the_figures_of_a_lookup_method_keep_acceptance_and_tokens_per_step_apart(self):
        server = SimulatedServer(ServerConfig(drafter=Drafter(method="ngram", coverage_ratio=0.4)))
        with server.run_in_thread() as url:
            figures = aggregate("coding", (await run_of(url, prompt_set(12))).samples)
        assert figures.coverage == pytest.approx(0.4, abs=0.1)
        assert figures.tokens_per_step is not None
        assert figures.acceptance_length is not None
        assert figures.tokens_per_step < figures.acceptance_length - 0.5

    async def test_what_is_running_is_observed(self):
        server = SimulatedServer(ServerConfig(dev_mode=True, drafter=Drafter(method="eagle", num_speculative_tokens=3)))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(2))
        seen = run.identity
        assert (seen.engine, seen.version, seen.model, seen.root) == ("vllm", "0.32.0", "tiny", "models/tiny-target")
        assert (seen.method, seen.k, seen.fingerprint) == ("eagle", 3, server.fingerprint)
        assert run.regime.server_started_at == pytest.approx(server.started_seconds, abs=1)
        assert run.regime.running_before == 0

    async def test_a_drafter_swapped_during_a_run_makes_it_invalid(self):
        server = SimulatedServer()
        with server.run_in_thread() as url:

            def swap(_: Sample) -> None:
                server.swap_drafter(Drafter(name="other", num_speculative_tokens=3))

            run = await run_of(url, prompt_set(3), concurrency=1, on_sample=swap)
        assert run.invalid_reason == "identity_changed_during_run"
        assert any("the server was restarted during the run" in warning for warning in run.warnings)


class TestStream:
    async def test_the_stream_agrees_with_the_counts_but_for_the_last_chunk(self):
        exact, seen = [], []
        for flag, runs in (("summary", exact), ("none", seen)):
            server = SimulatedServer(ServerConfig(per_request_counts=flag, dev_mode=True))
            with server.run_in_thread() as url:
                runs.append(await run_of(url, prompt_set(8)))
        for told, read in zip(exact[0].samples, seen[0].samples, strict=True):
            assert (told.source, read.source) == (Source.REQUEST, Source.STREAM)
            assert read.counts.steps == told.counts.steps - 1
            assert read.counts.drafted == read.counts.steps * 4
            assert 0 <= told.counts.accepted - read.counts.accepted <= 4
            assert read.chunk_tokens == told.chunk_tokens
        assert [warning for warning in seen[0].warnings if not warning.startswith("this machine was late")] == [
            "counts are estimated from the stream; for exact counts start the server with "
            "--per-request-spec-decode-metrics summary (vLLM ≥ 0.29)"
        ]

    async def test_a_stream_interval_gives_itself_away_by_merged_chunks(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none"))
        server.behave(stream_interval=8)
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(4))
        assert run.invalid_reason == "merged_chunks"

    async def test_merged_chunks_too_small_to_prove_it_are_estimated_by_their_time(self):
        """Nearly every pair of steps fits into K + 1 tokens here, so that no sample is invalid by itself."""
        weak = Drafter(default_acceptance=(0.4,), num_speculative_tokens=8, prompt_spread_ratio=0.0)
        runs = []
        for chance in (0.0, 0.15):
            server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=weak, dev_mode=True))
            server.behave(step_time_seconds=0.06, merge_probability=chance)
            with server.run_in_thread() as url:
                runs.append(await run_of(url, prompt_set(24), concurrency=24))
        none, many = runs
        assert none.invalid_reason is None
        assert aggregate("coding", none.samples).acceptance_length == pytest.approx(1.67, abs=0.1)
        assert many.invalid_reason == "merged_chunks"
        assert aggregate("coding", many.samples).acceptance_length is None
        (share, too_many) = map(float, re.findall(r"about ([\d.]+)%", many.invalid_detail or ""))
        # 2 percent of the chunks hold three steps, which the estimate leaves out; a busy machine hides some more.
        assert 6 < share < 18
        assert 6 < too_many < 18

    async def test_a_declared_lookup_method_has_no_acceptance_length(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=Drafter(method="ngram")))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(4), source="stream", declared_identity=Identity(method="ngram"))
        figures = aggregate("coding", run.samples)
        assert (run.invalid_reason, figures.acceptance_length) == (None, None)
        assert figures.tokens_per_step is not None
        assert any("not the same quantity" in warning for warning in run.warnings)

    async def test_a_server_without_speculation_is_said_to_have_none(self):
        server = SimulatedServer(ServerConfig(drafter=Drafter(method=None)))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(4))
        assert run.invalid_reason == "no_speculation"
        assert "start the server with a drafter (vLLM: --speculative-config)" in (run.invalid_detail or "")
        assert all(sample.decode_seconds is not None for sample in run.samples)

    async def test_without_a_metrics_page_the_answers_alone_are_enough(self):
        server = SimulatedServer()
        server.behave(omit_spec_metrics=True)
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(4))
        assert (run.invalid_reason, run.samples[0].source) == (None, Source.REQUEST)


class TestReplay:
    async def test_turns_are_asked_with_the_answers_that_were_given(self):
        server = SimulatedServer()
        with server.run_in_thread() as url:
            one, three = [await run_of(url, prompt_set(2, turns=turns)) for turns in (1, 3)]
        assert [len(sample.chunk_tokens) for sample in three.samples] == [3, 3]
        for single, talk in zip(one.samples, three.samples, strict=True):
            assert (talk.prompt_tokens or 0) > 3 * (single.prompt_tokens or 0)
            assert talk.completion_tokens > 2 * single.completion_tokens

    async def test_a_completion_is_asked_for_the_first_turn_alone(self):
        server = SimulatedServer()
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(2, turns=3), sampling=Sampling(endpoint="completions", max_tokens=40))
        assert [len(sample.chunk_tokens) for sample in run.samples] == [1, 1]
        assert run.invalid_reason is None

    async def test_samples_stand_in_the_order_of_the_prompts_and_are_told_as_they_finish(self):
        told: list[str] = []
        server = SimulatedServer()
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(9), limit=7, on_sample=lambda sample: told.append(sample.question_id))
        assert [sample.question_id for sample in run.samples] == [f"q{n}" for n in range(7)]
        assert sorted(told) == [f"q{n}" for n in range(7)]

    async def test_no_more_prompts_are_in_flight_than_asked_for(self):
        server = SimulatedServer()
        server.behave(step_time_seconds=0.002)
        highest = 0

        async def watch() -> None:
            nonlocal highest
            while True:
                highest = max(highest, sum(engine.running + engine.waiting for engine in server.engines))
                await asyncio.sleep(0.001)

        with server.run_in_thread() as url:
            watching = asyncio.create_task(watch())
            await run_of(url, prompt_set(9), concurrency=3)
            watching.cancel()
        assert highest == 3

    async def test_greedy_output_hashes_repeat_and_a_cold_cache_stays_cold(self):
        server = SimulatedServer(ServerConfig(prompt_tokens_details=True))
        with server.run_in_thread() as url:
            cold = [await run_of(url) for _ in range(2)]
            warm = [await run_of(url, long_prompts(), sampling=Sampling(max_tokens=40, cache="warm")) for _ in range(2)]
        assert [s.output_hash for s in cold[0].samples] == [s.output_hash for s in cold[1].samples]
        assert all(s.output_hash for s in cold[0].samples)
        assert [s.cached_prompt_tokens for s in cold[1].samples] == [0] * 6
        assert all((s.cached_prompt_tokens or 0) > 0 for s in warm[1].samples)

    async def test_times_are_those_of_the_server_and_our_own_lag_stands_beside_them(self):
        server = SimulatedServer()
        server.behave(latency_seconds=0.2, step_time_seconds=0.01)
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(1))
        (sample,) = run.samples
        assert 0.2 < (sample.ttft_seconds or 0) < 0.6
        assert sample.decode_seconds == pytest.approx(0.01 * sample.counts.decode_steps, rel=0.5)
        assert 0 <= sample.loop_lag_seconds < 0.2
        (times,) = sample.chunk_seconds
        assert all(a <= b for a, b in pairwise(times))


def long_prompts():
    prompts = prompt_set(6)
    longer = tuple(type(p)(p.question_id, p.category, "", (p.turns[0] + " word" * 800,)) for p in prompts.prompts)
    return type(prompts)("coding", longer, "h")


@pytest.mark.skipif(not CAPTURES, reason="the captures of a real server are not beside this checkout")
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.removesuffix(".sse.txt"))
def test_a_capture_of_a_real_server_reads_as_the_server_counted_it(capture: Path):
    answer = Answer()
    for stamp, event in re.findall(r"^# t=(\S+)\ndata: (\{.*\})$", capture.read_text(), re.MULTILINE):
        answer.add(float(stamp), VllmEngine().read(event.encode(), "http://real"))
    name = capture.name.partition("_")[0]
    method = {"draft": "draft_model", "deep": "draft_model", "plain": None}.get(name, name)
    assert answer.counted_tokens == answer.reported_tokens
    if method is None:
        assert set(answer.chunk_tokens) == {1}
        return
    told = answer.request_counts
    assert told is not None
    exact = sample_of("q", [answer], Reading(Source.REQUEST), None, "")
    assert (exact.counts.steps, exact.counts.accepted) == (told.steps, told.accepted)
    assert exact.invalid_reason in (None, "too_short")
    assert exact.counts.decode_steps == answer.decode_chunks
    read = sample_of("q", [answer], Reading(Source.STREAM, told.k, drafts_every_step(method)), None, "")
    if method in ("ngram", "suffix"):
        assert acceptance_length(read.counts) is None
    else:
        assert read.counts.steps == told.steps - 1
        assert 0 <= told.accepted - read.counts.accepted <= (told.k or 0)


class TestUndeclaredMethod:
    """A server that does not tell its method: only its counters can say whether steps have drafts."""

    async def test_counters_that_show_steps_without_a_draft_leave_acceptance_out(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=Drafter(method="ngram")))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(12))
        figures = aggregate("coding", run.samples)
        assert (figures.acceptance_length, figures.survival, figures.source) == (None, (), Source.STREAM)
        assert figures.tokens_per_step is not None
        shown, needed = [w for w in run.warnings if "acceptance length" in w]
        assert re.match(r"the server's counters show a draft in (3|4)\d% of the decode steps: ", shown)
        assert "declare it with --method, or as identity.method in routes.yaml" in needed

    async def test_counters_that_show_a_draft_in_every_step_make_acceptance_certain(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=Drafter(method="eagle")))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(12))
        figures = aggregate("coding", run.samples)
        assert figures.acceptance_length == pytest.approx(run.acceptance_by_source["counters"], rel=0.02)
        assert figures.acceptance_rate is not None
        assert not [w for w in run.warnings if "drafts at every step" in w]

    async def test_counters_that_others_move_too_leave_the_assumption_said(self):
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=Drafter(method="ngram")))

        def others(_: object) -> None:
            server.traffic(requests=20, max_tokens=200)

        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(4), on_sample=others)
        assert aggregate("coding", run.samples).acceptance_length is not None
        assert [w for w in run.warnings if w.startswith("acceptance length assumes a method that drafts at every step")]

    async def test_a_method_that_should_draft_at_every_step_and_does_not_has_no_acceptance_length(self):
        drafter = Drafter(method="draft_model", coverage_ratio=0.5)
        server = SimulatedServer(ServerConfig(per_request_counts="none", drafter=drafter))
        declared = Identity(method="draft_model", declared=("method",))
        with server.run_in_thread() as url:
            run = await run_of(url, prompt_set(12), declared_identity=declared)
        assert aggregate("coding", run.samples).acceptance_length is None
        shown, needed = [w for w in run.warnings if "acceptance length" in w]
        assert "of the decode steps" in shown
        assert needed == "acceptance length then needs counts per request, or source counters"
