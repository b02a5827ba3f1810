"""From answers to the counts of one sample, by source, and what makes a sample invalid. Pure."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from monitor.core.format import count
from monitor.core.learning import method_name
from monitor.core.records import Counts, Sample, Source
from monitor.engines.counters import Change

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from monitor.engines.answer import Answer
    from monitor.errors import TargetError

    Window: TypeAlias = Change | TargetError
    """What the server's counters moved by around one prompt, or why that is not known."""

Number = TypeVar("Number", int, float)

MIN_DECODE_STEPS = 4
MERGED = "merged_chunks"
MERGED_LIMIT_RATIO = 0.05
"""Share of merged chunks from which a sample or a run of source `stream` is invalid: merging always flatters."""
CONTAMINATED = "contaminated"
MAX_CONTAMINATION_RATIO = 0.01
"""Tokens of others per token of ours in a window of the counters, above which a sample is invalid."""

ALWAYS_DRAFTS = frozenset({"draft_model", "eagle", "eagle3", "mtp", "medusa", "mlp_speculator", "dflash", "dspark"})
DRAFTS_ON_A_MATCH = frozenset({"ngram", "ngram_gpu", "suffix"})


def drafts_every_step(method: str | None) -> bool | None:
    """Whether every decode step of the method has a draft; None for a method that is not known."""
    if method is None:
        return None
    name = method_name(method)
    if name in DRAFTS_ON_A_MATCH:
        return False
    return True if name in ALWAYS_DRAFTS or name.endswith("_mtp") else None


@dataclass(frozen=True)
class Reading:
    """How the answers of one run are read: the run's source, K where known, and whether its method always drafts.

    K is 0 for a plain server, whose every token is a step. `chunks_are_steps` is False where tokens are streamed one by
    one: then the stream is no source, and does not bound the steps of another one.
    """

    source: Source
    k: int | None = None
    every_step: bool | None = None
    max_contamination_ratio: float = MAX_CONTAMINATION_RATIO
    chunks_are_steps: bool = True


def counts_of(answer: Answer, reading: Reading) -> Counts:
    """The counts of one answer by itself (`request` or `stream`); empty where its source did not give any."""
    return _from_request(answer, reading) if reading.source is Source.REQUEST else _from_stream(answer, reading)


def foreign_tokens(answers: Sequence[Answer], window: Change) -> int:
    """Tokens the server generated for others while it answered us."""
    return window.generated_tokens - sum(answer.completion_tokens for answer in answers)


def _from_counters(answers: Sequence[Answer], window: Window | None, reading: Reading) -> Counts:
    """Decode steps are bounded as with `request`, over all turns: the counters do not tell them either."""
    chunks = sum(answer.decode_chunks for answer in answers) if reading.chunks_are_steps else 0
    if not isinstance(window, Change):
        return Counts(drafted=None, decode_steps=chunks)
    undrafted = sum(answer.completion_tokens - 1 for answer in answers) - window.accepted
    decode_steps = max(chunks, window.steps, undrafted)
    return Counts(window.steps, window.drafted, window.accepted, window.histogram, decode_steps)


def _from_request(answer: Answer, reading: Reading) -> Counts:
    told = answer.request_counts
    chunks = answer.decode_chunks if reading.chunks_are_steps else 0
    if told is None:
        return Counts(decode_steps=chunks)
    # The server does not tell decode steps without a draft. Three numbers cannot exceed their count: chunks after the
    # first (merging only lowers it), steps with a draft, and tokens after the first that no draft accounts for.
    bounds = (chunks, told.steps, answer.completion_tokens - 1 - told.accepted)
    decode_steps = max(bounds) if told.decode_steps is None else told.decode_steps
    return Counts(told.steps, told.drafted, told.accepted, told.histogram, decode_steps)


def _from_stream(answer: Answer, reading: Reading) -> Counts:
    """A chunk of c tokens is a step with c − 1 accepted, the bonus token being the other one.

    The first chunk comes from the prefill, which verifies nothing; the last may be cut by max_tokens or the end. A
    merged chunk counts as the fewest decode steps that could make it, and not as a step whose acceptance is known.
    """
    decode = answer.chunk_tokens[1:]
    decode_steps = sum(1 if reading.k is None else math.ceil(tokens / (reading.k + 1)) for tokens in decode)
    if reading.every_step is False:
        return Counts(drafted=None, decode_steps=decode_steps)
    accepted = [tokens - 1 for tokens in decode[:-1] if not _merged(tokens, reading.k)]
    size = 1 + (reading.k or max(accepted, default=0))
    return Counts(
        steps=len(accepted),
        drafted=len(accepted) * reading.k if reading.k and reading.every_step else None,
        accepted=sum(accepted),
        histogram=tuple(accepted.count(j) for j in range(size)),
        decode_steps=decode_steps,
    )


def _merged(tokens: int, k: int | None) -> bool:
    return bool(k) and k is not None and tokens > k + 1


def show_steps(answers: Sequence[Answer]) -> bool:
    """Whether chunks of a server nobody knows hold what a step makes; one that streams token by token merges a few."""
    decode = [tokens for answer in answers for tokens in answer.chunk_tokens[1:]]
    return sum(tokens > 1 for tokens in decode) > MERGED_LIMIT_RATIO * len(decode)


def merged_chunks(answers: Sequence[Answer], k: int | None) -> int:
    """Chunks that hold more tokens than one step can produce; 0 when K is not known."""
    return sum(_merged(tokens, k) for answer in answers for tokens in answer.chunk_tokens)


def sample_of(
    question_id: str,
    answers: Sequence[Answer],
    reading: Reading,
    error: TargetError | None,
    advice: str,
    window: Window | None = None,
) -> Sample:
    """The sample of one prompt from the answers to its turns, the last of which may have ended in `error`.

    `advice` says how this server is made to report counts per request. `window`: what its counters moved by.
    """
    if reading.source is Source.COUNTERS:
        counts = _from_counters(answers, window, reading)
    else:
        counts = sum((counts_of(answer, reading) for answer in answers), Counts())
    ks = {answer.request_counts.k for answer in answers if answer.request_counts}
    sample = Sample(
        question_id=question_id,
        source=reading.source,
        counts=counts,
        k=ks.pop() if reading.source is Source.REQUEST and len(ks - {None}) == len(ks) == 1 else reading.k,
        prompt_tokens=_total([answer.prompt_tokens for answer in answers]),
        cached_prompt_tokens=_total([answer.cached_prompt_tokens for answer in answers]),
        completion_tokens=sum(answer.completion_tokens for answer in answers),
        ttft_seconds=next((answer.chunk_seconds[0] for answer in answers[:1] if answer.chunk_seconds), None),
        decode_seconds=_total([answer.decode_seconds for answer in answers]),
        decode_tokens=sum(sum(answer.chunk_tokens[1:]) for answer in answers),
        chunk_tokens=tuple(tuple(answer.chunk_tokens) for answer in answers),
        chunk_seconds=tuple(tuple(answer.chunk_seconds) for answer in answers),
        finish_reason=answers[-1].finish_reason if answers else None,
        output_hash=None if error else _output_hash(answers),  # a part of an output is no other output
        output_ids=None if error else _output_ids(answers),
    )
    fault = (error.reason, str(error)) if error else _fault(answers, sample, reading, advice, window)
    return sample if fault is None else replace(sample, invalid_reason=fault[0], invalid_detail=fault[1])


def _fault(
    answers: Sequence[Answer], sample: Sample, reading: Reading, advice: str, window: Window | None
) -> tuple[str, str] | None:
    counts = sample.counts
    if reading.source is Source.REQUEST:
        found = _fault_of_requests(answers, counts, advice)
    elif reading.source is Source.COUNTERS:
        found = _fault_of_counters(answers, window, reading.max_contamination_ratio)
    else:
        found = _fault_of_stream(answers, reading, advice)
    if found is not None:
        return found
    if counts.decode_steps < MIN_DECODE_STEPS:
        steps, tokens = count(counts.decode_steps, "decode step"), count(sample.completion_tokens, "token")
        what = f"{steps} in an answer of {tokens}, where {MIN_DECODE_STEPS} are needed"
        return "too_short", f"{what}; raise max_tokens if it cut the answer, or ask for longer answers"
    return None


def _fault_of_requests(answers: Sequence[Answer], counts: Counts, advice: str) -> tuple[str, str] | None:
    if any(answer.request_counts is None for answer in answers):
        return "no_request_counts", _why_no_request_counts(answers, advice)
    if any(not _consistent(answer) for answer in answers):
        return "inconsistent_counts", f"histogram {list(counts.histogram)} does not add up to {counts.steps} steps"
    return None


def _fault_of_stream(answers: Sequence[Answer], reading: Reading, advice: str) -> tuple[str, str] | None:
    if any(answer.uncounted_chunks or not answer.chunk_tokens for answer in answers):
        return "no_usage", "chunks carry neither token_ids nor usage; the server or a proxy drops these options"
    if any(answer.counted_tokens != answer.completion_tokens for answer in answers):
        return "inconsistent_counts", "the chunks do not add up to the completion tokens that usage reports"
    if not reading.chunks_are_steps:
        return "tokens_not_steps", f"its chunks hold one token each, which shows nothing of its steps; {advice}"
    merged, chunks = merged_chunks(answers, reading.k), sum(len(answer.chunk_tokens) for answer in answers)
    if merged > MERGED_LIMIT_RATIO * chunks:
        return MERGED, f"{merged} of {chunks} chunks hold more tokens than one step; {advice}"
    return None


def _fault_of_counters(
    answers: Sequence[Answer], window: Window | None, max_contamination_ratio: float
) -> tuple[str, str] | None:
    if window is None:
        return "no_counters", "the server's counters were not read around this prompt"
    if not isinstance(window, Change):
        return window.reason, str(window)
    foreign = foreign_tokens(answers, window)
    own = window.generated_tokens - foreign
    if foreign > max_contamination_ratio * own:
        return CONTAMINATED, contamination_text(foreign, own, max_contamination_ratio)
    contradiction = window.contradiction()
    return None if contradiction is None else ("inconsistent_counts", contradiction)


def contamination_text(foreign: int, own: int, limit_ratio: float) -> str:
    """How much of others is in a window, and what to do about it."""
    share = f" ({foreign / own:.1%}, {limit_ratio:.1%} is allowed)" if own else ""
    return (
        f"the server generated {foreign} tokens for others beside our {own}{share}, and its counters hold both; "
        "measure when it is quiet, or use source request or stream"
    )


def _why_no_request_counts(answers: Sequence[Answer], advice: str) -> str:
    if any(answer.stopped_by_text and answer.request_counts is None for answer in answers):
        return "an answer that ends at a stop string has no counts; leave out `stop`, or use stop_token_ids"
    return f"the answer has no counts per request; {advice}"


def _consistent(answer: Answer) -> bool:
    told = answer.request_counts
    if told is None or not told.histogram:
        return told is not None
    return sum(told.histogram) == told.steps and sum(j * n for j, n in enumerate(told.histogram)) == told.accepted


def _output_hash(answers: Sequence[Answer]) -> str | None:
    """SHA-256 of the token ids of every turn, or None when a chunk came without its ids."""
    turns = []
    for answer in answers:
        if not answer.token_ids:
            return None
        turns.append(",".join(map(str, answer.token_ids)))
    return hashlib.sha256("\n".join(turns).encode()).hexdigest() if turns else None


def _output_ids(answers: Sequence[Answer]) -> tuple[int, ...] | None:
    """The token ids of all turns, or None when a chunk came without its ids."""
    turns = [answer.token_ids for answer in answers]
    return tuple(token for turn in turns for token in turn or ()) if all(turns) else None


def _total(values: Sequence[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
