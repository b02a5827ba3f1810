"""Text Generation Inference: tokens one by one, and one histogram that tells what each step skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitor.core.records import Identity
from monitor.engines.base import Chunk, Glance, Load, Observation
from monitor.engines.counters import Counter, Counters, Series
from monitor.engines.exposition import combined, parse_only
from monitor.engines.failures import failure
from monitor.engines.lenient import text, whole
from monitor.engines.models import choose_model, get_models
from monitor.engines.openai import OpenAIEngine, optional_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.engines.base import Replica
    from monitor.engines.exposition import Metrics

RUNNING = "tgi_batch_current_size"
WAITING = "tgi_queue_size"
STEPS = "tgi_request_skipped_tokens_count"
SKIPPED = "tgi_request_skipped_tokens_sum"
REQUESTS = "tgi_request_count"
PROMPT = "tgi_request_input_length_sum"
_WANTED = frozenset({RUNNING, WAITING, STEPS, SKIPPED, REQUESTS, PROMPT})


class TgiEngine(OpenAIEngine):
    """The adapter for Text Generation Inference. Its one source is `counters`: no answer tells its steps."""

    chunks_are_steps = False
    metrics_path = "/metrics"
    metrics_advice = "a gateway in front may hide it"

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """See `Engine.is_here`."""
        return (await optional_json(replica, "/info")).get("router") == "text-generation-router"

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Method and K are not shown."""
        card = choose_model(await get_models(replica), model, replica.url)
        info = await optional_json(replica, "/info")
        identity = Identity(
            engine="tgi",
            version=text(info.get("version")),
            model=text(card.get("id")),
            root=text(info.get("model_id")),
            max_model_len=whole(info.get("max_total_tokens")),
        )
        model = str(card["id"])
        return Observation(model, identity, await self.glance(replica, model), cold_notes=(self.cache_salt_advice,))

    def glance_in(self, page: str, url: str) -> Glance:
        """See `OpenAIEngine.glance_in`."""
        metrics = parse_only(page, _WANTED)
        missing = failure("no_counters", url, "the page shows no counters of TGI")
        return Glance(counters_of(metrics) if "tgi_" in page else missing, load_of(metrics), speculates(metrics))

    def chunk(self, document: Mapping[str, Any], url: str) -> Chunk:
        """See `OpenAIEngine.chunk`: each has one token, the one that ends the answer included."""
        chunk = super().chunk(document, url)
        return chunk if chunk.after_the_answer else replace(chunk, tokens=1)

    def counts_advice(self, version: str | None) -> str:
        """See `Engine.counts_advice`."""
        return "TGI has no counts per request; use source counters while the server is quiet"


def load_of(metrics: Metrics) -> Load:
    """What the page shows."""
    return Load(running=combined(metrics, RUNNING), waiting=combined(metrics, WAITING))


def speculates(metrics: Metrics) -> bool | None:
    """True once a token was skipped; until then a drafter that never hits looks like none."""
    return True if combined(metrics, SKIPPED) else None


def counters_of(metrics: Metrics) -> Counters:
    """The counters of the whole server, added to in every step; each appears with its first count.

    The histogram has an observation for each step of each request, of the tokens beyond its first. The prefill is one
    of them and has no draft, so that each request has one step less; all others do, as TGI fills up its drafts. Tokens
    are those of all steps, of requests under way as well: what others generate shows at once.
    """
    steps, skipped, requests = (combined(metrics, name) or 0.0 for name in (STEPS, SKIPPED, REQUESTS))
    values = {
        Counter.STEPS: max(0.0, steps - requests),
        Counter.ACCEPTED: skipped,
        Counter.GENERATED: steps + skipped,
        Counter.PROMPT: combined(metrics, PROMPT) or 0.0,
    }
    return Counters({Series(counter, None, ()): value for counter, value in values.items()})
