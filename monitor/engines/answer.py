"""One streamed answer, put together from its chunks as they arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from monitor.engines import drafts

if TYPE_CHECKING:
    from monitor.engines.base import Chunk, DraftTotals, RequestCounts


@dataclass
class Answer:
    """What one request was answered, complete or as far as it came.

    `chunk_tokens` and `chunk_seconds` (since the request was sent) are those of chunks with at least one token.
    `counted_tokens`: of all of them together. `uncounted_chunks` had text but neither token ids nor usage.
    """

    chunk_tokens: list[int] = field(default_factory=list)
    chunk_seconds: list[float] = field(default_factory=list)
    token_ids: list[int] | None = field(default_factory=list)
    counted_tokens: int = 0
    uncounted_chunks: int = 0
    reported_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    finish_reason: str | None = None
    stopped_by_text: bool = False
    fingerprint: str | None = None
    request_counts: RequestCounts | None = None
    draft_totals: list[DraftTotals] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list, init=False)

    @property
    def text(self) -> str:
        """Of all chunks; put together when it is asked for, not anew with each chunk."""
        return "".join(self._texts)

    @property
    def completion_tokens(self) -> int:
        """As the server reports them, otherwise as counted in chunks."""
        return self.counted_tokens if self.reported_tokens is None else self.reported_tokens

    @property
    def decode_chunks(self) -> int:
        """Chunks after the first, which holds what the prefill produced."""
        return max(0, len(self.chunk_tokens) - 1)

    @property
    def decode_seconds(self) -> float | None:
        """From the first token to the last; None without a second chunk."""
        return self.chunk_seconds[-1] - self.chunk_seconds[0] if self.decode_chunks else None

    def add(self, seconds: float, chunk: Chunk) -> None:
        """Takes the next chunk, received `seconds` after the request was sent."""
        tokens = self._tokens_of(chunk)
        if tokens:
            self.chunk_tokens.append(tokens)
            self.counted_tokens += tokens
            self.chunk_seconds.append(seconds)
        self._texts.append(chunk.text)
        self.reported_tokens = _newer(chunk.completion_tokens, self.reported_tokens)
        self.prompt_tokens = _newer(chunk.prompt_tokens, self.prompt_tokens)
        self.cached_prompt_tokens = _newer(chunk.cached_prompt_tokens, self.cached_prompt_tokens)
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.stopped_by_text = self.stopped_by_text or chunk.stopped_by_text
        self.fingerprint = chunk.fingerprint or self.fingerprint
        self.request_counts = chunk.request_counts or self.request_counts
        if chunk.draft_totals is not None:
            self.draft_totals.append(chunk.draft_totals)
            if chunk.finish_reason:
                self.request_counts = drafts.counts_of(self.draft_totals)

    def _tokens_of(self, chunk: Chunk) -> int:
        if chunk.after_the_answer:
            return 0
        if chunk.token_ids is not None:
            if self.token_ids is not None:
                self.token_ids.extend(chunk.token_ids)
            return len(chunk.token_ids)
        if chunk.tokens is not None:
            tokens = chunk.tokens
        elif chunk.completion_tokens is not None and not self.uncounted_chunks:
            tokens = max(0, chunk.completion_tokens - self.counted_tokens)
        else:
            tokens = 0
            self.uncounted_chunks += bool(chunk.text)
        if tokens or chunk.text:
            self.token_ids = None
        return tokens


def _newer(value: int | None, before: int | None) -> int | None:
    return before if value is None else value
