"""Acceptance by length of context: what falls with length alone is seen as such."""

from __future__ import annotations

import pytest

from monitor.core.contexts import by_context, edges_of
from monitor.core.format import context_text
from monitor.core.records import Source
from tests.factories import make_sample


def shown(*samples, keys=("from_tokens", "to_tokens", "prompts", "acceptance_length")):
    return [tuple(bucket[key] for key in keys) for bucket in by_context(samples)]


def test_acceptance_that_falls_with_context_alone_is_visible():
    samples = [
        *(make_sample(f"short-{n}", 2.5, prompt_tokens=300) for n in range(3)),
        make_sample("long", 1.25, prompt_tokens=20_000),
        make_sample("longer", 1.15, prompt_tokens=40_000),
    ]
    assert shown(*samples) == [(256, 1024, 3, 2.5), (16384, None, 2, pytest.approx(1.2))]


def test_an_edge_is_in_the_bucket_above_it():
    samples = [make_sample(str(tokens), prompt_tokens=tokens) for tokens in (255, 256, 1023, 1024)]
    assert shown(*samples, keys=("from_tokens", "prompts")) == [(0, 1), (256, 2), (1024, 1)]


def test_a_prompt_of_several_turns_has_the_mean_over_its_turns():
    sample = make_sample(prompt_tokens=1200, chunk_tokens=((1, 2), (1, 3)))
    assert shown(sample, keys=("from_tokens", "to_tokens")) == [(256, 1024)]


def test_a_bucket_names_its_source_and_has_the_counts_that_it_is_made_of():
    (bucket,) = by_context([make_sample("a", 2.0), make_sample("b", 3.0)])
    assert bucket == {
        "from_tokens": 0,
        "to_tokens": 256,
        "prompts": 2,
        "source": "request",
        "k": 3,
        "acceptance_length": 2.5,
        "acceptance_length_prompt_mean": 2.5,
        "acceptance_rate": 0.5,
        "survival": [1.0, 0.5, 0.0],
        "steps": 2000,
        "drafted": 6000,
        "accepted": 3000,
    }


def test_invalid_samples_and_those_of_unknown_length_are_in_no_bucket():
    assert by_context([make_sample(invalid_reason="too_short"), make_sample(prompt_tokens=None)]) == []


def test_sources_are_never_mixed():
    with pytest.raises(ValueError, match="mix sources"):
        by_context([make_sample("a"), make_sample("b", source=Source.STREAM)])


def test_buckets_are_written_with_their_edges():
    buckets = [dict(zip(("from_tokens", "to_tokens"), edges_of(n), strict=True)) for n in range(5)]
    assert list(map(context_text, buckets)) == ["<256", "256–1k", "1k–4k", "4k–16k", "≥16k"]
