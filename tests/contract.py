"""What a vLLM server says on the wire, as expectations over raw transcripts, metrics pages and error answers.

The same functions judge captures of a real server, the simulator, and (through `exercise`) a live server, so
the simulator cannot drift from what it stands for. A transcript is the raw server-sent events with their receive times.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

Transcript = Sequence[tuple[float, str]]

PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}
TIMINGS = ["time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second"]
SUMMARY = [
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_tokens",
]
DETAILS = ["per_step_accepted", "per_step_drafted"]


@dataclass(frozen=True)
class Expected:
    """What a server was started with: its flags, and K (0 without speculation)."""

    k: int
    counts: str = "detailed"
    timings: bool = True
    always_drafts: bool = True
    """Every decode step has a draft of K tokens; n-gram and suffix lookups may find none or fewer."""
    merges: bool = False
    """A chunk may hold several steps, as where the HTTP process is starved: exact sizes cannot be asked for."""

    @property
    def has_counts(self) -> bool:
        return self.k > 0 and self.counts != "none"


# --- reading -------------------------------------------------------------------------------------------------------


def read_capture(path: Path) -> Transcript:
    """A stored transcript: every event preceded by a line `# t=<seconds>`."""
    blocks = re.split(r"^# t=([0-9.]+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [(float(t), event.rstrip("\n")) for t, event in zip(blocks[::2], blocks[1::2], strict=True)]


def record(client: httpx.Client, kind: str, body: Mapping[str, Any]) -> Transcript:
    """Stream one request and keep every event as it came."""
    started, events, buffer = time.perf_counter(), [], ""
    with client.stream("POST", PATHS[kind], json=body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        for text in response.iter_text():
            *whole, buffer = (buffer + text).split("\n\n")
            events += [(time.perf_counter() - started, event) for event in whole]
    assert not buffer
    return events


def streaming_body(kind: str, model: str, prompt: str, max_tokens: int = 150, **more: Any) -> dict[str, Any]:
    """The request all captures were made with."""
    given = {"messages": [{"role": "user", "content": prompt}]} if kind == "chat" else {"prompt": prompt}
    options = {"include_usage": True, "continuous_usage_stats": True}
    own = {"max_tokens": max_tokens, "temperature": 0, "stream": True, "stream_options": options}
    return {"model": model, **own, "return_token_ids": True, **given, **more}


def chunks_of(transcript: Transcript) -> list[dict[str, Any]]:
    """The JSON of all events before `[DONE]`, which must be the last one."""
    lines = [event for _, event in transcript if not event.startswith(":")]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def token_chunks(transcript: Transcript) -> list[dict[str, Any]]:
    """The chunks that carry tokens: neither the role chunk nor the usage chunk."""
    return [chunk for chunk in chunks_of(transcript) if chunk["choices"] and "token_ids" in chunk["choices"][0]]


def counts_of(transcript: Transcript) -> dict[str, Any]:
    """The per-request counts in the usage chunk."""
    counts: dict[str, Any] = chunks_of(transcript)[-1]["metrics"]["speculative_decoding"]
    return counts


# --- streams -------------------------------------------------------------------------------------------------------


def check_stream(transcript: Transcript, kind: str, expected: Expected) -> None:
    """Everything a stream with usage, token ids and these flags must look like."""
    check_times(transcript)
    check_chunk_keys(transcript, kind)
    check_usage(transcript, expected)
    check_closing(transcript, expected)
    if expected.has_counts:
        check_count_sums(counts_of(transcript), expected)
    if expected.has_counts and expected.counts == "detailed":
        check_steps(transcript, expected)
    if not expected.k and not expected.merges:
        # One engine step is one token, and one chunk unless an overloaded server merged some.
        assert [len(chunk["choices"][0]["token_ids"]) for chunk in token_chunks(transcript)].count(1) > 0


def check_times(transcript: Transcript) -> None:
    times = [t for t, _ in transcript]
    assert times == sorted(times)
    assert times[0] >= 0


def check_chunk_keys(transcript: Transcript, kind: str) -> None:
    """Key sets in their order, for the first, middle and last token chunks."""
    chunks, tokens = chunks_of(transcript), token_chunks(transcript)
    common = {(c["id"], c["object"], c["created"], c["model"]) for c in chunks}
    assert len(common) == 1
    prefix, name = ("chatcmpl-", "chat.completion.chunk") if kind == "chat" else ("cmpl-", "text_completion")
    assert chunks[0]["id"].startswith(prefix)
    assert chunks[0]["object"] == name
    base = ["id", "object", "created", "model", "choices", "usage"]
    assert all(list(c) == base for c in tokens)
    if kind == "chat":
        check_chat_choices(chunks, tokens, base)
    else:
        check_completion_choices(chunks, tokens)
    assert [c["choices"][0]["finish_reason"] for c in tokens[:-1]] == [None] * (len(tokens) - 1)
    assert tokens[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    assert tokens[-1]["choices"][0]["stop_reason"] is None


def check_chat_choices(chunks: list[dict[str, Any]], tokens: list[dict[str, Any]], base: list[str]) -> None:
    role = chunks[0]
    assert len(chunks) == len(tokens) + 2, "a role chunk, token chunks, a usage chunk"
    assert list(role) == [*base, "prompt_token_ids", "prompt_text"]
    assert role["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert len(role["prompt_token_ids"]) == role["usage"]["prompt_tokens"]
    assert role["prompt_text"] is None
    choices = [c["choices"][0] for c in tokens]
    assert all(list(c) == ["index", "delta", "logprobs", "finish_reason", "token_ids"] for c in choices[:-1])
    assert list(choices[-1]) == ["index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"]
    assert all(list(c["delta"]) == ["content"] for c in choices)
    details = ["prompt_tokens", "total_tokens", "completion_tokens", "completion_tokens_details"]
    assert all(list(c["usage"]) == details for c in chunks[:-1])


def check_completion_choices(chunks: list[dict[str, Any]], tokens: list[dict[str, Any]]) -> None:
    assert len(chunks) == len(tokens) + 1, "token chunks, a usage chunk"
    keys = ["index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"]
    choices = [c["choices"][0] for c in tokens]
    assert all(list(c) == keys for c in choices)
    assert len(choices[0]["prompt_token_ids"]) == tokens[0]["usage"]["prompt_tokens"]
    assert all(c["prompt_token_ids"] is None for c in choices[1:])
    assert all(list(c["usage"]) == ["prompt_tokens", "total_tokens", "completion_tokens"] for c in tokens)


def check_usage(transcript: Transcript, expected: Expected) -> None:
    """Usage is cumulative and agrees with the token ids, chunk by chunk and at the end."""
    tokens, closing = token_chunks(transcript), chunks_of(transcript)[-1]
    seen = 0
    for chunk in tokens:
        seen += len(chunk["choices"][0]["token_ids"])
        assert chunk["usage"]["completion_tokens"] == seen
        assert chunk["usage"]["total_tokens"] == chunk["usage"]["prompt_tokens"] + seen
    assert expected.merges or len(tokens[0]["choices"][0]["token_ids"]) == 1, "the prefill gives one token"
    assert closing["usage"]["completion_tokens"] == seen
    assert closing["usage"]["total_tokens"] == closing["usage"]["prompt_tokens"] + seen


def check_closing(transcript: Transcript, expected: Expected) -> None:
    """The usage chunk: no choices, the fingerprint, and metrics only where a flag asks for them."""
    closing = chunks_of(transcript)[-1]
    has_metrics = expected.timings or expected.has_counts
    keys = ["id", "object", "created", "model", "choices", "usage", "system_fingerprint"]
    assert list(closing) == [*keys, *(["metrics"] if has_metrics else [])]
    assert closing["choices"] == []
    assert list(closing["usage"])[:3] == ["prompt_tokens", "total_tokens", "completion_tokens"]
    assert re.fullmatch(r"vllm-\d+\.\d+\.\d+\S*-[0-9a-f]{8}", closing["system_fingerprint"])
    if not has_metrics:
        return
    counts = ["speculative_decoding"] if expected.has_counts else []
    # One token has no time between tokens, and vLLM then leaves the mean out.
    absent = {"mean_itl_ms"} if closing["usage"]["completion_tokens"] == 1 else set()
    timings = [name for name in TIMINGS if expected.timings and name not in absent]
    assert list(closing["metrics"]) == [*timings, *counts]
    assert all(closing["metrics"][name] >= 0 for name in timings)
    if counts:
        stepped = closing["metrics"]["speculative_decoding"]["num_spec_steps"] > 0
        details = DETAILS if expected.counts == "detailed" and stepped else []
        assert list(closing["metrics"]["speculative_decoding"]) == [*SUMMARY, *details]


def check_count_sums(counts: Mapping[str, Any], expected: Expected) -> None:
    """The per-request counts agree with each other."""
    histogram, steps = counts["acceptance_histogram"], counts["num_spec_steps"]
    accepted, drafted = counts["num_accepted_draft_tokens"], counts["num_draft_tokens"]
    assert counts["num_spec_tokens"] == expected.k
    assert len(histogram) == expected.k + 1
    assert sum(histogram) == steps
    assert sum(j * n for j, n in enumerate(histogram)) == accepted
    assert accepted <= drafted <= expected.k * steps
    assert counts["mean_acceptance_length"] == 1.0 + (accepted / steps if steps else 0.0)
    assert counts["draft_acceptance_rate"] == (accepted / drafted if drafted else 0.0)
    if expected.always_drafts:
        assert drafted == expected.k * steps


def check_steps(transcript: Transcript, expected: Expected) -> None:
    """Chunk by chunk, tokens are what the step accepted plus one; only the last chunk may be trimmed."""
    counts = counts_of(transcript)
    accepted, drafted = counts.get("per_step_accepted", []), counts.get("per_step_drafted", [])
    assert len(accepted) == len(drafted) == counts["num_spec_steps"]
    assert (sum(accepted), sum(drafted)) == (counts["num_accepted_draft_tokens"], counts["num_draft_tokens"])
    assert all(0 <= a <= d <= expected.k for a, d in zip(accepted, drafted, strict=True))
    assert [accepted.count(j) for j in range(expected.k + 1)] == counts["acceptance_histogram"]
    sizes = [len(chunk["choices"][0]["token_ids"]) for chunk in token_chunks(transcript)]
    if expected.merges:
        check_merged_sizes(sizes, accepted, expected)
        return
    if len(sizes) == 1:
        assert not accepted
        return
    *decoded, last = sizes[1:]
    without_draft = len(sizes) - 1 - len(accepted)
    assert without_draft >= 0
    trimmed = 1 + without_draft + sum(a + 1 for a in accepted) - sum(sizes)
    assert 0 <= trimmed <= expected.k
    if expected.always_drafts:
        assert without_draft == 0
        assert decoded == [a + 1 for a in accepted[:-1]]
        assert last == accepted[-1] + 1 - trimmed
        return
    # A step without a draft gives one token, as one with every token rejected does: compare the longer ones.
    longer, grown = [n for n in decoded if n > 1], [a + 1 for a in accepted if a]
    assert (longer == grown and last == 1) or (longer == grown[:-1] and last == grown[-1] - trimmed)


def check_merged_sizes(sizes: list[int], accepted: list[int], expected: Expected) -> None:
    """Where chunks may hold several steps, each still ends where a step ends, and no step is lost."""
    if not expected.always_drafts:
        assert sum(sizes) >= 1 + sum(a + 1 for a in accepted) - expected.k
        return
    ends = list(itertools.accumulate([1, *[a + 1 for a in accepted]]))
    *inner, last = itertools.accumulate(sizes)
    assert set(inner) <= set(ends)
    assert 0 <= ends[-1] - last <= expected.k


# --- metrics -------------------------------------------------------------------------------------------------------

SPECULATION = {
    "vllm:spec_decode_num_drafts": "Number of spec decoding drafts.",
    "vllm:spec_decode_num_draft_tokens": "Number of draft tokens.",
    "vllm:spec_decode_num_accepted_tokens": "Number of accepted tokens.",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "Accepted tokens per draft position.",
}
COUNTERS = {
    "vllm:prompt_tokens": "Number of prefill tokens processed.",
    "vllm:generation_tokens": "Number of generation tokens processed.",
    "vllm:request_success": "Count of successfully processed requests.",
    "vllm:prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "vllm:prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "vllm:num_preemptions": "Cumulative number of preemption from the engine.",
}
GAUGES = {
    "vllm:num_requests_running": "Number of requests in model execution batches.",
    "vllm:num_requests_waiting": "Number of requests waiting to be processed.",
    "vllm:kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "vllm:e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "vllm:request_generation_tokens": "Number of generation tokens processed.",
    "vllm:request_prompt_tokens": "Number of prefill tokens processed.",
}
FINISH_REASONS = {"stop", "length", "abort", "error", "repetition"}

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass
class Family:
    """One family of a metrics page: its comments, and its samples in their order."""

    help: str
    kind: str = ""
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)


def read_metrics(text: str) -> dict[str, Family]:
    """Families by the name in their comments; every sample must follow the comments of its own family."""
    families: dict[str, Family] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current, _, explained = line.removeprefix("# HELP ").partition(" ")
            assert current not in families, f"{current} appears twice"
            families[current] = Family(explained)
        elif line.startswith("# TYPE "):
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            assert name == current
            families[name].kind = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1].startswith(current), line
            labels = _LABEL.findall(match[2] or "")
            assert labels == sorted(labels), "labels are in alphabetical order"
            families[current].samples.append((match[1], dict(labels), float(match[3])))
    return families


def check_metrics(text: str, expected: Expected, *, model: str, engines: int = 1) -> None:
    """Names, types, help texts and labels of what a monitor reads, and what must hold between the numbers."""
    families = read_metrics(text)
    started = families["process_start_time_seconds"]
    assert started.kind == "gauge"
    check_counters(families, COUNTERS, model, engines, started.samples[0][2])
    for name, explained in GAUGES.items():
        assert (families[name].kind, families[name].help) == ("gauge", explained)
        assert [labels for _, labels, _ in families[name].samples] == each_engine(model, engines)
    for name, explained in HISTOGRAMS.items():
        check_histogram(name, families[name], explained, engines)
    reasons = {labels["finished_reason"] for _, labels, _ in families["vllm:request_success_total"].samples}
    assert reasons == FINISH_REASONS
    info = families["vllm:cache_config_info"]
    assert info.kind == "gauge"
    assert [(labels["engine"], value) for _, labels, value in info.samples] == [(str(e), 1.0) for e in range(engines)]
    assert {"block_size", "num_gpu_blocks", "enable_prefix_caching"} <= set(info.samples[0][1])
    if expected.k:
        check_counters(families, SPECULATION, model, engines, started.samples[0][2])
        check_speculation(text, expected, engines)
    else:
        assert not [name for name in families if name.startswith("vllm:spec_decode")]


def each_engine(model: str, engines: int) -> list[dict[str, str]]:
    return [{"engine": str(engine), "model_name": model} for engine in range(engines)]


def check_counters(
    families: Mapping[str, Family], names: Mapping[str, str], model: str, engines: int, started_seconds: float
) -> None:
    """A counter has whole numbers of at least 0, and a gauge beside it with the time each series began."""
    for name, explained in names.items():
        total, created = families[f"{name}_total"], families[f"{name}_created"]
        assert (total.kind, total.help) == ("counter", explained)
        assert (created.kind, created.help) == ("gauge", explained)
        assert all(value >= 0 and value.is_integer() for _, _, value in total.samples)
        assert all(value >= started_seconds for _, _, value in created.samples)
        assert [labels for _, labels, _ in total.samples] == [labels for _, labels, _ in created.samples]
        common = [{key: labels[key] for key in ("engine", "model_name")} for _, labels, _ in total.samples]
        assert all(labels in common for labels in each_engine(model, engines))
        assert all(labels in each_engine(model, engines) for labels in common)


def check_histogram(name: str, family: Family, explained: str, engines: int) -> None:
    assert (family.kind, family.help) == ("histogram", explained)
    for engine in range(engines):
        own = [(sample, labels, value) for sample, labels, value in family.samples if labels["engine"] == str(engine)]
        buckets = [value for sample, _, value in own if sample == f"{name}_bucket"]
        assert buckets == sorted(buckets)
        assert [labels["le"] for sample, labels, _ in own if sample == f"{name}_bucket"][-1] == "+Inf"
        assert [value for sample, _, value in own if sample == f"{name}_count"] == buckets[-1:]
        assert len([value for sample, _, value in own if sample == f"{name}_sum"]) == 1


def check_speculation(text: str, expected: Expected, engines: int) -> None:
    """Σ over positions is the accepted tokens, positions never rise, and K positions exist, per engine."""
    for engine in range(engines):
        drafts, drafted, accepted, positions = counters_of(text, str(engine))
        assert len(positions) == expected.k
        assert sum(positions) == accepted
        assert [drafts, *positions] == sorted([drafts, *positions], reverse=True)
        assert accepted <= drafted <= expected.k * drafts
        if expected.always_drafts:
            # A draft near the end of the context is shorter than K.
            assert drafted >= 0.95 * expected.k * drafts


def counters_of(text: str, engine: str | None = None) -> tuple[float, float, float, list[float]]:
    """Drafts, drafted, accepted and accepted by position, of one engine or summed over all."""
    families = read_metrics(text)
    totals = [families[f"{name}_total"].samples for name in SPECULATION]
    drafts, drafted, accepted = (
        sum(value for _, labels, value in samples if engine in (None, labels["engine"])) for samples in totals[:3]
    )
    positions: dict[int, float] = {}
    for _, labels, value in totals[3]:
        if engine in (None, labels["engine"]):
            positions[int(labels["position"])] = positions.get(int(labels["position"]), 0.0) + value
    assert sorted(positions) == list(range(len(positions)))
    return drafts, drafted, accepted, [positions[i] for i in range(len(positions))]


def total_of(text: str, name: str, **labels: str) -> float:
    """A counter or gauge summed over the series with `labels`."""
    samples = read_metrics(text)[name].samples
    return sum(value for _, own, value in samples if labels.items() <= own.items())


def check_counter_deltas(before: str, after: str, transcripts: Iterable[Transcript]) -> None:
    """On a server that served nothing else, counters move by exactly the sums of the per-request counts."""
    counts = [counts_of(transcript) for transcript in transcripts]
    moved = [b - a for a, b in zip(counters_of(before)[:3], counters_of(after)[:3], strict=True)]
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    assert moved == [sum(c[name] for c in counts) for name in names]


# --- errors and small pages ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorCase:
    """A request that is refused. `{model}`, `{limit}` and `{tokens}` are filled in for the server at hand."""

    name: str
    status: int
    kind: str
    param: str | None
    message: str
    path: str = PATHS["chat"]
    body: Mapping[str, Any] = field(default_factory=dict)


HELLO = {"messages": [{"role": "user", "content": "hi"}]}
ERRORS = [
    ErrorCase(
        "wrong model",
        404,
        "NotFoundError",
        "model",
        "The model `nope` does not exist. Valid aliases: {model}.",
        body={**HELLO, "model": "nope"},
    ),
    ErrorCase(
        "wrong model stream",
        404,
        "NotFoundError",
        "model",
        "The model `nope` does not exist. Valid aliases: {model}.",
        body={**HELLO, "model": "nope", "stream": True},
    ),
    ErrorCase(
        "prompt too long",
        400,
        "BadRequestError",
        "input_tokens",
        "This model's maximum context length is {limit} tokens. However, your prompt contains {tokens} input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value={tokens})",
        PATHS["completion"],
        {"prompt": "TOO LONG"},
    ),
    ErrorCase(
        "chat prompt+max_tokens > max_model_len",
        400,
        "BadRequestError",
        "max_tokens",
        "max_tokens={tokens} cannot be greater than max_model_len={limit}. Please request fewer output tokens. "
        "(parameter=max_tokens, value={tokens})",
        body={**HELLO, "max_tokens": "TOO MANY"},
    ),
    ErrorCase(
        "max_tokens 0",
        400,
        "BadRequestError",
        "max_tokens",
        "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
        PATHS["completion"],
        {"prompt": "hi", "max_tokens": 0},
    ),
    ErrorCase(
        "bad temperature",
        400,
        "BadRequestError",
        "temperature",
        "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)",
        PATHS["completion"],
        {"prompt": "hi", "temperature": -1.0},
    ),
    ErrorCase(
        "missing messages",
        400,
        "Bad Request",
        "body.messages",
        "1 validation error:\n  {{'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', "
        "'input': '<dict of 1 items>'}}",
    ),
    ErrorCase(
        "stream_options without stream",
        400,
        "BadRequestError",
        "stream_options",
        "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
        PATHS["completion"],
        {"prompt": "hi", "stream_options": {"include_usage": True}},
    ),
    ErrorCase(
        "n=2 metrics",
        400,
        "BadRequestError",
        None,
        "n must be 1 when using greedy sampling, got 2.",
        PATHS["completion"],
        {"prompt": "hi", "n": 2, "temperature": 0},
    ),
    ErrorCase(
        "min_p + spec",
        400,
        "BadRequestError",
        None,
        "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.",
        PATHS["completion"],
        {"prompt": "hi", "min_p": 0.1},
    ),
]
BAD_JSON = (
    "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.1', 'msg': 'JSON decode error', "
    "'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}"
)


def read_errors(path: Path) -> dict[str, tuple[int, str]]:
    """Captured answers by name: status and body (bodies of status 200 are cut off)."""
    parts = re.split(r"^### (.+?): HTTP (\d+)(.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    named = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    inline = {name: (int(status), rest, body) for name, status, rest, body in named}
    return {n: (s, (body.strip() or rest.strip()).split("\n")[0]) for n, (s, rest, body) in inline.items()}


def check_error(case: ErrorCase, status: int, text: str, *, model: str, limit: int, tokens: int) -> None:
    """Status and body to the letter."""
    message = case.message.format(model=model, limit=limit, tokens=tokens)
    error = {"message": message, "type": case.kind, "param": case.param, "code": case.status}
    assert status == case.status
    assert text == json.dumps({"error": error}, separators=(",", ":"))


def check_bad_json(status: int, text: str) -> None:
    error = {"message": BAD_JSON, "type": "Bad Request", "param": "body.1", "code": 400}
    assert (status, json.loads(text)) == (400, {"error": error})


ANSWER_KEYS = {
    "chat": [
        *("id", "object", "created", "model", "choices", "index", "message", "role", "content", "refusal"),
        *("annotations", "audio", "function_call", "reasoning", "logprobs", "finish_reason", "stop_reason"),
        *("token_ids", "routed_experts", "service_tier", "system_fingerprint", "usage", "prompt_tokens"),
        *("total_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"),
        *("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics"),
    ],
    "completion": [
        *("id", "object", "created", "model", "choices", "index", "text", "logprobs", "finish_reason", "stop_reason"),
        *("token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts", "service_tier", "system_fingerprint"),
        *("usage", "prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"),
        *("completion_tokens_details", "kv_transfer_params", "ec_transfer_params", "metrics"),
    ],
}


def check_answer(text: str, kind: str) -> None:
    """The keys of an answer that is not streamed, in their order; `text` may be cut off inside the metrics."""
    head = text.split('"metrics":')[0] + '"metrics":'
    assert re.findall(r'"([a-z_]+)":', head) == ANSWER_KEYS[kind]


def check_models(document: Mapping[str, Any], model: str) -> None:
    assert list(document) == ["object", "data"]
    (card,) = document["data"]
    keys = ["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"]
    assert list(card) == keys
    assert (card["id"], card["object"], card["owned_by"], card["parent"]) == (model, "model", "vllm", None)
    assert isinstance(card["root"], str)
    assert card["max_model_len"] > 0
    permission = ["id", "object", "created", "allow_create_engine", "allow_sampling", "allow_logprobs"]
    assert list(card["permission"][0])[:6] == permission


def check_version(document: Mapping[str, Any]) -> None:
    assert list(document) == ["version"]
    assert re.match(r"\d+\.\d+\.\d+", document["version"])


def check_server_info(document: Mapping[str, Any], expected: Expected) -> None:
    """The part of a dev-mode configuration that says what is running."""
    config = document["vllm_config"]
    assert isinstance(config["model_config"]["model"], str)
    assert {"max_model_len", "quantization", "revision", "served_model_name", "dtype"} <= set(config["model_config"])
    assert config["parallel_config"]["tensor_parallel_size"] >= 1
    assert config["parallel_config"]["data_parallel_size"] >= 1
    assert config["scheduler_config"]["max_num_seqs"] >= 1
    speculation = config["speculative_config"]
    if not expected.k:
        assert speculation is None
        return
    assert speculation["num_speculative_tokens"] == expected.k
    assert isinstance(speculation["method"], str)
    assert isinstance(speculation["model"], str)


# --- a live server -------------------------------------------------------------------------------------------------


def exercise(client: httpx.Client, expected: Expected, prompts: Sequence[str], *, engines: int = 1) -> None:
    """Hold the server at the client's base URL, which must serve nothing else, to the whole contract."""
    card = client.get("/v1/models").json()
    model, limit = card["data"][0]["id"], card["data"][0]["max_model_len"]
    check_models(card, model)
    check_version(client.get("/version").json())
    assert client.get("/health").text == ""
    before = client.get("/metrics").text
    transcripts = [
        (kind, record(client, kind, streaming_body(kind, model, prompt))) for kind in PATHS for prompt in prompts
    ]
    for kind, transcript in transcripts:
        check_stream(transcript, kind, expected)
    after = settled_metrics(client)
    check_metrics(after, expected, model=model, engines=engines)
    if expected.has_counts:
        check_counter_deltas(before, after, [transcript for _, transcript in transcripts])
    for kind in PATHS:
        body = streaming_body(kind, model, prompts[0], 8, stream=False, stream_options=None, return_token_ids=False)
        check_answer(client.post(PATHS[kind], json=body).text, kind)
    check_refusals(client, model, limit, speculative=expected.k > 0)


def settled_metrics(client: httpx.Client) -> str:
    """The metrics page once the counters rest: a real server's lag behind its last chunk."""
    deadline, previous = time.monotonic() + 5.0, -1.0
    while True:
        text = client.get("/metrics").text
        generated = total_of(text, "vllm:generation_tokens_total")
        if generated == previous or time.monotonic() > deadline:
            return text
        previous = generated
        time.sleep(0.1)


def check_refusals(client: httpx.Client, model: str, limit: int, *, speculative: bool) -> None:
    tokens = limit + 976
    for case in ERRORS:
        if case.name == "min_p + spec" and not speculative:
            continue
        body = {"model": model, **case.body}
        body |= {"prompt": [5] * tokens} if body.get("prompt") == "TOO LONG" else {}
        body |= {"max_tokens": tokens} if body.get("max_tokens") == "TOO MANY" else {}
        answer = client.post(case.path, json=body)
        check_error(case, answer.status_code, answer.text, model=model, limit=limit, tokens=tokens)
    answer = client.post(PATHS["chat"], content=b"{bad", headers={"content-type": "application/json"})
    check_bad_json(answer.status_code, answer.text)
    unknown, wrong_method = client.get("/nope"), client.get(PATHS["chat"])
    assert (unknown.status_code, unknown.text) == (404, '{"detail":"Not Found"}')
    assert (wrong_method.status_code, wrong_method.text) == (405, '{"detail":"Method Not Allowed"}')
