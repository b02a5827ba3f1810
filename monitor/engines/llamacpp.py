"""The server of llama.cpp: tokens one by one, each with running totals of drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitor.core.records import Identity
from monitor.engines.base import Chunk, DraftTotals, Glance, Load, Observation
from monitor.engines.counters import Counter, Counters, Series, counters_or_why
from monitor.engines.exposition import combined, number_in, parse_only
from monitor.engines.failures import failure
from monitor.engines.lenient import section, text, whole
from monitor.engines.models import choose_model, get_models
from monitor.engines.openai import OpenAIEngine, optional_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.records import Sampling
    from monitor.engines.base import Replica
    from monitor.engines.exposition import Metrics

RUNNING = "llamacpp:requests_processing"
WAITING = "llamacpp:requests_deferred"
KV_CACHE_USAGE = "llamacpp:kv_cache_usage_ratio"
DRAFTS = "llamacpp:spec_decode_num_drafts_total"
COUNTERS = {
    DRAFTS: Counter.STEPS,
    "llamacpp:spec_decode_num_draft_tokens_total": Counter.DRAFTED,
    "llamacpp:spec_decode_num_accepted_tokens_total": Counter.ACCEPTED,
    "llamacpp:spec_decode_num_accepted_tokens_per_pos_total": Counter.ACCEPTED_AT,
    "llamacpp:tokens_predicted_total": Counter.GENERATED,
    "llamacpp:prompt_tokens_total": Counter.PROMPT,
}
_WANTED = frozenset({RUNNING, WAITING, KV_CACHE_USAGE, *COUNTERS})


class LlamaCppEngine(OpenAIEngine):
    """The adapter for llama-server. Its `timings` have no count of steps: it is told from the totals of every token."""

    chunks_are_steps = False
    metrics_path = "/metrics"
    metrics_advice = "start the server with --metrics"

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """See `Engine.is_here`."""
        return owner == "llamacpp" or "build_info" in await optional_json(replica, "/props")

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Method and K are not shown: /props has defaults of requests, not what is running."""
        card = choose_model(await get_models(replica), model, replica.url)
        props = await optional_json(replica, "/props")
        identity = Identity(
            engine="llamacpp",
            version=text(props.get("build_info")),
            model=text(card.get("id")),
            root=text(props.get("model_path")),
            max_model_len=whole(section(props, "default_generation_settings").get("n_ctx")),
        )
        model = str(card["id"])
        return Observation(model, identity, await self.glance(replica, model))

    def glance_in(self, page: str, url: str) -> Glance:
        """See `OpenAIEngine.glance_in`."""
        metrics = parse_only(page, _WANTED)
        return Glance(counters_or_why(lambda: counters_of(metrics, url)), load_of(metrics), speculates(metrics))

    def own_keys(self, sampling: Sampling, salt: str | None) -> dict[str, Any]:
        """See `OpenAIEngine.own_keys`. A cold pass uses no cache at all, for want of a salt."""
        return {"timings_per_token": True, "cache_prompt": sampling.cache == "warm"}

    def chunk(self, document: Mapping[str, Any], url: str) -> Chunk:
        """See `OpenAIEngine.chunk`."""
        chunk = super().chunk(document, url)
        timings = section(document, "timings")
        tokens = whole(timings.get("predicted_n"))
        if tokens is None:
            return chunk
        totals = DraftTotals(tokens, whole(timings.get("draft_n")) or 0, whole(timings.get("draft_n_accepted")) or 0)
        cached = whole(timings.get("cache_n")) if chunk.cached_prompt_tokens is None else chunk.cached_prompt_tokens
        return replace(
            chunk,
            completion_tokens=tokens,
            cached_prompt_tokens=cached,
            draft_totals=totals,
        )

    def counts_advice(self, version: str | None) -> str:
        """See `Engine.counts_advice`."""
        return "for counts per request use a llama-server that knows timings_per_token (March 2025 and later)"


def load_of(metrics: Metrics) -> Load:
    """What the page shows; builds since 2025 no longer tell the use of the cache."""
    return Load(
        running=combined(metrics, RUNNING),
        waiting=combined(metrics, WAITING),
        kv_cache_usage_ratio=combined(metrics, KV_CACHE_USAGE, max),
    )


def speculates(metrics: Metrics) -> bool | None:
    """True once a draft was counted; before that a server with a drafter looks like one without."""
    return True if combined(metrics, DRAFTS) else None


def counters_of(metrics: Metrics, url: str) -> Counters:
    """The counters of the whole server, added up when a request ends. Raises TargetError `no_counters`.

    They mean what vLLM's do. Positions appear with their first count.
    """
    if DRAFTS not in metrics:
        raise failure("no_counters", url, "this build does not count drafts; those from August 2026 on do")
    series = {
        Series(counter, number_in(labels.get("position")), ()): value
        for name, counter in COUNTERS.items()
        for labels, value in metrics.get(name, ())
    }
    return Counters(series, lazy=True)
