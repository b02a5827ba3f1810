from __future__ import annotations

import pytest

from monitor.core.figures import acceptance_length
from monitor.core.records import Counts, Identity, Sampling, Source
from monitor.engines.base import Load
from monitor.engines.counters import difference
from monitor.engines.counts import Reading, sample_of
from monitor.engines.tgi import TgiEngine
from monitor.errors import TargetError
from tests.engines import URL, FixtureReplica, answer_of, counters_at, events, now, page

ENGINE = TgiEngine()


def change():
    before, after = (counters_at(ENGINE, page("tgi", path)) for path in ("/metrics", "/metrics_after"))
    return difference(before, after, URL)


class TestStream:
    def test_every_chunk_is_a_token_the_one_that_ends_the_answer_too(self):
        answer = answer_of(ENGINE, events("tgi"))
        assert answer.chunk_tokens == [1] * 13
        assert (answer.counted_tokens, answer.completion_tokens, answer.finish_reason) == (13, 13, "stop")
        assert answer.fingerprint == "3.3.4-sha-9f38d93"

    def test_it_is_no_source(self):
        reading = Reading(Source.STREAM, chunks_are_steps=False)
        sample = sample_of("q", [answer_of(ENGINE, events("tgi"))], reading, None, ENGINE.counts_advice(None))
        assert sample.invalid_reason == "tokens_not_steps"
        assert sample.invalid_detail == (
            "its chunks hold one token each, which shows nothing of its steps; TGI has no counts per request; use "
            "source counters while the server is quiet"
        )

    def test_nothing_is_sent_that_only_others_know(self):
        body = ENGINE.body("chat", [("user", "Hi")], Sampling(), "salt")
        assert not {"cache_salt", "return_token_ids"} & body.keys()


class TestCounters:
    def test_the_prefill_is_no_step_of_ours(self):
        found = change()
        assert (found.steps, found.accepted, found.generated_tokens, found.prompt_tokens) == (5, 7, 13, 12)
        assert (found.drafted, found.histogram, found.contradiction()) == (None, (), None)

    def test_they_make_a_sample_whose_steps_the_tokens_do_not_bound(self):
        reading = Reading(Source.COUNTERS, chunks_are_steps=False)
        sample = sample_of("q", [answer_of(ENGINE, events("tgi"))], reading, None, "", change())
        assert sample.counts == Counts(5, None, 7, (), 5)
        assert acceptance_length(sample.counts) == 1 + 7 / 5
        assert sample.valid

    def test_a_server_that_has_not_been_asked_yet_stands_at_zero(self):
        assert set(counters_at(ENGINE, "tgi_queue_size 0\n").series.values()) == {0.0}

    @pytest.mark.parametrize("text", ["", "python_info 1.0\n"])
    def test_a_page_of_another_server_is_refused(self, text):
        with pytest.raises(TargetError, match="shows no counters of TGI") as caught:
            counters_at(ENGINE, text)
        assert caught.value.reason == "no_counters"


class TestObservation:
    def test_info_makes_the_identity_but_not_method_and_k(self):
        look = now(ENGINE.observe(FixtureReplica("tgi"), None, Identity()))
        assert look.identity == Identity(
            engine="tgi", version="3.3.4", model="org/chat", root="org/chat", max_model_len=4096
        )
        assert (look.glance.speculates, look.glance.load) == (True, Load(3.0, 2.0))
        assert look.cold_notes == (ENGINE.cache_salt_advice,)

    def test_before_a_token_was_skipped_it_is_not_known_whether_it_speculates(self):
        assert now(ENGINE.glance(FixtureReplica("tgi", {"/metrics": "tgi_queue_size 0\n"}), "chat")).speculates is None


def test_it_is_recognised_by_its_router():
    assert now(ENGINE.is_here(FixtureReplica("tgi"), "org/chat"))
    assert not now(ENGINE.is_here(FixtureReplica("nothing"), "vllm"))
