"""vLLM: how it is asked, what its chunks say, and what it shows of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitor.engines import vllm_identity, vllm_metrics
from monitor.engines.base import Chunk, Load, Observation, RequestCounts
from monitor.engines.failures import failure, one_line
from monitor.engines.lenient import section, text, whole
from monitor.engines.vllm_counters import counters_in, counters_of
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.records import Identity, Sampling
    from monitor.engines.base import Replica
    from monitor.engines.counters import Counters

COUNTS_FLAG = "--per-request-spec-decode-metrics summary"
COUNTS_SINCE = (0, 29)
"""First release whose answers carry counts for each request (vllm#48915)."""
GIVEN_UP = frozenset({"abort", "error"})
"""Finish reasons of answers that the server ended for its own sake: cut short, though the stream ends in good order."""


class VllmEngine:
    """The adapter for vLLM 0.10 and later. Holds no state: one instance serves any number of replicas."""

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Only /v1/models must answer; what the other paths do not show stays None."""
        card = vllm_identity.choose_model(await _get_models(replica), model, replica.url)
        version = await _optional_json(replica, "/version")
        metrics = await _metrics(replica)
        identity = vllm_identity.identity_of(
            card, version, await _optional_json(replica, "/server_info?config_format=json")
        )
        if vllm_identity.is_other_engine(card, version, metrics) and declared.engine is None:
            owner = one_line(str(card.get("owned_by")), 40)
            raise failure("not_vllm", replica.url, f"nothing here looks like vLLM (its model is owned by {owner!r})")
        if identity.k is None and metrics is not None:
            identity = replace(identity, k=vllm_metrics.draft_positions(metrics))
        return Observation(
            model=str(card["id"]),
            identity=identity,
            load=Load() if metrics is None else vllm_metrics.load_of(metrics),
            speculates=None if metrics is None else vllm_metrics.speculates(metrics),
        )

    async def speculates(self, replica: Replica) -> bool | None:
        """See `Engine.speculates`: whether /metrics has the counters of speculation."""
        metrics = await _metrics(replica)
        return None if metrics is None else vllm_metrics.speculates(metrics)

    async def load(self, replica: Replica) -> Load:
        """See `Engine.load`."""
        metrics = await _metrics(replica)
        return Load() if metrics is None else vllm_metrics.load_of(metrics)

    async def glance(self, replica: Replica, model: str | None) -> tuple[Load, Counters]:
        """See `Engine.glance`."""
        page = await _page(replica)
        metrics, lazy = vllm_metrics.parse(page), vllm_metrics.is_lazy(page)
        return vllm_metrics.load_of(metrics), counters_in(metrics, model or "", replica.url, lazy=lazy)

    async def counters(self, replica: Replica, model: str) -> Counters:
        """See `Engine.counters`."""
        return counters_of(await _page(replica), model, replica.url)

    def path(self, sampling: Sampling) -> str:
        return "/v1/chat/completions" if sampling.endpoint == "chat" else "/v1/completions"

    def body(
        self, model: str, conversation: Sequence[tuple[str, str]], sampling: Sampling, salt: str | None
    ) -> dict[str, Any]:
        """See `Engine.body`. The `completions` endpoint gets the last text alone; `extra_body` has the last word."""
        body: dict[str, Any] = {"model": model}
        if sampling.endpoint == "chat":
            body["messages"] = [{"role": role, "content": text} for role, text in conversation]
        else:
            body["prompt"] = conversation[-1][1]
        body |= {
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if salt is not None:
            body["cache_salt"] = salt
        if sampling.chat_template_kwargs and sampling.endpoint == "chat":
            body["chat_template_kwargs"] = dict(sampling.chat_template_kwargs)
        return body | dict(sampling.extra_body)

    def read(self, event: bytes, url: str) -> Chunk:
        """See `Engine.read`. Raises `invalid_json`, `error_in_stream` and `aborted`."""
        document = _chunk_document(event, url)
        usage = section(document, "usage")
        choices = document.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        ids = choice.get("token_ids")
        finish_reason = text(choice.get("finish_reason"))
        if finish_reason in GIVEN_UP:
            raise failure("aborted", url, f"the server gave up in mid-answer, with finish reason {finish_reason!r}")
        return Chunk(
            text=_visible_text(choice),
            after_the_answer=not choice,
            token_ids=tuple(ids) if isinstance(ids, list) else None,
            completion_tokens=whole(usage.get("completion_tokens")),
            prompt_tokens=whole(usage.get("prompt_tokens")),
            cached_prompt_tokens=whole(section(usage, "prompt_tokens_details").get("cached_tokens")),
            finish_reason=finish_reason,
            stopped_by_text=isinstance(choice.get("stop_reason"), str),
            fingerprint=text(document.get("system_fingerprint")),
            request_counts=request_counts(section(section(document, "metrics"), "speculative_decoding")),
        )

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


def _chunk_document(event: bytes, url: str) -> Mapping[str, Any]:
    try:
        document = json.loads(event)
    except (ValueError, RecursionError):
        start = one_line(event.decode(errors="replace"), 80)
        raise failure("invalid_json", url, f"a chunk of the stream is not JSON: {start}") from None
    if not isinstance(document, dict):
        raise failure("invalid_json", url, f"a chunk of the stream is not an object: {one_line(str(document), 80)}")
    if error := document.get("error"):
        message = section(document, "error").get("message", error)
        raise failure("error_in_stream", url, f"the server reported in mid-answer: {one_line(str(message))}")
    return document


async def _get_models(replica: Replica) -> Any:
    try:
        return await replica.get_json("/v1/models")
    except TargetError as error:
        if error.reason != "not_found":
            raise
        raise failure("not_openai", replica.url, "there is no /v1/models") from None


async def _optional_json(replica: Replica, path: str) -> Mapping[str, Any]:
    try:
        answer = await replica.get_json(path)
    except TargetError:
        return {}
    return answer if isinstance(answer, dict) else {}


async def _metrics(replica: Replica) -> vllm_metrics.Metrics | None:
    try:
        return vllm_metrics.parse(await replica.get_text("/metrics"))
    except TargetError:
        return None


def _visible_text(choice: Mapping[str, Any]) -> str:
    """Reasoning left out: it is not part of what a client sends back as history."""
    return text(choice.get("text")) or text(section(choice, "delta").get("content")) or ""


def _release(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else None


async def _page(replica: Replica) -> str:
    """The metrics page. Raises TargetError, `no_counters` where there is none."""
    try:
        return await replica.get_text("/metrics")
    except TargetError as error:
        if error.reason != "not_found":
            raise
        raise failure("no_counters", replica.url, "there is no /metrics") from None
