"""Drafters that learn from what the server has generated: replayed prompts are accepted better each time. Pure."""

from __future__ import annotations

CORPUS_ENGINES = frozenset({"sglang", "trtllm", "llamacpp"})
"""Whose n-gram drafters keep what was generated for all requests; vLLM's looks into the request at hand alone."""


def learns_from_replay(engine: str | None, method: str | None) -> bool:
    """Whether answers of one request are drafts of a later one."""
    if method is None:
        return False
    return method == "suffix" or (method.startswith("ngram") and engine in CORPUS_ENGINES)
