"""Reads generation requests and refuses the wrong ones in vLLM's words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from monitor.sim.model import prompt_token_ids

Kind = Literal["chat", "completion"]


@dataclass(frozen=True)
class GenerationRequest:
    """A valid request. `text` is the whole prompt; `opening` the first user message, by which its domain is known."""

    kind: Kind
    text: str
    opening: str
    token_ids: tuple[int, ...]
    max_tokens: int
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    stream_interval: int = 1
    cache_salt: str = ""
    data_parallel_rank: int | None = None


@dataclass(frozen=True)
class Refusal:
    """An error answer: `document` is the JSON body."""

    status: int
    document: dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a server checks requests against."""

    model: str
    max_model_len: int
    speculative: bool


def refusal(status: int, message: str, *, param: str | None = None, kind: str = "BadRequestError") -> Refusal:
    return Refusal(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


def read(kind: Kind, body: bytes, limits: Limits) -> GenerationRequest | Refusal:
    """The request in `body`, or the refusal a real server answers with."""
    try:
        document = json.loads(body)
    except ValueError as error:
        position, reason = getattr(error, "pos", 0), getattr(error, "msg", str(error))
        return _invalid("json_invalid", f"body.{position}", "JSON decode error", {}, {"error": reason})
    required = "messages" if kind == "chat" else "prompt"
    if not isinstance(document, dict) or required not in document:
        return _invalid("missing", f"body.{required}", "Field required", document)
    if wrong := _wrong_options(document, limits):
        return wrong
    text, opening, token_ids = _prompt(document[required])
    if len(token_ids) >= limits.max_model_len:
        return refusal(
            400,
            f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt contains "
            f"{len(token_ids)} input tokens, which exceeds this limit even without any output tokens. Please reduce "
            f"the length of the input prompt. (parameter=input_tokens, value={len(token_ids)})",
            param="input_tokens",
        )
    return _request(kind, document, limits, text, opening, token_ids)


def _wrong_options(document: dict[str, Any], limits: Limits) -> Refusal | None:
    """The first option a real server refuses, in its order."""
    model, limit, temperature = document.get("model"), _max_tokens(document), document.get("temperature") or 0.0
    if document.get("stream_options") and not document.get("stream"):
        message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        return refusal(400, message, param="stream_options")
    if model is not None and model != limits.model:
        message = f"The model `{model}` does not exist. Valid aliases: {limits.model}."
        return refusal(404, message, param="model", kind="NotFoundError")
    if limit is not None and limit < 1:
        message = f"max_tokens must be at least 1, got {limit}. (parameter=max_tokens, value={limit})"
        return refusal(400, message, param="max_tokens")
    if limit is not None and limit > limits.max_model_len:
        message = f"max_tokens={limit} cannot be greater than max_model_len={limits.max_model_len}."
        advice = f"Please request fewer output tokens. (parameter=max_tokens, value={limit})"
        return refusal(400, f"{message} {advice}", param="max_tokens")
    if temperature < 0:
        message = f"temperature must be non-negative, got {temperature}. (parameter=temperature, value={temperature})"
        return refusal(400, message, param="temperature")
    if (document.get("n") or 1) > 1:
        return refusal(400, f"n must be 1 when using greedy sampling, got {document['n']}.")
    if limits.speculative and ((document.get("min_p") or 0.0) > 1e-5 or document.get("logit_bias")):
        message = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
        return refusal(400, message)
    return None


def _max_tokens(document: dict[str, Any]) -> int | None:
    limit = document.get("max_completion_tokens")
    return document.get("max_tokens") if limit is None else limit


def _prompt(prompt: object) -> tuple[str, str, tuple[int, ...]]:
    """Whole text, opening user message and token ids of `messages` or `prompt` (text or token ids)."""
    if isinstance(prompt, str):
        return prompt, prompt, prompt_token_ids(prompt)
    if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        return repr(prompt), "", tuple(prompt)
    messages = [message for message in prompt if isinstance(message, dict)] if isinstance(prompt, list) else []
    texts = [(str(message.get("role")), _content(message.get("content"))) for message in messages]
    text = "\n".join(f"{role}: {content}" for role, content in texts)
    opening = next((content for role, content in texts if role == "user"), "")
    return text, opening, prompt_token_ids(text)


def _content(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _request(
    kind: Kind, document: dict[str, Any], limits: Limits, text: str, opening: str, token_ids: tuple[int, ...]
) -> GenerationRequest:
    room = limits.max_model_len - len(token_ids)
    asked = _max_tokens(document)
    default = room if kind == "chat" else 16
    options = document.get("stream_options") or {}
    include_usage = bool(options.get("include_usage"))
    return GenerationRequest(
        kind=kind,
        text=text,
        opening=opening,
        token_ids=token_ids,
        max_tokens=min(room, default if asked is None else asked),
        stream=bool(document.get("stream")),
        include_usage=include_usage,
        continuous_usage=include_usage and bool(options.get("continuous_usage_stats")),
        return_token_ids=bool(document.get("return_token_ids")),
        ignore_eos=bool(document.get("ignore_eos")),
        min_tokens=document.get("min_tokens") or 0,
        stream_interval=document.get("stream_interval") or 1,
        cache_salt=document.get("cache_salt") or "",
    )


def _invalid(kind: str, where: str, what: str, given: object, context: dict[str, str] | None = None) -> Refusal:
    size = len(given) if isinstance(given, dict | list) else 0
    problem: dict[str, object] = {"type": kind, "loc": where, "msg": what, "input": f"<dict of {size} items>"}
    if context is not None:
        problem["ctx"] = context
    return refusal(400, f"1 validation error:\n  {problem}", param=where, kind="Bad Request")
