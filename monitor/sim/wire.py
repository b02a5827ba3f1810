"""Renders answers byte for byte as vLLM 0.32 does: field order, nulls and what is left out included."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from monitor.sim.model import VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.sim.requests import GenerationRequest

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."

# Text as it stands between JSON quotes: the streaming path joins strings and calls no encoder.
_ESCAPED = tuple(json.dumps(text)[1:-1] for text in VOCABULARY)


def error_document() -> dict[str, Any]:
    """What a server answers whose engine is dead."""
    return {"error": {"message": ENGINE_DEAD, "type": "InternalServerError", "param": None, "code": 500}}


def error_event() -> bytes:
    """The same inside a 200 stream; unlike all other events it has spaces after its separators."""
    return f"data: {json.dumps(error_document())}\n\n".encode()


def text_of(ids: Sequence[int]) -> str:
    return "".join([VOCABULARY[i] if i < len(VOCABULARY) else "" for i in ids])


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def answer_id(kind: str) -> str:
    return f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{uuid.uuid4().hex[:16]}"


class StreamWriter:
    """The events of one streamed answer."""

    def __init__(self, request: GenerationRequest, model: str, fingerprint: str, created_seconds: int) -> None:
        self._request, self._fingerprint = request, fingerprint
        self._chat = request.kind == "chat"
        self._prompt_tokens = len(request.token_ids)
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        self._head = (
            f'data: {{"id":"{answer_id(request.kind)}","object":"{kind}","created":{created_seconds},'
            f'"model":{compact(model)},"choices":['
        )
        self._text_head = self._head + ('{"index":0,"delta":{"content":"' if self._chat else '{"index":0,"text":"')
        self._ids_head = "" if self._chat else f'"prompt_token_ids":{self._prompt_ids()},'

    def opening(self) -> bytes:
        """The chunk with the role and no token; completions have none."""
        if not self._chat:
            return b""
        choice = '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        ids = f',"prompt_token_ids":{self._prompt_ids()},"prompt_text":null'
        return f"{self._head}{choice}{self._usage(0)}{ids}}}\n\n".encode()

    def tokens(self, ids: Sequence[int], completion_tokens: int, finish_reason: str | None) -> bytes:
        """The chunk with `ids`, after which `completion_tokens` were sent in all."""
        text = "".join([_ESCAPED[i] for i in ids])
        finish = f'"{finish_reason}"' if finish_reason else "null"
        stop = "" if self._chat and not finish_reason else ',"stop_reason":null'
        token_ids = f"[{','.join([str(i) for i in ids])}]" if self._request.return_token_ids else "null"
        close = "}," if self._chat else ","
        last = (
            f',"system_fingerprint":"{self._fingerprint}"' if finish_reason and not self._request.include_usage else ""
        )
        chunk = (
            f'{self._text_head}{text}"{close}"logprobs":null,"finish_reason":{finish}{stop},{self._ids_head}'
            f'"token_ids":{token_ids}}}]{self._usage(completion_tokens)}{last}}}\n\n'
        )
        if not self._chat:
            self._ids_head = '"prompt_token_ids":null,'
        return chunk.encode()

    def closing(self, usage: dict[str, Any], metrics: dict[str, Any] | None) -> bytes:
        """The usage chunk: no choices, the fingerprint, and the per-request metrics when there are any."""
        mark = f'"system_fingerprint":"{self._fingerprint}"'
        measured = f',"metrics":{compact(metrics)}' if metrics else ""
        return f'{self._head}],"usage":{compact(usage)},{mark}{measured}}}\n\n'.encode()

    def _prompt_ids(self) -> str:
        return compact(self._request.token_ids) if self._request.return_token_ids else "null"

    def _usage(self, completion_tokens: int) -> str:
        if not self._request.continuous_usage:
            return ""
        details = ',"completion_tokens_details":null' if self._chat else ""
        total = self._prompt_tokens + completion_tokens
        return (
            f',"usage":{{"prompt_tokens":{self._prompt_tokens},"total_tokens":{total},'
            f'"completion_tokens":{completion_tokens}{details}}}'
        )


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int | None) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return usage


def whole_answer(
    request: GenerationRequest,
    ids: list[int],
    finish_reason: str,
    *,
    model: str,
    fingerprint: str,
    created_seconds: int,
    usage: dict[str, Any] | None,
    metrics: dict[str, Any] | None,
) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    chat = request.kind == "chat"
    prompt_ids = list(request.token_ids) if request.return_token_ids else None
    end: dict[str, Any] = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
    end["token_ids"] = ids if request.return_token_ids else None
    if chat:
        message: dict[str, Any] = {"role": "assistant", "content": text_of(ids), "refusal": None, "annotations": None}
        message |= {"audio": None, "function_call": None, "reasoning": None}
        choice = {"index": 0, "message": message, **end, "routed_experts": None}
    else:
        own = {"prompt_logprobs": None, "prompt_token_ids": prompt_ids, "routed_experts": None}
        choice = {"index": 0, "text": text_of(ids), **end, **own}
    prompt = {"prompt_logprobs": None, "prompt_token_ids": prompt_ids, "prompt_text": None} if chat else {}
    return {
        "id": answer_id(request.kind),
        "object": "chat.completion" if chat else "text_completion",
        "created": created_seconds,
        "model": model,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": fingerprint,
        "usage": usage
        and {**usage, "prompt_tokens_details": usage.get("prompt_tokens_details"), "completion_tokens_details": None},
        **prompt,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": metrics,
    }
