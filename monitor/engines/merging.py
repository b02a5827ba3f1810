"""How many chunks of a stream are probably two steps in one, and by how much that flatters acceptance. Pure.

A chunk of more than K + 1 tokens proves it (`monitor.engines.counts`). A smaller one is betrayed by its time: the
client waited two steps for it. Steps are late for other reasons too, such as somebody's prefill; how often is seen in
chunks of a single token, which cannot hold two steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from monitor.core.format import figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from monitor.engines.answer import Answer

TWICE = (1.5, 2.5)
"""Times the usual gap of its answer: near enough to two steps."""
MIN_CHUNKS = 200
"""Fewer say nothing about a share of a few percent."""
MIN_GAP_SECONDS = 0.001
"""Usual gap under which an answer came in bunches, or through a buffer: its times are not those of steps."""
SURE = 2.0
"""Standard errors in the half width of an interval of 95 %."""


@dataclass(frozen=True)
class Merging:
    """Over the decode chunks of a run but the last of each turn, whose end may be cut.

    `merged_ratio`: share of chunks that hold two steps, the proven ones among them, and its 95 % half width
    `doubt_ratio`. `acceptance_length`: of the stream as it is read, and `corrected_acceptance_length`: with two steps
    in every merged chunk.
    """

    merged_ratio: float
    doubt_ratio: float
    acceptance_length: float
    corrected_acceptance_length: float

    @property
    def is_clear(self) -> bool:
        """Whether what was seen is more than chance."""
        return self.merged_ratio > self.doubt_ratio

    @property
    def bias_ratio(self) -> float:
        return self.acceptance_length / self.corrected_acceptance_length - 1

    def text(self) -> str:
        """A sentence for whoever reads the figure."""
        share, doubt = (figure("merged_ratio", ratio) for ratio in (self.merged_ratio, self.doubt_ratio))
        return (
            f"about {share} of the chunks hold two steps (± {doubt}), by their size or the time they took: tokens per "
            f"chunk are {figure('acceptance_length', self.acceptance_length)}, about {self.bias_ratio:.1%} too many"
        )


def merging(answers: Sequence[Answer], k: int | None) -> Merging | None:
    """None where too few chunks have times that mean something. K of None: nothing is proven by size."""
    chunks = [chunk for answer in answers for chunk in _chunks(answer)]
    largest = math.inf if k is None else k + 1
    proven = [tokens for tokens, _ in chunks if tokens > largest]
    single = [late for tokens, late in chunks if tokens == 1]
    several = [(tokens, late) for tokens, late in chunks if 1 < tokens <= largest]
    counted = len(single) + len(several)
    if counted < MIN_CHUNKS:
        return None
    hidden, doubt = _hidden([late for _, late in several], single)
    tokens = len(single) + sum(tokens for tokens, _ in several)
    return Merging(
        merged_ratio=(hidden + len(proven)) / len(chunks),
        doubt_ratio=doubt / len(chunks),
        acceptance_length=tokens / counted,
        corrected_acceptance_length=(tokens + sum(proven)) / (counted + hidden + 2 * len(proven)),
    )


def _chunks(answer: Answer) -> Iterator[tuple[int, bool]]:
    """Tokens of each decode chunk but the last, and whether it took about two steps."""
    gaps = [after - before for before, after in pairwise(answer.chunk_seconds)][:-1]
    usual = median(gaps) if gaps else 0.0
    if usual >= MIN_GAP_SECONDS:
        for tokens, gap in zip(answer.chunk_tokens[1:-1], gaps, strict=True):
            yield tokens, TWICE[0] <= gap / usual <= TWICE[1]


def _hidden(several: Sequence[bool], single: Sequence[bool]) -> tuple[float, float]:
    """By how many chunks of several tokens were late more often than single tokens were, and the half width of that."""
    if not several:
        return 0.0, 0.0
    late, by_chance = sum(several) / len(several), sum(single) / len(single) if single else 0.0
    variance = late * (1 - late) / len(several) + by_chance * (1 - by_chance) / max(1, len(single))
    scale = len(several) / (1 - by_chance) if by_chance < 1 else 0.0
    return max(0.0, late - by_chance) * scale, SURE * math.sqrt(variance) * scale
