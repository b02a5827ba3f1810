from __future__ import annotations

import pytest

from monitor.core.records import Counts, Identity, Sampling, Source
from monitor.engines.base import Load
from monitor.engines.counters import Change, difference
from monitor.engines.counts import Reading, counts_of
from monitor.engines.trtllm import PAGE, TrtLlmEngine
from monitor.errors import TargetError
from tests.engines import URL, FixtureReplica, answer_of, counters_at, events, now, page

ENGINE = TrtLlmEngine()


def observed(old: str, new: str):
    text = page("trtllm", PAGE)
    assert old in text
    return now(ENGINE.observe(FixtureReplica("trtllm", {PAGE: text.replace(old, new)}), None, Identity()))


class TestStream:
    def test_a_chunk_is_a_step(self):
        answer = answer_of(ENGINE, events("trtllm"))
        assert answer.chunk_tokens == [1, 3, 2, 4, 1, 2]
        counts = counts_of(answer, Reading(Source.STREAM, k=3, every_step=True))
        assert counts == Counts(4, 12, 6, (1, 1, 1, 1), 5)
        assert (answer.completion_tokens, answer.cached_prompt_tokens, answer.finish_reason) == (13, 8, "length")

    def test_the_average_per_iteration_is_no_count_of_steps(self):
        assert answer_of(ENGINE, events("trtllm")).request_counts is None

    def test_the_request_holds_only_keys_that_the_server_knows(self):
        body = ENGINE.body("chat", [("user", "Hi")], Sampling(), "salt")
        assert body.keys() == {
            "model",
            "messages",
            "stream",
            "stream_options",
            "max_tokens",
            "temperature",
            "seed",
            "cache_salt",
        }


class TestObservation:
    def test_the_info_series_make_the_identity(self):
        look = now(ENGINE.observe(FixtureReplica("trtllm"), None, Identity()))
        assert look.identity == Identity(
            engine="trtllm",
            version="1.2.1",
            model="chat",
            root="models/target",
            max_model_len=16384,
            drafter="models/eagle",
            method="eagle3",
            k=3,
            quantization="FP8",
            tensor_parallel=2,
        )
        assert (look.glance.speculates, look.glance.load) == (True, Load(3.0, 2.0, 0.25, None, 1.79618e9))

    def test_the_configuration_says_whether_speculation_is_on(self):
        assert observed('spec_enabled="true"', 'spec_enabled="false"').glance.speculates is False
        assert observed("trtllm_speculative_config_info{", "other{").glance.speculates is True  # a draft was counted

    def test_methods_have_the_names_that_other_engines_give_them(self):
        look = observed('"Eagle3"', '"DraftTarget"')
        assert look.identity.method == "draft_model"

    def test_without_a_metrics_page_only_the_model_and_version_are_known(self):
        look = now(ENGINE.observe(FixtureReplica("trtllm", {PAGE: None}), None, Identity()))
        assert look.identity == Identity(engine="trtllm", version="1.2.1", model="chat")
        assert (look.glance.speculates, look.glance.load) == (None, Load())


class TestCounters:
    def test_steps_are_those_that_drafted_at_the_first_position(self):
        before, after = (counters_at(ENGINE, page("trtllm", path)) for path in (PAGE, f"{PAGE}_after"))
        change = difference(before, after, URL)
        assert change == Change(5, 15, 7, (4, 2, 1), 13, 12, 0)
        assert (change.histogram, change.contradiction()) == ((1, 2, 1, 1), None)

    def test_workers_are_added_up(self):
        text = page("trtllm", PAGE)
        twice = [line + line.replace('"trtllm"', '"trtllm",worker="1"') for line in text.splitlines(keepends=True)[2:]]
        counters = counters_at(ENGINE, "".join(twice))
        assert sorted(counters.series.values()) == [256.0, 432.0, 740.0, 840.0, 1200.0, 1428.0, 2670.0, 3600.0]

    def test_a_page_of_iterations_alone_is_refused(self):
        with pytest.raises(TargetError, match="no counters of TensorRT-LLM requests") as caught:
            counters_at(ENGINE, "trtllm_spec_decode_num_draft_tokens_total 5\n")
        assert caught.value.reason == "no_counters"

    def test_a_closed_metrics_page_is_refused_with_the_option_that_opens_it(self):
        glance = now(ENGINE.glance(FixtureReplica("trtllm", {PAGE: None}), "chat"))
        assert isinstance(glance.counters, TargetError)
        assert "return_perf_metrics: true" in str(glance.counters)
        assert (glance.load, glance.speculates) == (Load(), None)


def test_it_is_recognised_by_its_models_or_its_metrics():
    assert now(ENGINE.is_here(FixtureReplica("nothing"), "tensorrt_llm"))
    assert now(ENGINE.is_here(FixtureReplica("trtllm"), "somebody"))
    assert not now(ENGINE.is_here(FixtureReplica("nothing"), "vllm"))
