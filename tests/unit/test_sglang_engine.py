from __future__ import annotations

import json

import pytest

from monitor.core.figures import acceptance_length, acceptance_rate
from monitor.core.records import Counts, Identity, Sampling, Source
from monitor.engines.base import Load, RequestCounts
from monitor.engines.counters import difference
from monitor.engines.counts import Reading, counts_of
from monitor.engines.sglang import ADAPTIVE, SglangEngine, request_counts
from monitor.errors import TargetError
from tests.engines import URL, FixtureReplica, answer_of, counters_at, events, now, page

ENGINE = SglangEngine()


def observed(**changed: object):
    info = json.loads(page("sglang", "/server_info")) | changed
    return now(ENGINE.observe(FixtureReplica("sglang", {"/server_info": json.dumps(info)}), None, Identity()))


class TestCounts:
    def test_the_counts_of_a_request_come_with_the_stream(self):
        answer = answer_of(ENGINE, events("sglang"))
        assert answer.request_counts == RequestCounts(5, 7, 15, (1, 2, 1, 1), decode_steps=5)
        assert (answer.completion_tokens, answer.prompt_tokens, answer.cached_prompt_tokens) == (13, 12, 8)
        assert (answer.finish_reason, answer.stopped_by_text) == ("stop", False)

    def test_acceptance_length_is_ours_and_not_tokens_per_verification(self):
        counts = counts_of(answer_of(ENGINE, events("sglang")), Reading(Source.REQUEST))
        assert counts == Counts(5, 15, 7, (1, 2, 1, 1), 5)
        assert acceptance_length(counts) == 1 + 7 / 5  # SGLang says 13/5
        assert acceptance_rate(counts) == 7 / 15

    def test_the_stream_shows_the_same_steps_but_for_the_last_one(self):
        counts = counts_of(answer_of(ENGINE, events("sglang")), Reading(Source.STREAM, k=3, every_step=True))
        assert (counts.steps, counts.accepted, counts.histogram) == (4, 6, (1, 1, 1, 1))

    def test_without_accepted_drafts_they_are_what_remains_of_tokens_per_verification(self):
        told = {"spec_verify_ct": 5, "spec_accept_length": 13 / 5}
        assert request_counts(told) == RequestCounts(5, 7, decode_steps=5)

    def test_older_names_are_read_too(self):
        told = {
            "spec_verify_ct": 2,
            "spec_accepted_drafts": 1,
            "spec_proposed_drafts": 6,
            "spec_accept_histogram": [1, 1],
        }
        assert request_counts(told) == RequestCounts(2, 1, 6, (1, 1), decode_steps=2)

    @pytest.mark.parametrize("told", [{}, {"spec_accept_length": 2.0}, {"spec_verify_ct": 5}, {"spec_verify_ct": True}])
    def test_counts_that_do_not_suffice_are_none(self, told):
        assert request_counts(told) is None

    def test_a_server_that_does_not_know_the_option_says_nothing(self):
        assert ENGINE.read(b'{"choices":[],"usage":{"completion_tokens":3}}', URL).request_counts is None

    def test_a_stop_string_is_told_from_a_stop_token(self):
        assert ENGINE.read(b'{"choices":[{"delta":{"content":"a"},"matched_stop":"END"}]}', URL).stopped_by_text
        assert not ENGINE.read(b'{"choices":[{"delta":{"content":"a"},"matched_stop":7}]}', URL).stopped_by_text


class TestBody:
    def test_chat_asks_for_counts_but_not_for_token_ids_which_are_refused_there(self):
        body = ENGINE.body("chat", [("user", "Hi")], Sampling(), "salt")
        assert (body["return_spec_tokens_details"], body["cache_salt"]) == (True, "salt")
        assert "return_token_ids" not in body
        assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}

    def test_completions_ask_for_token_ids(self):
        body = ENGINE.body("chat", [("user", "Hi")], Sampling(endpoint="completions"), None)
        assert body["return_token_ids"] is True
        assert "cache_salt" not in body


class TestObservation:
    def test_the_server_info_makes_the_identity(self):
        look = observed()
        assert look.identity == Identity(
            engine="sglang",
            version="0.5.23",
            model="chat",
            root="models/target",
            max_model_len=32768,
            target="models/target",
            drafter="models/eagle",
            method="eagle3",
            k=3,
            quantization="fp8",
            tensor_parallel=2,
        )
        assert (look.model, look.glance.speculates, look.notes) == ("chat", True, ())
        assert look.glance.load == Load(3.0, 2.0, 0.25, None, 1.79618e9)

    def test_k_is_the_depth_of_a_tree_not_its_nodes(self):
        assert observed(speculative_eagle_topk=4, speculative_num_draft_tokens=16).identity.k == 3
        assert observed(speculative_algorithm="NGRAM", speculative_num_steps=None).identity.k == 3

    @pytest.mark.parametrize(
        ("algorithm", "method"), [("STANDALONE", "draft_model"), ("NEXTN", "mtp"), ("NGRAM", "ngram"), ("UNO", "uno")]
    )
    def test_methods_have_the_names_that_other_engines_give_them(self, algorithm, method):
        assert observed(speculative_algorithm=algorithm).identity.method == method

    def test_without_an_algorithm_speculation_is_off(self):
        look = observed(speculative_algorithm=None)
        assert (look.glance.speculates, look.identity.method, look.identity.k, look.identity.drafter) == (
            False,
            None,
            None,
            None,
        )

    def test_an_adaptive_draft_length_has_no_k_and_is_said_to_spoil_the_rate(self):
        look = observed(speculative_adaptive=True)
        assert (look.identity.k, look.notes) == (None, (ADAPTIVE,))

    def test_the_older_path_of_the_server_info_is_tried(self):
        replica = FixtureReplica("sglang", {"/server_info": None, "/get_server_info": page("sglang", "/server_info")})
        assert now(ENGINE.observe(replica, None, Identity())).identity.version == "0.5.23"

    def test_a_server_that_shows_only_its_models_is_measured_all_the_same(self):
        replica = FixtureReplica("sglang", {"/server_info": None, "/metrics": None})
        look = now(ENGINE.observe(replica, None, Identity()))
        assert (look.model, look.glance.speculates, look.glance.load, look.identity.k) == ("chat", None, Load(), None)


class TestCounters:
    def test_accepted_tokens_are_those_that_no_prefill_and_no_verification_accounts_for(self):
        before, after = (counters_at(ENGINE, page("sglang", path)) for path in ("/metrics", "/metrics_after"))
        change = difference(before, after, URL)
        assert (change.steps, change.accepted, change.generated_tokens, change.prompt_tokens) == (5, 7, 13, 12)
        assert (change.drafted, change.histogram, change.contradiction()) == (None, (), None)

    @pytest.mark.parametrize(
        ("text", "words"),
        [("", "shows no counters of SGLang"), ("sglang:num_running_reqs 1\n", "shows no counters of SGLang")],
    )
    def test_a_page_without_counters_is_refused(self, text, words):
        with pytest.raises(TargetError, match=words) as caught:
            counters_at(ENGINE, text)
        assert caught.value.reason == "no_counters"

    def test_a_server_that_counts_no_verification_is_refused(self):
        text = "".join(line for line in page("sglang", "/metrics").splitlines(keepends=True) if "verify" not in line)
        with pytest.raises(TargetError, match="no verification is counted"):
            counters_at(ENGINE, text)

    def test_a_closed_metrics_page_is_refused_with_the_flag_that_opens_it(self):
        glance = now(ENGINE.glance(FixtureReplica("sglang", {"/metrics": None}), "chat"))
        assert isinstance(glance.counters, TargetError)
        assert "start the server with --enable-metrics" in str(glance.counters)
        assert (glance.load, glance.speculates) == (Load(), None)


def test_it_is_recognised_by_its_models_or_its_server_info():
    assert now(ENGINE.is_here(FixtureReplica("nothing"), "sglang"))
    assert now(ENGINE.is_here(FixtureReplica("sglang"), "somebody"))
    assert not now(ENGINE.is_here(FixtureReplica("nothing"), "vllm"))
