"""Drafters that learn from what the server has generated: replayed prompts are accepted better each time. Pure."""

from __future__ import annotations

CORPUS_ENGINES = frozenset({"sglang", "trtllm", "llamacpp"})
"""Whose n-gram drafters keep what was generated for all requests; vLLM's looks into the request at hand alone."""


def method_name(method: str) -> str:
    """A method as people and engines write it, in one spelling: N-Gram and [ngram] are ngram."""
    return method.lower().strip("[]").replace("-", "_").replace("n_gram", "ngram")


def learns_from_replay(engine: str | None, method: str | None) -> bool:
    """Whether answers of one request are drafts of a later one."""
    name = "" if method is None else method_name(method)
    return name == "suffix" or (name.startswith("ngram") and engine in CORPUS_ENGINES)
