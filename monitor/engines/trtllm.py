"""TensorRT-LLM (`trtllm-serve`): a chunk per iteration, and counters by draft position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.core.records import Identity
from monitor.engines.base import Glance, Load, Observation
from monitor.engines.counters import Counter, Counters, Series, counters_or_why
from monitor.engines.exposition import combined, number_in, parse_only
from monitor.engines.failures import failure
from monitor.engines.lenient import text
from monitor.engines.models import choose_model, get_models
from monitor.engines.openai import OpenAIEngine, optional_json
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.records import Sampling
    from monitor.engines.base import Replica
    from monitor.engines.exposition import Metrics

PAGE = "/prometheus/metrics"
RUNNING = "trtllm_num_requests_running"
WAITING = "trtllm_num_requests_waiting"
KV_CACHE_USAGE = "trtllm_kv_cache_utilization"
DRAFTED_AT = "trtllm_spec_decode_drafted_tokens_total"
ACCEPTED_AT = "trtllm_spec_decode_accepted_tokens_total"
GENERATED = "trtllm_generation_tokens_total"
PROMPT = "trtllm_prompt_tokens_total"
MODEL_INFO = "trtllm_model_config_info"
PARALLEL_INFO = "trtllm_parallel_config_info"
SPECULATIVE_INFO = "trtllm_speculative_config_info"
STARTED_AT = "process_start_time_seconds"
_COUNTERS = frozenset({DRAFTED_AT, ACCEPTED_AT, GENERATED, PROMPT})
_INFO = frozenset({MODEL_INFO, PARALLEL_INFO, SPECULATIVE_INFO})
_WANTED = _COUNTERS | _INFO | {RUNNING, WAITING, KV_CACHE_USAGE, STARTED_AT}

METHODS = {"drafttarget": "draft_model", "draft_target": "draft_model"}
"""TensorRT-LLM's names of methods, in lower case, for which others say something else."""
NONE_TOLD = frozenset({"", "none", "None"})


class TrtLlmEngine(OpenAIEngine):
    """The adapter for trtllm-serve, which refuses any key it does not know.

    `avg_decoded_tokens_per_iter` of its answers is not read: it counts the prefill as an iteration, a plain server has
    it too, and it does not tell an iteration without a draft from one whose draft was refused.
    """

    chunks_are_steps = True
    metrics_path = PAGE
    metrics_advice = "start the server with return_perf_metrics: true"

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """See `Engine.is_here`."""
        return owner == "tensorrt_llm" or any(name.startswith("trtllm_") for name in _metrics(await self.page(replica)))

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Only /v1/models must answer."""
        card = choose_model(await get_models(replica), model, replica.url)
        version = text((await optional_json(replica, "/version")).get("version"))
        page = await self.page(replica)
        metrics = _metrics(page)
        glance = Glance(page) if isinstance(page, TargetError) else glance_of(metrics, replica.url)
        return Observation(str(card["id"]), identity_of(card, version, metrics), glance)

    def glance_in(self, page: str, url: str) -> Glance:
        """See `OpenAIEngine.glance_in`."""
        return glance_of(_metrics(page), url)

    def own_keys(self, sampling: Sampling, salt: str | None) -> dict[str, Any]:
        """See `OpenAIEngine.own_keys`."""
        return {} if salt is None else {"cache_salt": salt}

    def counts_advice(self, version: str | None) -> str:
        """See `Engine.counts_advice`."""
        return "TensorRT-LLM has no counts per request; use source counters while the server is quiet"


def identity_of(card: Mapping[str, Any], version: str | None, metrics: Metrics) -> Identity:
    """The identity in a model card, the version and the info series of the metrics page."""
    model, parallel = _info(metrics, MODEL_INFO), _info(metrics, PARALLEL_INFO)
    speculative = _info(metrics, SPECULATIVE_INFO)
    method = _told(speculative.get("spec_method"))
    return Identity(
        engine="trtllm",
        version=version,
        model=text(card.get("id")),
        root=_told(model.get("model")),
        max_model_len=number_in(model.get("max_model_len")),
        drafter=_told(speculative.get("spec_draft_model")),
        method=None if method is None else METHODS.get(method.lower(), method.lower()),
        k=number_in(speculative.get("spec_num_tokens")) or None,
        quantization=_told(model.get("quantization")),
        tensor_parallel=number_in(parallel.get("tensor_parallel_size")),
    )


def glance_of(metrics: Metrics, url: str) -> Glance:
    """What the page shows, without its identity."""
    return Glance(counters_or_why(lambda: counters_of(metrics, url)), load_of(metrics), speculates(metrics))


def load_of(metrics: Metrics) -> Load:
    """What the page shows."""
    return Load(
        running=combined(metrics, RUNNING),
        waiting=combined(metrics, WAITING),
        kv_cache_usage_ratio=combined(metrics, KV_CACHE_USAGE, max),
        started_at=combined(metrics, STARTED_AT, max),
    )


def speculates(metrics: Metrics) -> bool | None:
    """What the server's configuration says, or a draft that was counted; None where there is neither.

    A gate that switched speculation off for good (`acceptance_length_threshold`) does not show here.
    """
    enabled = _info(metrics, SPECULATIVE_INFO).get("spec_enabled")
    if enabled is not None:
        return enabled.lower() == "true"
    return True if combined(metrics, DRAFTED_AT) else None


def counters_of(metrics: Metrics, url: str) -> Counters:
    """The counters of the whole server, added up when a request ends. Raises TargetError `no_counters`.

    A step with a draft is one that drafted at position 0; the tokens of all positions are the drafted ones. Positions
    appear with their first count.
    """
    if GENERATED not in metrics:
        raise failure("no_counters", url, "the page shows no counters of TensorRT-LLM requests")
    accepted_at = _by_position(metrics, ACCEPTED_AT)
    drafted_at = _by_position(metrics, DRAFTED_AT)
    series = {
        Series(Counter.STEPS, None, ()): drafted_at.get(0, 0.0),
        Series(Counter.DRAFTED, None, ()): sum(drafted_at.values()),
        Series(Counter.ACCEPTED, None, ()): sum(accepted_at.values()),
        Series(Counter.GENERATED, None, ()): combined(metrics, GENERATED) or 0.0,
        Series(Counter.PROMPT, None, ()): combined(metrics, PROMPT) or 0.0,
    }
    series |= {Series(Counter.ACCEPTED_AT, position, ()): value for position, value in accepted_at.items()}
    return Counters(series, combined(metrics, STARTED_AT, max), lazy=True)


def _by_position(metrics: Metrics, name: str) -> dict[int, float]:
    """Summed over workers."""
    found: dict[int, float] = {}
    for labels, value in metrics.get(name, ()):
        if (position := number_in(labels.get("token_position"))) is not None:
            found[position] = found.get(position, 0.0) + value
    return found


def _info(metrics: Metrics, name: str) -> Mapping[str, str]:
    return next((labels for labels, _ in metrics.get(name, ())), {})


def _metrics(page: str | TargetError) -> Metrics:
    return {} if isinstance(page, TargetError) else parse_only(page, _WANTED)


def _told(label: str | None) -> str | None:
    return None if label is None or label in NONE_TOLD else label
