"""The sources held against each other: acceptance length of the same answers by each source that has it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.core.figures import acceptance_length
from monitor.core.format import figure
from monitor.core.records import Counts, Source
from monitor.engines.counters import Change
from monitor.engines.counts import MERGED_LIMIT_RATIO, Reading, counts_of, foreign_tokens, merged_chunks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.engines.answer import Answer
    from monitor.engines.counts import Window
    from monitor.probing.conversation import Attempt

DISAGREEMENT_LIMIT_RATIO = 0.01
"""Between two sources' acceptance lengths of the same answers, above which a run warns."""
MIN_STEPS = 500
"""Steps below which the answers' last chunks, which a stream cannot use, may make such a difference by themselves."""


def acceptance_by_source(attempts: Sequence[Attempt], reading: Reading, counted: Window | None) -> dict[str, float]:
    """Pooled acceptance length over the answers of a run, by source; a source that cannot have it is left out.

    `counted`: what the server's counters moved by from before the first prompt until after the last. They count only
    where no prompt failed and nobody else was served.
    """
    answers = [answer for attempt in attempts if attempt.error is None for answer in attempt.answers]
    found = {
        Source.REQUEST: _by_request(answers),
        Source.STREAM: _by_stream(answers, reading),
        Source.COUNTERS: None,
    }
    if (change := _own_change(attempts, counted, reading.max_contamination_ratio)) is not None:
        found[Source.COUNTERS] = Counts(change.steps, change.drafted, change.accepted, change.histogram)
    lengths = {source.value: acceptance_length(counts) for source, counts in found.items() if counts is not None}
    return {source: length for source, length in lengths.items() if length is not None}


def disagreements(lengths: Mapping[str, float], source: Source, steps: int) -> list[str]:
    """A sentence for each source that differs from the run's own by more than DISAGREEMENT_LIMIT_RATIO."""
    own = lengths.get(source.value)
    if own is None or steps < MIN_STEPS:
        return []
    return [
        f"source {other} disagrees: acceptance length {figure('acceptance_length', length)} where {source.value} says "
        f"{figure('acceptance_length', own)} ({length / own - 1:+.1%})"
        for other, length in lengths.items()
        if abs(length / own - 1) > DISAGREEMENT_LIMIT_RATIO
    ]


def _by_request(answers: Sequence[Answer]) -> Counts | None:
    if any(answer.request_counts is None for answer in answers):
        return None
    return sum((counts_of(answer, Reading(Source.REQUEST)) for answer in answers), Counts())


def _by_stream(answers: Sequence[Answer], reading: Reading) -> Counts | None:
    """None unless every step drafts and is a chunk: elsewhere a stream shows another quantity."""
    chunks = sum(len(answer.chunk_tokens) for answer in answers)
    if (
        not reading.every_step
        or not reading.chunks_are_steps
        or merged_chunks(answers, reading.k) > MERGED_LIMIT_RATIO * chunks
    ):
        return None
    as_stream = Reading(Source.STREAM, reading.k, reading.every_step)
    return sum((counts_of(answer, as_stream) for answer in answers), Counts())


def drafted_share(attempts: Sequence[Attempt], counted: Window | None, max_contamination_ratio: float) -> float | None:
    """Share of the run's decode steps that had a draft, by the server's counters; None where they cannot tell.

    Decode steps are at least the chunks after the first, and the tokens after the first that no draft accounts for.
    """
    change = _own_change(attempts, counted, max_contamination_ratio)
    answers = [answer for attempt in attempts for answer in attempt.answers]
    if change is None or not answers:
        return None
    after_first = sum(answer.completion_tokens - 1 for answer in answers)
    decode_steps = max(sum(answer.decode_chunks for answer in answers), after_first - change.accepted)
    return min(1.0, change.steps / decode_steps) if decode_steps > 0 else None


def _own_change(attempts: Sequence[Attempt], counted: Window | None, max_contamination_ratio: float) -> Change | None:
    """What the counters moved by, if by these prompts alone: none failed, and nobody else was served."""
    if any(attempt.error for attempt in attempts) or not isinstance(counted, Change):
        return None
    foreign = foreign_tokens([answer for attempt in attempts for answer in attempt.answers], counted)
    own = counted.generated_tokens - foreign
    if not 0 <= foreign <= max_contamination_ratio * own or counted.contradiction() is not None:
        return None
    return counted
