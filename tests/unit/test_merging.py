"""Two steps in one chunk: told from slow steps by what single tokens do, and its flattery in figures."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from monitor.engines.answer import Answer
from monitor.engines.base import Chunk, RequestCounts
from monitor.engines.merging import MIN_CHUNKS, Merging, merging
from monitor.probing.conversation import Attempt
from monitor.prompts.sets import Prompt
from tests.unit.test_outcome import OUTCOME

STEP_SECONDS = 0.02
K = 4
ALL_STEPS = 40 * 60
"""Of the answers that `streams` makes unless it is told otherwise."""


def answer_of(chunks: list[tuple[int, float]]) -> Answer:
    """An answer of chunks (tokens, steps waited for it), after the chunk of the prefill."""
    found, now = Answer(), 0.1
    found.add(now, Chunk(token_ids=(1,)))
    for tokens, steps in chunks:
        now += steps * STEP_SECONDS
        found.add(now, Chunk(token_ids=(1,) * tokens))
    return found


def streams(merged: float, slow: float = 0.0, steps: int = 60, answers: int = 40, seed: int = 1) -> list[Answer]:
    """Answers whose steps accept 0 … K tokens, merged with this chance, and taking twice as long with that chance."""
    chance = random.Random(seed)
    found = []
    for _ in range(answers):
        chunks: list[tuple[int, float]] = []
        held = False
        for _ in range(steps):
            tokens, waited = chance.choice((1, 1, 2, 3, 5)), 2.0 if chance.random() < slow else 1.0
            if held:
                tokens, waited = tokens + chunks[-1][0], waited + chunks.pop()[1]
            chunks.append((tokens, waited + chance.gauss(0, 0.05)))
            held = not held and chance.random() < merged
        found.append(answer_of(chunks))
    return found


def test_a_stream_of_single_steps_has_no_merging_and_no_bias() -> None:
    found = merging(streams(0.0), K)
    assert found is not None
    assert (found.merged_ratio, found.bias_ratio, found.is_clear) == (0.0, 0.0, False)
    assert found.acceptance_length == pytest.approx(2.4, abs=0.1)


@pytest.mark.parametrize("k", [K, None])
@pytest.mark.parametrize("merged", [0.03, 0.1])
def test_merged_chunks_are_estimated_and_their_flattery_taken_out(merged: float, k: int | None) -> None:
    answers = streams(merged)
    chunks = sum(answer.decode_chunks for answer in answers)
    tokens = sum(sum(answer.chunk_tokens[1:]) for answer in answers)
    found = merging(answers, k)
    assert found is not None
    assert found.is_clear
    assert found.merged_ratio == pytest.approx(ALL_STEPS / chunks - 1, abs=0.003)
    assert found.corrected_acceptance_length == pytest.approx(tokens / ALL_STEPS, rel=0.01)
    assert found.acceptance_length > found.corrected_acceptance_length


def test_where_steps_are_slow_of_themselves_less_is_seen_and_nothing_is_invented() -> None:
    found = merging(streams(0.1, slow=0.1), K)
    assert found is not None
    assert found.is_clear
    assert 0.06 < found.merged_ratio < 0.11
    assert 1 < found.corrected_acceptance_length < found.acceptance_length


def test_steps_that_are_slow_whatever_they_hold_are_not_taken_for_merged() -> None:
    found = merging(streams(0.0, slow=0.15), K)
    assert found is not None
    assert not found.is_clear


def test_few_chunks_say_nothing() -> None:
    chunks = [(2, 1.0)] * (MIN_CHUNKS + 1)
    assert merging([answer_of(chunks[:-1])], K) is None
    assert merging([answer_of(chunks)], K) == Merging(0.0, 0.0, 2.0, 2.0)


def test_chunks_that_came_in_bunches_say_nothing() -> None:
    assert merging([answer_of([(2, 0.001)] * 500)], K) is None


def attempts_of(answers: list[Answer]) -> list[Attempt]:
    return [Attempt(Prompt(f"q{number}", "c", "", ("Hi",)), [answer]) for number, answer in enumerate(answers)]


def test_a_little_merging_is_reported_with_its_bias() -> None:
    outcome, attempts = replace(OUTCOME, wish="stream"), attempts_of(streams(0.03))
    (said,) = [warning for warning in outcome.warnings(attempts) if "hold two steps" in warning]
    assert said == (
        "about 2.3% of the chunks hold two steps (± 0.5%), by their size or the time they took: tokens per chunk are "
        "2.41, about 0.7% too many"
    )
    assert outcome.invalid(attempts, outcome.samples(attempts), 12) is None


def test_a_run_with_too_much_merging_is_invalid_though_no_sample_is_by_itself() -> None:
    outcome = replace(OUTCOME, wish="stream", observed=replace(OUTCOME.observed, k=None))
    attempts = attempts_of(streams(0.12))
    reason, detail = outcome.invalid(attempts, outcome.samples(attempts), 12) or ("", "")
    assert reason == "merged_chunks"
    assert detail.startswith("http://vllm:8000: about 11.6% of the chunks hold two steps")
    assert detail.endswith("too many; start it with the flag")
    assert {sample.invalid_reason for sample in outcome.samples(attempts)} == {"merged_chunks"}


def test_merging_is_no_matter_where_the_answers_have_counts() -> None:
    answers = streams(0.12)
    for answer in answers:
        answer.add(9.0, Chunk(after_the_answer=True, request_counts=RequestCounts(steps=60, accepted=84, drafted=240)))
    assert {sample.invalid_reason for sample in OUTCOME.samples(attempts_of(answers))} == {None}
    assert OUTCOME.warnings(attempts_of(answers)) == ()
