"""SGLang: counts of each request on request, and every decode step a verification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitor.core.records import Identity
from monitor.engines.base import Glance, Load, Observation, RequestCounts
from monitor.engines.counters import Counter, Counters, Series, counters_or_why
from monitor.engines.exposition import combined, parse_only
from monitor.engines.failures import failure
from monitor.engines.lenient import section, text, whole
from monitor.engines.models import choose_model, get_models
from monitor.engines.openai import OpenAIEngine, optional_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.records import Sampling
    from monitor.engines.base import Replica
    from monitor.engines.exposition import Metrics

RUNNING = "sglang:num_running_reqs"
WAITING = "sglang:num_queue_reqs"
KV_CACHE_USAGE = "sglang:token_usage"
VERIFICATIONS = "sglang:spec_verify_calls_total"
GENERATED = "sglang:generation_tokens_total"
PROMPT = "sglang:prompt_tokens_total"
REQUESTS = "sglang:num_requests_total"
STARTED_AT = "process_start_time_seconds"
_WANTED = frozenset({RUNNING, WAITING, KV_CACHE_USAGE, VERIFICATIONS, GENERATED, PROMPT, REQUESTS, STARTED_AT})

METHODS = {"STANDALONE": "draft_model", "NEXTN": "mtp"}
"""SGLang's names of methods for which others say something else; the rest only in lower case."""
ADAPTIVE = (
    "SGLang adapts the draft length here and still counts drafts as if it did not, so that acceptance rate is too low; "
    "acceptance length is right"
)


class SglangEngine(OpenAIEngine):
    """The adapter for SGLang. Counts per request need a release that knows `return_spec_tokens_details` (sglang#33518).

    Its gauges of acceptance are not read: they hold the last interval's value when idle, and everybody's traffic.
    """

    chunks_are_steps = True
    metrics_path = "/metrics"
    metrics_advice = "start the server with --enable-metrics"
    stop_key = "matched_stop"

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """See `Engine.is_here`."""
        return owner == "sglang" or "speculative_algorithm" in await _server_info(replica)

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Only /v1/models must answer."""
        card = choose_model(await get_models(replica), model, replica.url)
        info = await _server_info(replica)
        model = str(card["id"])
        return Observation(
            model,
            identity_of(card, info),
            replace(await self.glance(replica, model), speculates=_speculates(info)),
            notes=(ADAPTIVE,) if info.get("speculative_adaptive") else (),
        )

    def glance_in(self, page: str, url: str) -> Glance:
        """See `OpenAIEngine.glance_in`. Whether speculation is on is not on the page; /server_info has it."""
        metrics = parse_only(page, _WANTED)
        return Glance(counters_or_why(lambda: counters_of(metrics, url)), load_of(metrics))

    def own_keys(self, sampling: Sampling, salt: str | None) -> dict[str, Any]:
        """See `OpenAIEngine.own_keys`. Token ids are refused with streamed chat (sglang#30917)."""
        keys: dict[str, Any] = {"return_spec_tokens_details": True}
        if sampling.endpoint == "completions":
            keys["return_token_ids"] = True
        return keys if salt is None else keys | {"cache_salt": salt}

    def counts_in(self, document: Mapping[str, Any]) -> RequestCounts | None:
        """See `OpenAIEngine.counts_in`."""
        details = section(document, "sglext").get("spec_tokens_details")
        one = details[0] if isinstance(details, list) and len(details) == 1 else details
        return request_counts(one) if isinstance(one, dict) else None

    def counts_advice(self, version: str | None) -> str:
        """See `Engine.counts_advice`."""
        return "for exact counts use an SGLang that knows return_spec_tokens_details (September 2026 and later)"


def request_counts(details: Mapping[str, Any]) -> RequestCounts | None:
    """Counts of `spec_tokens_details`, from whichever of SGLang's names there are; None without verifications.

    SGLang's acceptance length is completion tokens per verification. The tokens hold the prefill's one, and the last
    step's only as far as they were sent. Where accepted drafts are not counted beside it, they are what remains of the
    tokens: what the end cut off is missing then, at most K in a request.
    """
    steps = whole(details.get("spec_verify_ct"))
    accepted = whole(details.get("spec_num_correct_drafts", details.get("spec_accepted_drafts")))
    length = details.get("spec_accept_length")
    if steps is not None and accepted is None and isinstance(length, float | int) and length > 0:
        accepted = max(0, round(length * steps) - 1 - steps)
    if steps is None or accepted is None:
        return None
    listed = details.get("spec_correct_drafts_histogram", details.get("spec_accept_histogram"))
    counted = isinstance(listed, list) and all(whole(count) is not None for count in listed)
    return RequestCounts(
        steps=steps,
        accepted=accepted,
        drafted=whole(details.get("spec_num_proposed_drafts", details.get("spec_proposed_drafts"))),
        histogram=tuple(listed) if counted and isinstance(listed, list) else (),
        decode_steps=steps or None,
    )


def identity_of(card: Mapping[str, Any], info: Mapping[str, Any]) -> Identity:
    """The identity in a model card and the answer of /server_info.

    K is the longest chain that one step can accept: of a tree its depth, not its nodes.
    """
    algorithm = text(info.get("speculative_algorithm"))
    nodes = whole(info.get("speculative_num_draft_tokens"))
    depth = whole(info.get("speculative_num_steps"))
    return Identity(
        engine="sglang",
        version=text(info.get("version")),
        model=text(card.get("id")),
        root=text(card.get("root")),
        max_model_len=whole(card.get("max_model_len")) or whole(info.get("context_length")),
        target=text(info.get("model_path")),
        drafter=text(info.get("speculative_draft_model_path")) if algorithm else None,
        method=METHODS.get(algorithm, algorithm.lower()) if algorithm else None,
        k=_k(depth, nodes) if algorithm and not info.get("speculative_adaptive") else None,
        quantization=text(info.get("quantization")),
        tensor_parallel=whole(info.get("tp_size")),
    )


def _k(depth: int | None, nodes: int | None) -> int | None:
    return depth or (nodes - 1 if nodes else None)


def load_of(metrics: Metrics) -> Load:
    """The load summed over the ranks of the server; cache usage is that of the fullest."""
    return Load(
        running=combined(metrics, RUNNING),
        waiting=combined(metrics, WAITING),
        kv_cache_usage_ratio=combined(metrics, KV_CACHE_USAGE, max),
        started_at=combined(metrics, STARTED_AT, max),
    )


def counters_of(metrics: Metrics, url: str) -> Counters:
    """The counters of the whole server, added up when a request ends. Raises TargetError `no_counters`.

    Accepted tokens are what is left of the generated ones without the prefill's and one per verification.
    """
    generated, requests = combined(metrics, GENERATED), combined(metrics, REQUESTS)
    if generated is None or requests is None:
        raise failure("no_counters", url, "the page shows no counters of SGLang")
    steps = combined(metrics, VERIFICATIONS)
    if steps is None:
        raise failure("no_counters", url, "no verification is counted: speculation is off, or nothing was asked yet")
    values = {
        Counter.STEPS: steps,
        Counter.ACCEPTED: max(0.0, generated - requests - steps),
        Counter.GENERATED: generated,
        Counter.PROMPT: combined(metrics, PROMPT) or 0.0,
    }
    series = {Series(counter, None, ()): value for counter, value in values.items()}
    return Counters(series, combined(metrics, STARTED_AT, max))


def _speculates(info: Mapping[str, Any]) -> bool | None:
    return info["speculative_algorithm"] is not None if "speculative_algorithm" in info else None


async def _server_info(replica: Replica) -> Mapping[str, Any]:
    return await optional_json(replica, "/server_info") or await optional_json(replica, "/get_server_info")
