"""Acceptance by length of context: drafters that were trained on short ones lose it there first, and there only.

A route whose traffic grows longer then looks like one whose drafter rots; figures by bucket tell the two apart.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from monitor.core.figures import aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monitor.core.records import Sample

EDGES_TOKENS = (256, 1024, 4096, 16384)
"""Buckets of prompt tokens are [0, 256), [256, 1024), … and 16384 and more: reported losses span 2k to 20k tokens."""
FIGURES = (
    "source",
    "k",
    "acceptance_length",
    "acceptance_length_prompt_mean",
    "acceptance_rate",
    "survival",
    "steps",
    "drafted",
    "accepted",
)

HISTORY_METRICS = (
    "acceptance_length",
    "acceptance_length_prompt_mean",
    "acceptance_rate",
    "tokens_per_step",
    "coverage",
)
"""Figures that history has by bucket; times are left to runs."""


def bucket_of(context_tokens: int) -> int:
    """Number of the bucket, from 0."""
    return bisect_right(EDGES_TOKENS, context_tokens)


def edges_of(bucket: int) -> tuple[int, int | None]:
    """The first length inside and the first above it; None where there is none above."""
    edges = (0, *EDGES_TOKENS, None)
    low, high = edges[bucket : bucket + 2]
    assert low is not None
    return low, high


def context_tokens(sample: Sample) -> int | None:
    """Prompt tokens of one answer: of a prompt with several turns the mean over its turns. None where not told."""
    return None if sample.prompt_tokens is None else sample.prompt_tokens // max(1, len(sample.chunk_tokens))


def by_context(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """The figures of one run by bucket, shortest first, pooled over its valid samples; empty ones are left out.

    Samples whose prompt tokens the server did not tell are in no bucket. Raises ValueError when they mix sources.
    """
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        tokens = context_tokens(sample)
        if sample.valid and tokens is not None:
            found.setdefault(bucket_of(tokens), []).append(sample)
    return [_document(bucket, found[bucket]) for bucket in sorted(found)]


def _document(bucket: int, samples: list[Sample]) -> dict[str, Any]:
    """The one JSON shape of a bucket's figures (docs/json.md)."""
    figures = aggregate("", samples).as_dict()
    low, high = edges_of(bucket)
    return {
        "from_tokens": low,
        "to_tokens": high,
        "prompts": len(samples),
        **{name: figures[name] for name in FIGURES},
    }
