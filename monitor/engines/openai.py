"""Any OpenAI-compatible server: what all engines have in common, and all that is known of a server nobody names.

The engines with a name of their own derive from this one and say only where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from monitor.core.records import Identity
from monitor.engines.base import Chunk, Glance, Observation
from monitor.engines.failures import failure, one_line
from monitor.engines.lenient import section, text, whole
from monitor.engines.models import choose_model, get_models
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.records import Sampling
    from monitor.engines.base import Replica, RequestCounts

GIVEN_UP = frozenset({"abort", "error"})
"""Finish reasons of answers that the server ended for its own sake: cut short, though the stream ends in good order."""


class OpenAIEngine:
    """The adapter for a server of which nothing is known but its API. Holds no state, as every engine.

    Its one source is `stream`, from the running usage of each chunk. Whether a chunk is a step must be told from the
    answers: a server that streams token by token looks the same as one whose every draft is refused.
    """

    chunks_are_steps: bool | None = None
    stop_key = "stop_reason"
    """What a choice names its stop string or stop token by."""
    metrics_path: str | None = None
    metrics_advice = ""
    """How the server is made to have that page."""
    no_page = frozenset({"not_found", "bad_request", "server_error"})
    """Reasons why it cannot be had that say that there is none."""
    cache_salt_advice = "this server has no cache_salt: a cold run may meet what an earlier one left in its cache"

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """See `Engine.is_here`: any server that lists models."""
        return True

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. Only /v1/models must answer."""
        card = choose_model(await get_models(replica), model, replica.url)
        identity = Identity(
            model=text(card.get("id")), root=text(card.get("root")), max_model_len=whole(card.get("max_model_len"))
        )
        model = str(card["id"])
        return Observation(model, identity, await self.glance(replica, model), cold_notes=(self.cache_salt_advice,))

    async def glance(self, replica: Replica, model: str | None) -> Glance:
        """See `Engine.glance`."""
        return self.glance_at(await self.page(replica), replica.url)

    async def page(self, replica: Replica) -> str | TargetError:
        """The metrics page, or why it cannot be had: `no_counters` where there is none. Empty where none is known."""
        if self.metrics_path is None:
            return ""
        try:
            return await replica.get_text(self.metrics_path)
        except TargetError as error:
            if error.reason not in self.no_page:
                return error
            return failure("no_counters", replica.url, f"there is no {self.metrics_path}; {self.metrics_advice}")

    def glance_at(self, page: str | TargetError, url: str) -> Glance:
        """What the page shows; without one, nothing but why."""
        return Glance(page) if isinstance(page, TargetError) else self.glance_in(page, url)

    def glance_in(self, page: str, url: str) -> Glance:
        """What is read from a page; of this server's nothing is known."""
        return Glance(failure("no_counters", url, "nothing is known of this server's counters"))

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
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.chat_template_kwargs and sampling.endpoint == "chat":
            body["chat_template_kwargs"] = dict(sampling.chat_template_kwargs)
        return body | self.own_keys(sampling, salt) | dict(sampling.extra_body)

    def own_keys(self, sampling: Sampling, salt: str | None) -> dict[str, Any]:
        """Keys of the request that OpenAI does not know and this engine does; some engines refuse any other."""
        return {}

    def read(self, event: bytes, url: str) -> Chunk:
        """See `Engine.read`. Raises `invalid_json`, `error_in_stream` and `aborted`."""
        return self.chunk(_document(event, url), url)

    def chunk(self, document: Mapping[str, Any], url: str) -> Chunk:
        """What one document of the stream says. Raises `aborted`."""
        usage = section(document, "usage")
        choice = first_choice(document)
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
            stopped_by_text=isinstance(choice.get(self.stop_key), str),
            fingerprint=text(document.get("system_fingerprint")),
            request_counts=self.counts_in(document),
        )

    def counts_in(self, document: Mapping[str, Any]) -> RequestCounts | None:
        """The counts of the request that this document of the stream holds."""
        return None

    def counts_advice(self, version: str | None) -> str:
        """See `Engine.counts_advice`."""
        return "for exact counts name the engine, if it is one that Specwatch knows (docs/engines.md)"


def first_choice(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choice that a chunk is about; empty where it has none."""
    choices = document.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


async def optional_json(replica: Replica, path: str) -> Mapping[str, Any]:
    """The object at `path`; empty where there is none."""
    try:
        answer = await replica.get_json(path)
    except TargetError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _document(event: bytes, url: str) -> Mapping[str, Any]:
    try:
        document = orjson.loads(event)
    except ValueError:
        start = one_line(event.decode(errors="replace"), 80)
        raise failure("invalid_json", url, f"a chunk of the stream is not JSON: {start}") from None
    if not isinstance(document, dict):
        raise failure("invalid_json", url, f"a chunk of the stream is not an object: {one_line(str(document), 80)}")
    if error := document.get("error"):
        message = section(document, "error").get("message", error)
        raise failure("error_in_stream", url, f"the server reported in mid-answer: {one_line(str(message))}")
    return document


def _visible_text(choice: Mapping[str, Any]) -> str:
    """Reasoning left out: it is not part of what a client sends back as history."""
    return text(choice.get("text")) or text(section(choice, "delta").get("content")) or ""
