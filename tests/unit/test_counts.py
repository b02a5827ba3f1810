from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.core.figures import acceptance_length, aggregate, coverage, survival, tokens_per_step
from monitor.core.records import Counts, Sample, Source
from monitor.engines.answer import Answer
from monitor.engines.base import Chunk, RequestCounts
from monitor.engines.counters import Change
from monitor.engines.counts import Reading, counts_of, drafts_every_step, merged_chunks, sample_of
from monitor.engines.failures import failure

REQUEST = Reading(Source.REQUEST)
STREAM = Reading(Source.STREAM, k=4, every_step=True)


def answer_of(*chunks: int, told: RequestCounts | None = None, reported: int | None = None) -> Answer:
    """An answer whose chunks hold so many tokens, one every 10 ms from 0.1 s on."""
    answer = Answer()
    for position, tokens in enumerate(chunks):
        answer.add(0.1 + position / 100, Chunk(token_ids=tuple(range(tokens)), prompt_tokens=7))
    total = sum(chunks) if reported is None else reported
    answer.add(1.0, Chunk(after_the_answer=True, completion_tokens=total, request_counts=told))
    return answer


def sample(*answers: Answer, reading: Reading = STREAM, error=None) -> Sample:
    return sample_of("q", answers, reading, error, "start it with the flag")


class TestAnswer:
    def test_token_ids_are_counted_before_usage_is_looked_at(self):
        answer = Answer()
        answer.add(0.1, Chunk(text="ab", token_ids=(1, 2), completion_tokens=2))
        answer.add(0.2, Chunk(text="c", token_ids=(3,), completion_tokens=3))
        assert (answer.chunk_tokens, answer.token_ids, answer.text) == ([2, 1], [1, 2, 3], "abc")

    def test_without_token_ids_the_increase_of_usage_counts(self):
        answer = Answer()
        for seconds, total in ((0.1, 0), (0.2, 1), (0.3, 4), (0.4, 4)):
            answer.add(seconds, Chunk(text="x" if total else "", completion_tokens=total))
        assert (answer.chunk_tokens, answer.chunk_seconds, answer.token_ids) == ([1, 3], [0.2, 0.3], None)

    def test_a_chunk_more_does_not_look_at_those_before_it(self):
        looks = []

        class Watched(list[int]):
            def __iter__(self):
                looks.append(len(self))
                return super().__iter__()

        answer = Answer(chunk_tokens=Watched())
        for total in range(1, 201):
            answer.add(total / 100, Chunk(text="x", completion_tokens=total))
        assert (answer.counted_tokens, len(answer.chunk_tokens), looks) == (200, 200, [])

    def test_text_without_ids_or_usage_is_remembered_as_uncounted(self):
        answer = Answer()
        answer.add(0.1, Chunk(text="x"))
        answer.add(0.2, Chunk(after_the_answer=True, completion_tokens=9))
        assert (answer.uncounted_chunks, answer.chunk_tokens, answer.completion_tokens) == (1, [], 9)

    def test_decoding_lasts_from_the_first_token_to_the_last(self):
        assert answer_of(1, 2, 3).decode_seconds == pytest.approx(0.02)
        assert answer_of(1).decode_seconds is None


class TestRequestCounts:
    def test_counts_of_the_server_are_taken_as_they_are(self):
        told = RequestCounts(steps=6, accepted=9, drafted=24, histogram=(3, 1, 0, 0, 2), k=4)
        counts = counts_of(answer_of(1, 1, 1, 2, 1, 5, 3, told=told), REQUEST)
        assert counts == Counts(6, 24, 9, (3, 1, 0, 0, 2), 6)
        assert acceptance_length(counts) == 2.5

    def test_decode_steps_without_a_draft_are_seen_in_the_chunks(self):
        told = RequestCounts(steps=2, accepted=3, drafted=8, histogram=(0, 1, 1), k=2)
        assert counts_of(answer_of(1, 1, 2, 3, 1, told=told), REQUEST).decode_steps == 4

    def test_merged_chunks_do_not_hide_decode_steps_that_the_tokens_prove(self):
        told = RequestCounts(steps=2, accepted=3, drafted=8, histogram=(0, 1, 1), k=2)
        assert counts_of(answer_of(1, 19, told=told), REQUEST).decode_steps == 16

    def test_an_answer_without_counts_makes_the_sample_invalid_and_says_how_to_switch_them_on(self):
        found = sample(answer_of(1, 1, 1, 1, 1, 1), reading=REQUEST)
        assert found.invalid_reason == "no_request_counts"
        assert found.invalid_detail == "the answer has no counts per request; start it with the flag"

    def test_a_stop_string_is_named_as_what_lost_the_counts(self):
        answer = answer_of(1, 1, 1, 1, 1, 1)
        answer.stopped_by_text = True
        assert "stop string" in (sample(answer, reading=REQUEST).invalid_detail or "")

    @pytest.mark.parametrize("histogram", [(3, 1, 0, 0, 1), (2, 2, 0, 0, 2)])
    def test_a_histogram_that_does_not_add_up_is_invalid(self, histogram):
        told = RequestCounts(steps=6, accepted=9, drafted=24, histogram=histogram, k=4)
        found = sample(answer_of(1, 1, 1, 2, 1, 5, 3, told=told), reading=REQUEST)
        assert found.invalid_reason == "inconsistent_counts"

    def test_a_server_that_leaves_out_the_histogram_is_still_counted(self):
        found = sample(answer_of(1, 4, 4, 4, 4, told=RequestCounts(steps=4, accepted=12, drafted=16)), reading=REQUEST)
        assert (found.valid, found.counts.histogram) == (True, ())


class TestStreamCounts:
    def test_the_first_and_the_last_chunk_are_left_out(self):
        counts = counts_of(answer_of(1, 5, 1, 3, 2), STREAM)
        assert counts == Counts(steps=3, drafted=12, accepted=6, histogram=(1, 0, 1, 0, 1), decode_steps=4)
        assert survival(counts) == pytest.approx((2 / 3, 2 / 3, 1 / 3, 1 / 3))
        assert tokens_per_step(counts, 12) == 11 / 4

    def test_drafted_is_unknown_when_the_method_may_not_always_draft(self):
        assert counts_of(answer_of(1, 2, 2), Reading(Source.STREAM, 4, None)).drafted is None

    def test_without_k_the_histogram_ends_at_the_largest_seen(self):
        assert counts_of(answer_of(1, 2, 4, 1), Reading(Source.STREAM)).histogram == (0, 1, 0, 1)

    def test_a_method_that_drafts_on_a_match_has_tokens_per_step_and_no_acceptance(self):
        found = sample(answer_of(1, 1, 5, 1, 1), reading=Reading(Source.STREAM, 4, every_step=False))
        figures = aggregate("coding", [found])
        assert (figures.acceptance_length, figures.steps, figures.survival) == (None, 0, ())
        assert figures.tokens_per_step == 2.0

    def test_a_merged_chunk_counts_as_decode_steps_but_not_as_acceptance(self):
        chunks = [1, *[2] * 30, 6, 2]
        found = sample(answer_of(*chunks))
        assert found.valid
        assert (found.counts.steps, found.counts.accepted, found.counts.decode_steps) == (30, 30, 33)

    def test_more_than_five_percent_of_merged_chunks_make_the_sample_invalid(self):
        answer = answer_of(1, *[2] * 16, 6, 2)
        assert merged_chunks([answer], 4) == 1
        found = sample(answer)
        assert found.invalid_reason == "merged_chunks"
        assert found.invalid_detail == "1 of 19 chunks hold more tokens than one step; start it with the flag"

    def test_chunks_that_do_not_add_up_to_usage_are_invalid(self):
        assert sample(answer_of(1, 2, 2, 2, 2, 2, reported=14)).invalid_reason == "inconsistent_counts"

    def test_text_that_nobody_counted_is_invalid(self):
        answer = answer_of(1, 2, 2, 2, 2, 2)
        answer.uncounted_chunks = 1
        assert sample(answer).invalid_reason == "no_usage"

    def test_coverage_is_not_claimed_from_a_stream(self):
        assert aggregate("coding", [sample(answer_of(1, *[2] * 9))]).coverage is None


class TestSample:
    def test_fewer_than_four_decode_steps_are_too_short(self):
        assert sample(answer_of(1, 2, 2, 2)).invalid_reason == "too_short"
        assert sample(answer_of(1, 2, 2, 2, 2)).valid

    def test_turns_add_up(self):
        found = sample(answer_of(1, 2, 3, 1), answer_of(1, 5, 2))
        assert found.counts == Counts(3, 12, 7, (0, 1, 1, 0, 1), 5)
        assert (found.completion_tokens, found.prompt_tokens, found.decode_tokens) == (15, 14, 13)
        assert found.chunk_tokens == ((1, 2, 3, 1), (1, 5, 2))
        assert found.ttft_seconds == pytest.approx(0.1)
        assert found.decode_seconds == pytest.approx(0.05)

    def test_the_hash_tells_the_same_tokens_from_others_and_needs_all_of_them(self):
        one, same, other = (sample(answer_of(*chunks)) for chunks in ([1, 2, 2], [1, 2, 2], [1, 3, 1]))
        assert one.output_hash == same.output_hash != other.output_hash
        without_ids = answer_of(1, 2, 2)
        without_ids.token_ids = None
        assert sample(without_ids).output_hash is None

    def test_what_came_before_a_failure_is_kept(self):
        found = sample(answer_of(1, 2, 3), error=failure("cut_off", "http://x", "it broke"))
        assert (found.invalid_reason, found.chunk_tokens) == ("cut_off", ((1, 2, 3),))
        assert found.invalid_detail == (
            "http://x: it broke; the server or a proxy closed the connection; look at their logs"
        )

    def test_an_answer_that_was_cut_off_has_no_output_to_be_compared(self):
        found = sample(answer_of(1, 2, 3), error=failure("cut_off", "http://x", "it broke"))
        assert (found.output_hash, found.output_ids) == (None, None)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("draft_model", True), ("eagle3", True), ("EAGLE", True), ("deepseek_mtp", True), ("ngram", False),
        ("n-gram", False), ("[ngram]", False), ("ngram_gpu", False), ("suffix", False), ("custom_class", None),
        (None, None),
    ],
)  # fmt: skip
def test_methods_are_known_by_whether_every_step_has_a_draft(method, expected):
    assert drafts_every_step(method) is expected


class TestCounterCounts:
    """Windows of the server's counters, by what they moved by."""

    READING = Reading(Source.COUNTERS, k=4, every_step=False)
    WINDOW = Change(6, 24, 9, (3, 2, 2, 2), generated_tokens=18, prompt_tokens=7, preemptions=0)

    def of(self, window, *chunks: int) -> Sample:
        return sample_of("q", [answer_of(*chunks)], self.READING, None, "", window)

    def test_the_window_holds_the_counts_and_the_chunks_bound_the_decode_steps(self):
        found = self.of(self.WINDOW, 1, 1, 1, 2, 1, 5, 5, 1, 1)
        assert found.counts == Counts(6, 24, 9, (3, 1, 0, 0, 2), 8)
        assert (found.source, found.k, found.invalid_reason) == (Source.COUNTERS, 4, None)
        assert (acceptance_length(found.counts), coverage(found.counts)) == (2.5, 0.75)

    @pytest.mark.parametrize(("foreign", "reason"), [(1, None), (2, "contaminated")])
    def test_up_to_one_percent_may_be_of_others(self, foreign, reason):
        chunks = (1, *[3] * 33)
        window = Change(33, 132, 66, (33, 33, 0, 0), generated_tokens=100 + foreign, prompt_tokens=7, preemptions=0)
        assert self.of(window, *chunks).invalid_reason == reason

    def test_positions_that_do_not_add_up_are_inconsistent(self):
        found = self.of(replace(self.WINDOW, accepted_at=(3, 2, 2, 1)), 1, 1, 1, 2, 1, 5, 5, 1, 1)
        assert found.invalid_reason == "inconsistent_counts"
        assert found.invalid_detail is not None
        assert found.invalid_detail.startswith(
            "9 tokens were accepted, but the positions add up to 8, so AL is not 1 + Σ"
        )

    def test_a_window_that_could_not_be_read_says_why(self):
        error = failure("counters_reset", "http://vllm:8000", "a counter fell")
        found = self.of(error, 1, 1, 1, 2, 1, 5, 5, 1, 1)
        assert (found.invalid_reason, found.invalid_detail) == ("counters_reset", str(error))
        assert self.of(None, 1, 2, 2).invalid_reason == "no_counters"
