"""The warm pass beside the cold one, from samples alone; and whose drafts make one meaningless."""

from __future__ import annotations

import math

import pytest

from monitor.core.learning import learns_from_replay
from monitor.core.warm import not_warmed, warmed
from tests.factories import make_sample

PROMPTS = [f"q{n}" for n in range(24)]
COLD = [make_sample(question, 2.5) for question in PROMPTS]
COLD_LENGTH = 2.5


def warm_samples(length: float, cached: int | None = 32) -> list:
    return [make_sample(question, length, cached_prompt_tokens=cached) for question in PROMPTS]


def test_the_change_is_that_of_the_prompts_own_lengths_with_its_interval():
    found = warmed("coding", COLD, warm_samples(2.0), None, "http://a").as_dict()
    assert (found["valid"], found["source"], found["acceptance_length"]) == (True, "request", 2.0)
    assert found["change"] == pytest.approx(2.0 / COLD_LENGTH - 1)
    low, high = found["change_interval"]
    assert low < found["change"] < high < 0
    assert (found["prompts"], found["prompts_valid"]) == (24, 24)
    assert (found["cold_cached_ratio"], found["cached_ratio"]) == (0.0, 32 / 40)


def test_a_prompt_without_a_value_on_both_sides_is_in_no_change():
    lost = make_sample("q0", 2.0, invalid_reason="stalled", cached_prompt_tokens=32)
    found = warmed("coding", COLD, [lost, *warm_samples(2.0)[1:]], None, "http://a").as_dict()
    assert (found["prompts"], found["prompts_valid"], found["invalid_reasons"]) == (23, 23, {"stalled": 1})
    assert math.isclose(found["change"], 2.0 / COLD_LENGTH - 1)


def test_a_pass_that_met_nothing_in_the_cache_was_not_warm():
    found = warmed("coding", COLD, warm_samples(2.0, cached=0), None, "http://a").as_dict()
    assert (found["valid"], found["invalid_reason"], found["change"]) == (False, "not_cached", None)
    assert found["invalid_detail"].startswith(
        "http://a: of the warm pass's prompts 0.0% was cached, of the cold one's 0.0%; prefix caching may be off"
    )
    assert found["acceptance_length"] == 2.0


@pytest.mark.parametrize(("cached", "reason"), [(16, "not_cached"), (17, None)])
def test_a_pass_that_met_no_more_in_the_cache_than_the_cold_one_was_not_warm(cached, reason):
    """The turns of a conversation meet those before them in either."""
    cold = [make_sample(question, 2.5, cached_prompt_tokens=16) for question in PROMPTS]
    found = warmed("coding", cold, warm_samples(2.0, cached), None, "http://a").as_dict()
    assert (found["valid"], found["invalid_reason"]) == (reason is None, reason)
    assert (found["cold_cached_ratio"], found["cached_ratio"]) == (16 / 40, cached / 40)


def test_whether_it_was_warm_is_not_known_where_the_server_does_not_tell():
    found = warmed("coding", COLD, warm_samples(2.0, cached=None), None, "http://a").as_dict()
    assert (found["valid"], found["cached_ratio"]) == (True, None)


def test_a_server_that_leaves_nothing_cached_unsaid_told_it_where_other_prompts_have_some():
    some = [*warm_samples(2.0)[:12], *warm_samples(2.0, cached=None)[12:]]
    assert warmed("coding", COLD, some, None, "http://a").as_dict()["cached_ratio"] == 16 / 40


def test_a_pass_that_was_not_made_has_no_figures_but_why():
    found = not_warmed("coding", "learns_from_replay", "http://a: suffix drafts from answers it has seen").as_dict()
    assert (found["valid"], found["invalid_reason"]) == (False, "learns_from_replay")
    assert {found[key] for key in ("acceptance_length", "source", "change", "cached_ratio")} == {None}
    assert found["prompts_total"] == 0


@pytest.mark.parametrize(
    ("engine", "method", "learns"),
    [
        ("vllm", "suffix", True),
        (None, "suffix", True),
        ("vllm", "ngram", False),
        ("vllm", "ngram_gpu", False),
        (None, "ngram", False),
        ("sglang", "ngram", True),
        ("trtllm", "ngram", True),
        ("llamacpp", "ngram-mod", True),
        ("llamacpp", "N-Gram", True),
        ("vllm", "Suffix", True),
        ("sglang", "eagle3", False),
        ("sglang", None, False),
    ],
)
def test_drafters_that_keep_answers_of_other_requests_learn_from_a_replay(engine, method, learns):
    assert learns_from_replay(engine, method) is learns
