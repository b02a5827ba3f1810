from __future__ import annotations

import pytest

from monitor.core.records import Source
from monitor.engines.answer import Answer
from monitor.engines.base import Chunk, RequestCounts
from monitor.engines.counters import Change
from monitor.engines.counts import Reading
from monitor.engines.failures import failure
from monitor.probing.conversation import Attempt
from monitor.probing.crosscheck import acceptance_by_source, disagreements
from monitor.prompts.sets import Prompt

TOLD = RequestCounts(steps=4, accepted=4, drafted=16, histogram=(0, 4, 0, 0, 0), k=4)
READING = Reading(Source.REQUEST, k=4, every_step=True)
COUNTED = Change(4, 16, 4, (4, 0, 0, 0), generated_tokens=9, prompt_tokens=5, preemptions=0)


def attempt(told: RequestCounts | None = TOLD, chunks: tuple[int, ...] = (1, 2, 2, 2, 2), reason: str = "") -> Attempt:
    answer = Answer()
    for position, tokens in enumerate(chunks):
        answer.add(position / 100, Chunk(token_ids=(1,) * tokens))
    answer.add(1.0, Chunk(after_the_answer=True, finish_reason="stop", request_counts=told))
    error = failure(reason, "http://vllm:8000", "it failed") if reason else None
    return Attempt(Prompt("q", "c", "", ("Hi",)), [answer], error)


def test_every_source_has_its_say_about_the_same_answers():
    assert acceptance_by_source([attempt()], READING, COUNTED) == {"request": 2.0, "stream": 2.0, "counters": 2.0}


def test_without_counts_in_one_answer_request_has_none():
    found = acceptance_by_source([attempt(), attempt(told=None)], READING, None)
    assert found == {"stream": 2.0}


@pytest.mark.parametrize("every_step", [None, False])
def test_a_stream_has_none_unless_every_step_drafts(every_step):
    found = acceptance_by_source([attempt()], Reading(Source.REQUEST, 4, every_step), None)
    assert found == {"request": 2.0}


def test_a_stream_with_merged_chunks_has_none():
    assert acceptance_by_source([attempt(chunks=(1, 2, 6, 2))], READING, None) == {"request": 2.0}


@pytest.mark.parametrize(
    "counted",
    [
        None,
        failure("counters_behind", "http://vllm:8000", "late"),
        Change(8, 32, 8, (8, 0, 0, 0), generated_tokens=10, prompt_tokens=5, preemptions=0),
        Change(4, 16, 5, (4, 0, 0, 0), generated_tokens=9, prompt_tokens=5, preemptions=0),
    ],
    ids=["not read", "another server", "others were served", "contradiction"],
)
def test_counters_that_do_not_hold_are_left_out(counted):
    assert "counters" not in acceptance_by_source([attempt()], READING, counted)


def test_a_failed_prompt_leaves_its_drafts_in_the_counters():
    found = acceptance_by_source([attempt(), attempt(reason="stalled")], READING, COUNTED)
    assert found == {"request": 2.0, "stream": 2.0}


def test_a_source_that_differs_by_more_than_a_percent_is_named():
    lengths = {"request": 2.5, "stream": 2.6, "counters": 2.51}
    assert disagreements(lengths, Source.REQUEST, 500) == [
        "source stream disagrees: acceptance length 2.60 where request says 2.50 (+4.0%)"
    ]
    assert disagreements(lengths, Source.REQUEST, 499) == []
    assert disagreements({"stream": 2.6}, Source.REQUEST, 500) == []
