from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.core.records import Identity, Source
from monitor.engines.answer import Answer
from monitor.engines.base import Chunk, RequestCounts
from monitor.engines.failures import failure
from monitor.probing.conversation import Attempt
from monitor.probing.outcome import Outcome
from monitor.prompts.sets import Prompt

URL = "http://vllm:8000"
COUNTS = RequestCounts(steps=4, accepted=4, drafted=16, histogram=(0, 4, 0, 0, 0), k=4)
OUTCOME = Outcome(
    url=URL,
    observed=Identity(engine="vllm", model="tiny", k=4, method="eagle"),
    declared=Identity(),
    speculates=True,
    wish="auto",
    advice="start it with the flag",
)


def attempt(
    told: RequestCounts | None = COUNTS,
    fingerprint: str = "a",
    chunks: tuple[int, ...] = (1, 2, 2, 2, 2),
    reason: str = "",
) -> Attempt:
    answer = Answer()
    for position, tokens in enumerate(chunks):
        answer.add(position / 100, Chunk(token_ids=(1,) * tokens))
    answer.add(1.0, Chunk(after_the_answer=True, finish_reason="stop", fingerprint=fingerprint, request_counts=told))
    error = failure(reason, URL, "it failed") if reason else None
    return Attempt(Prompt("q", "c", "", ("Hi",)), [answer], error)


def reasons(outcome: Outcome, attempts: list[Attempt]) -> list[str | None]:
    return [sample.invalid_reason for sample in outcome.samples(attempts)]


def invalid(outcome: Outcome, attempts: list[Attempt], min_prompts: int = 1) -> str | None:
    found = outcome.invalid(attempts, outcome.samples(attempts), min_prompts)
    return found[0] if found else None


class TestSource:
    def test_one_answer_with_counts_makes_the_source_request_and_the_others_invalid(self):
        attempts = [attempt(), attempt(told=None)]
        assert [s.source for s in OUTCOME.samples(attempts)] == [Source.REQUEST, Source.REQUEST]
        assert reasons(OUTCOME, attempts) == [None, "no_request_counts"]

    def test_without_any_counts_the_stream_is_read_and_the_flag_named(self):
        attempts = [attempt(told=None)]
        assert [s.source for s in OUTCOME.samples(attempts)] == [Source.STREAM]
        assert OUTCOME.warnings(attempts) == ("counts are estimated from the stream; start it with the flag",)

    def test_a_wish_for_the_stream_is_followed_without_a_word(self):
        outcome = replace(OUTCOME, wish="stream")
        assert [s.source for s in outcome.samples([attempt()])] == [Source.STREAM]
        assert outcome.warnings([attempt()]) == ()

    def test_a_wish_for_request_is_never_replaced_by_the_stream(self):
        assert reasons(replace(OUTCOME, wish="request"), [attempt(told=None)]) == ["no_request_counts"]

    def test_a_server_without_speculation_is_no_dead_drafter(self):
        outcome = replace(OUTCOME, speculates=False)
        attempts = [attempt(told=None, chunks=(1,) * 9), attempt(told=None, reason="stalled")]
        assert reasons(outcome, attempts) == ["no_speculation", "stalled"]
        assert invalid(outcome, attempts) == "no_speculation"

    def test_counts_per_request_prove_speculation_whatever_the_metrics_page_says(self):
        assert reasons(replace(OUTCOME, speculates=False), [attempt()]) == [None]


class TestIdentity:
    def test_answers_add_fingerprint_and_k(self):
        outcome = replace(OUTCOME, observed=Identity(engine="vllm"))
        assert outcome.identity([attempt()]) == Identity(engine="vllm", fingerprint="a", k=4)

    def test_declared_facts_fill_what_was_not_seen_and_are_marked(self):
        outcome = replace(
            OUTCOME, declared=Identity(method="ngram", drafter="models/e", declared=("drafter", "method"))
        )
        found = outcome.identity([attempt()])
        assert (found.method, found.drafter, found.declared) == ("eagle", "models/e", ("drafter",))
        assert outcome.warnings([attempt()]) == ("method is declared as 'ngram', but the server shows 'eagle'",)

    def test_two_fingerprints_in_one_run_make_it_invalid(self):
        assert invalid(OUTCOME, [attempt(), attempt(fingerprint="b")]) == "identity_changed_during_run"

    def test_two_draft_lengths_in_one_run_make_it_invalid(self):
        attempts = [attempt(), attempt(told=replace(COUNTS, k=3, histogram=(0, 4, 0, 0)))]
        found = OUTCOME.invalid(attempts, OUTCOME.samples(attempts), 1)
        assert found == ("identity_changed_during_run", f"{URL}: answers of one run have different K: 3, 4")


class TestValidity:
    def test_enough_valid_prompts_make_a_valid_run(self):
        assert invalid(OUTCOME, [attempt(), attempt(reason="stalled")], min_prompts=1) is None

    def test_the_reason_of_most_prompts_is_the_reason_of_the_run(self):
        attempts = [attempt(), attempt(reason="cut_off"), attempt(reason="cut_off")]
        assert invalid(OUTCOME, attempts, min_prompts=2) == "cut_off"

    def test_mixed_reasons_are_listed(self):
        attempts = [attempt() for _ in range(4)] + [attempt(reason="cut_off"), attempt(reason="stalled")]
        assert OUTCOME.invalid(attempts, OUTCOME.samples(attempts), 5) == (
            "too_few_valid_prompts",
            f"{URL}: 4 of 6 prompts are valid, 5 are needed (1 cut_off, 1 stalled)",
        )

    def test_no_prompt_at_all_is_too_few(self):
        assert invalid(OUTCOME, []) == "too_few_valid_prompts"


class TestWarnings:
    def test_a_stream_of_lookup_drafts_is_not_called_acceptance_length(self):
        outcome = replace(OUTCOME, wish="stream", observed=Identity(method="ngram", k=4))
        (warning,) = outcome.warnings([attempt()])
        assert warning.startswith("ngram drafts only on a match")
        assert "not the same quantity" in warning

    @pytest.mark.parametrize(
        ("method", "k", "words"),
        [
            (None, 4, "acceptance length assumes a method that drafts at every step, which the server does not tell"),
            ("eagle", None, "K"),
        ],
    )
    def test_what_a_stream_cannot_tell_is_said(self, method, k, words):
        outcome = replace(OUTCOME, wish="stream", observed=Identity(method=method, k=k))
        (warning,) = outcome.warnings([attempt(told=None)])
        assert words in warning

    def test_merged_chunks_are_counted_aloud(self):
        attempts = [attempt(chunks=(1, *[2] * 30, 6, 2))]
        assert replace(OUTCOME, wish="stream").warnings(attempts) == (
            "1 chunk held more tokens than one step makes: left out of acceptance",
        )

    def test_a_replica_without_metrics_is_said_to_hide_its_load(self):
        (first, *_) = replace(OUTCOME, speculates=None).warnings([attempt(told=None)])
        assert first.startswith("nothing here shows whether the server speculates")

    def test_a_late_machine_is_blamed_for_its_times(self):
        late = attempt()
        late.loop_lag_seconds = 0.25
        assert OUTCOME.warnings([late]) == ("this machine was late by more than 100 ms: times include its own delay",)

    def test_suffix_decoding_learns_from_the_probe(self):
        outcome = replace(OUTCOME, observed=Identity(method="suffix"))
        assert outcome.warnings([attempt()]) == (
            "suffix decoding learns from replayed prompts: its figures rise from run to run, unless more requests come "
            "in between than it remembers (suffix_decoding_max_cached_requests, by default 10,000)",
        )
