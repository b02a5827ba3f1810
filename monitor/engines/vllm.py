"""vLLM: how it is asked, what its chunks say, and what it shows of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitor.engines import vllm_identity, vllm_metrics
from monitor.engines.base import Glance, Observation, RequestCounts
from monitor.engines.counters import counters_or_why
from monitor.engines.failures import failure, one_line
from monitor.engines.lenient import section, text, whole
from monitor.engines.models import choose_model, get_models
from monitor.engines.openai import OpenAIEngine, optional_json
from monitor.engines.vllm_counters import counters_in
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.records import Identity, Sampling
    from monitor.engines.base import Replica
    from monitor.engines.exposition import Metrics

COUNTS_FLAG = "--per-request-spec-decode-metrics summary"
COUNTS_SINCE = (0, 29)
"""First release whose answers carry counts for each request (vllm#48915)."""


class VllmEngine(OpenAIEngine):
    """The adapter for vLLM 0.10 and later. Holds no state: one instance serves any number of replicas."""

    chunks_are_steps = True
    metrics_path = "/metrics"
    metrics_advice = "a gateway in front may hide it"
    no_page = frozenset({"not_found"})

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """See `Engine.is_here`: vLLM owns its models, or its metrics show where a gateway renames them."""
        if owner == "vllm":
            return True
        return any(name.startswith("vllm:") for name in _metrics(await self.page(replica)))

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Only /v1/models must answer; what the other paths do not show stays None."""
        card = choose_model(await get_models(replica), model, replica.url)
        version = await optional_json(replica, "/version")
        server_info = await optional_json(replica, "/server_info?config_format=json")
        identity = vllm_identity.identity_of(card, version, server_info)
        page, name = await self.page(replica), str(card["id"])
        metrics = _metrics(page)
        if vllm_identity.is_other_engine(card, version, metrics) and declared.engine is None:
            raise failure("not_vllm", replica.url, _unlike_vllm(text(card.get("owned_by"))))
        if identity.k is None:
            own = vllm_metrics.of_rank(metrics, replica.data_parallel_rank)
            identity = replace(identity, k=vllm_metrics.draft_positions(own))
        return Observation(name, identity, _glance_at(page, metrics, name, replica))

    async def glance(self, replica: Replica, model: str | None) -> Glance:
        """See `Engine.glance`: of a rank its own load and counters."""
        page = await self.page(replica)
        return _glance_at(page, _metrics(page), model or "", replica)

    def own_keys(self, sampling: Sampling, salt: str | None) -> dict[str, Any]:
        """See `OpenAIEngine.own_keys`."""
        return {"return_token_ids": True} | ({} if salt is None else {"cache_salt": salt})

    def counts_in(self, document: Mapping[str, Any]) -> RequestCounts | None:
        """See `OpenAIEngine.counts_in`."""
        return request_counts(section(section(document, "metrics"), "speculative_decoding"))

    def counts_advice(self, version: str | None) -> str:
        """See `Engine.counts_advice`."""
        if version is not None and (release := _release(version)) is not None and release < COUNTS_SINCE:
            return f"vLLM {version} cannot report counts per request; from 0.29 on, start it with {COUNTS_FLAG}"
        return f"for exact counts start the server with {COUNTS_FLAG} (vLLM ≥ 0.29)"


def request_counts(counts: Mapping[str, Any]) -> RequestCounts | None:
    """Counts of `metrics.speculative_decoding`; None without steps or accepted tokens. Unknown keys are ignored."""
    steps = whole(counts.get("num_spec_steps"))
    accepted = whole(counts.get("num_accepted_draft_tokens"))
    if steps is None or accepted is None:
        return None
    listed = counts.get("acceptance_histogram")
    histogram = tuple(listed) if isinstance(listed, list) and all(whole(n) is not None for n in listed) else ()
    k = whole(counts.get("num_spec_tokens"))
    return RequestCounts(
        steps=steps,
        accepted=accepted,
        drafted=whole(counts.get("num_draft_tokens")),
        histogram=histogram,
        k=len(histogram) - 1 if k is None and histogram else k,
    )


def _unlike_vllm(owner: str | None) -> str:
    whose = "names no owner" if owner is None else f"is owned by {one_line(owner, 40)!r}"
    return f"nothing here looks like vLLM: the model {whose}, and neither /version nor /metrics is that of vLLM"


def _release(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal() else None


def _metrics(page: str | TargetError) -> Metrics:
    return {} if isinstance(page, TargetError) else vllm_metrics.parse(page)


def _glance_at(page: str | TargetError, metrics: Metrics, model: str, replica: Replica) -> Glance:
    if isinstance(page, TargetError):
        return Glance(page)
    lazy, rank = vllm_metrics.is_lazy(page), replica.data_parallel_rank
    counters = counters_or_why(lambda: counters_in(metrics, model, replica.url, rank, lazy=lazy))
    own = vllm_metrics.of_rank(metrics, rank)
    return Glance(counters, vllm_metrics.load_of(own), vllm_metrics.speculates(own))
