"""What can go wrong with a replica: the stable word for each, and what the reader should do about it."""

from __future__ import annotations

from monitor.core.address import shown_url
from monitor.errors import TargetError

ADVICE = {
    "unreachable": "check the address and that the server is running",
    "connect_timeout": "check the address, firewalls and that the server accepts connections",
    "no_answer": "is it an HTTP server? A vLLM that hangs or has no CPU left is as silent; look at its log",
    "first_token_timeout": "the server may be overloaded; look at its queue, or allow more time",
    "stalled": "the server may be shutting down or hung; look at its log",
    "total_timeout": "ask for fewer tokens or allow more time",
    "tls": "correct the certificate or the address, or name the issuer with a CA file",
    "unauthorized": "give the right API key",
    "not_found": "check the address; it must be the server's root, without /v1",
    "model_not_served": "name a model that the server serves",
    "several_models": "name the one to measure",
    "context_too_long": "use shorter prompts or fewer tokens",
    "bad_request": "correct the request; extra body keys are the usual cause",
    "rate_limited": "lower the concurrency or raise the limit of this key",
    "server_error": "look at the server's log",
    "not_openai": "check the address; it must be the root of an OpenAI-compatible server",
    "not_vllm": "name its engine, give the address of a vLLM server, or declare identity.engine behind a gateway",
    "cut_off": "the server or a proxy closed the connection; look at their logs",
    "aborted": "the server was probably told to stop; look at its log",
    "error_in_stream": "look at the server's log",
    "invalid_json": "something between here and the server alters its answers",
    "not_started": "look at its log",
    "no_counters": "use source request or stream, or give the address of a server whose metrics have them",
    "counters_reset": "measure again; if it repeats, this is a load balancer: give the address of one replica",
    "counters_behind": "its /metrics may be that of another server than the one that answers, as behind a load "
    "balancer: give the address of one replica",
    "load_balancer": "the address is that of several servers; give the address of one replica",
    "no_usage": "the server or a proxy drops stream_options or return_token_ids; connect to vLLM directly",
}

GONE = frozenset(
    {
        "unreachable",
        "connect_timeout",
        "no_answer",
        "tls",
        "unauthorized",
        "not_found",
        "model_not_served",
        "several_models",
        "not_openai",
        "not_vllm",
    }
)
"""Reasons after which no other prompt can succeed either."""
NOT_SERVING = GONE | {"server_error", "bad_request"}
"""Reasons after which, when each prompt of a whole domain met them, no other domain can be measured either."""


def failure(reason: str, url: str, what: str) -> TargetError:
    """The error for `reason`: where, what happened and what to do, on one or two lines."""
    return TargetError(reason, f"{shown_url(url)}: {what.rstrip('.')}; {ADVICE[reason]}")


def one_line(text: str, limit: int = 300) -> str:
    """Text of a server as it may stand in a message: one line, no longer than `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
