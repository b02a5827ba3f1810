from __future__ import annotations

import pytest

from monitor.core.figures import acceptance_length, acceptance_rate
from monitor.core.records import Counts, Identity, Sampling, Source
from monitor.engines.base import DraftTotals, Load, RequestCounts
from monitor.engines.counters import Change, difference
from monitor.engines.counts import Reading, counts_of
from monitor.engines.drafts import counts_of as counts_from
from monitor.engines.llamacpp import LlamaCppEngine
from monitor.errors import TargetError
from tests.engines import URL, FixtureReplica, answer_of, counters_at, events, now, page

ENGINE = LlamaCppEngine()


class TestCounts:
    @pytest.mark.parametrize(("stream", "tokens"), [("stream", 13), ("stream_older", 14)])
    def test_steps_are_told_from_the_totals_of_every_token(self, stream, tokens):
        answer = answer_of(ENGINE, events("llamacpp", stream))
        assert answer.request_counts == RequestCounts(5, 7, 14, (1, 2, 1, 1), decode_steps=6)
        assert (answer.completion_tokens, answer.counted_tokens, answer.cached_prompt_tokens) == (tokens, tokens, 4)
        assert answer.fingerprint == "b10902-97895129e"

    def test_figures_are_those_of_the_steps_with_a_draft(self):
        reading = Reading(Source.REQUEST, chunks_are_steps=False)
        counts = counts_of(answer_of(ENGINE, events("llamacpp")), reading)
        assert counts == Counts(5, 14, 7, (1, 2, 1, 1), 6)  # one step of six had no draft
        assert acceptance_length(counts) == 1 + 7 / 5
        assert acceptance_rate(counts) == 7 / 14

    def test_without_drafts_there_are_no_counts(self):
        assert counts_from([DraftTotals(n, 0, 0) for n in range(1, 9)]) is None
        assert counts_from([]) is None

    def test_a_step_that_may_hide_another_is_left_out(self):
        totals = [DraftTotals(1, 0, 0)]
        for n in range(30):
            totals += [DraftTotals(2 + 2 * n, 3 * (n + 1), n + 1), DraftTotals(3 + 2 * n, 3 * (n + 1), n + 1)]
        assert counts_from(totals) == RequestCounts(30, 30, 90, (0, 30), decode_steps=30)
        held_back = [total for total in totals if total.drafted != 15]
        assert counts_from(held_back) == RequestCounts(28, 28, 84, (0, 28), decode_steps=30)

    def test_an_answer_with_too_many_of_them_has_no_counts(self):
        totals = [DraftTotals(1, 0, 0), DraftTotals(5, 3, 1), DraftTotals(7, 6, 2)]
        assert counts_from(totals) is None


class TestBody:
    def test_every_token_is_asked_for_its_timings_and_a_cold_run_uses_no_cache(self):
        cold = ENGINE.body("chat", [("user", "Hi")], Sampling(), "salt")
        warm = ENGINE.body("chat", [("user", "Hi")], Sampling(cache="warm"), "salt")
        assert (cold["timings_per_token"], cold["cache_prompt"], warm["cache_prompt"]) == (True, False, True)
        assert not {"cache_salt", "return_token_ids"} & cold.keys()


class TestObservation:
    def test_props_make_the_identity_but_not_method_and_k(self):
        look = now(ENGINE.observe(FixtureReplica("llamacpp"), None, Identity()))
        assert look.identity == Identity(
            engine="llamacpp",
            version="b10902-97895129e",
            model="chat",
            root="/models/target.gguf",
            max_model_len=16384,
        )
        assert look.glance.load == Load(running=2.0, waiting=1.0)

    def test_speculation_shows_with_the_first_draft_and_not_before(self):
        assert now(ENGINE.glance(FixtureReplica("llamacpp"), "chat")).speculates is None
        drafted = FixtureReplica("llamacpp", {"/metrics": page("llamacpp", "/metrics_after")})
        assert now(ENGINE.glance(drafted, "chat")).speculates is True
        assert now(ENGINE.glance(FixtureReplica("llamacpp", {"/metrics": None}), "chat")).speculates is None


class TestCounters:
    def test_they_mean_what_those_of_vllm_mean(self):
        before, after = (counters_at(ENGINE, page("llamacpp", path)) for path in ("/metrics", "/metrics_after"))
        change = difference(before, after, URL)
        assert change == Change(5, 14, 7, (4, 2, 1), 13, 8, 0)
        assert (change.histogram, change.contradiction()) == ((1, 2, 1, 1), None)

    def test_a_build_that_does_not_count_drafts_is_refused(self):
        with pytest.raises(TargetError, match="this build does not count drafts") as caught:
            counters_at(ENGINE, "llamacpp:tokens_predicted_total 5\n")
        assert caught.value.reason == "no_counters"

    def test_a_closed_metrics_page_is_refused_with_the_flag_that_opens_it(self):
        glance = now(ENGINE.glance(FixtureReplica("llamacpp", {"/metrics": None}), "chat"))
        assert isinstance(glance.counters, TargetError)
        assert "start the server with --metrics" in str(glance.counters)
        assert (glance.load, glance.speculates) == (Load(), None)


def test_it_is_recognised_by_its_models_or_its_props():
    assert now(ENGINE.is_here(FixtureReplica("nothing"), "llamacpp"))
    assert now(ENGINE.is_here(FixtureReplica("llamacpp"), "somebody"))
    assert not now(ENGINE.is_here(FixtureReplica("nothing"), "vllm"))
