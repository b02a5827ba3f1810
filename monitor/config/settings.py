"""The settings that `defaults` gives to every route and that a route may override."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, JsonValue, StrictStr, Tag, ValidationInfo, field_validator

from monitor.config.limits import MAX_CONCURRENCY, MAX_GPUS, MAX_K, MAX_PROMPTS, MAX_SEED, MAX_TOKENS, MAX_WAITING
from monitor.config.secrets import Secret, from_directory
from monitor.config.strict import Number, StrictModel, Switch, Text, Whole, WholeOrZero
from monitor.config.units import Duration, Ratio, format_duration
from monitor.core.learning import learns_from_replay

# Tags of union members are in angle brackets so that `load` can leave them out of the path in a message.
TEXT, SECRET = "<text>", "<secret>"
TextOrSecret = Annotated[
    Annotated[Text, Tag(TEXT)] | Annotated[Secret, Tag(SECRET)],
    Discriminator(lambda value: SECRET if isinstance(value, dict | Secret) else TEXT),
]

# What the probe itself puts into the request: a second value would make runs incomparable without a trace.
_SET_BY_PROBE = {
    "cache_prompt": "cache",
    "cache_salt": "cache",
    "chat_template_kwargs": "chat_template_kwargs",
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "messages": None,
    "model": "model",
    "n": None,
    "prompt": None,
    "return_spec_tokens_details": "source",
    "return_token_ids": "source",
    "seed": "seed",
    "stream": None,
    "stream_options": None,
    "temperature": "temperature",
    "timings_per_token": "source",
}
_CREDENTIAL = re.compile(r"authorization|api-?key|token|secret|password|cookie", re.IGNORECASE)
_HEADER_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


def header_name(name: str) -> str:
    """The name itself. Raises ValueError for what HTTP does not allow as the name of a header."""
    if not name or not _HEADER_CHARACTERS.issuperset(name.lower()):
        raise ValueError(f"{name!r} is not the name of an HTTP header")
    return name


def extra_body(keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys themselves. Raises ValueError for one that the probe sets itself, and for what JSON cannot carry."""
    for key in keys:
        if key in _SET_BY_PROBE:
            setting = _SET_BY_PROBE[key]
            raise ValueError(f"{key} is set by the probe" + (f", from the setting {setting}" if setting else ""))
    return _as_json(keys)


def _as_json(value: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("holds a number that JSON cannot carry: nan or infinity") from None
    return value


def _headers(headers: Mapping[str, str | Secret]) -> Mapping[str, str | Secret]:
    for name, value in headers.items():
        header_name(name)
        if isinstance(value, str) and _CREDENTIAL.search(name):
            raise ValueError(f"{name} is a secret; name where it is: {{env: NAME}} or {{file: PATH}}")
        if isinstance(value, str) and not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value of {name} has characters that an HTTP header cannot carry")
    return headers


Headers = Annotated[Mapping[StrictStr, TextOrSecret], AfterValidator(_headers)]


class Timeouts(StrictModel):
    """How long each phase of one request may take before its sample is invalid."""

    connect: Duration = Field(default=timedelta(seconds=5), description="To open the connection, TLS included.")
    first_token: Duration = Field(
        default=timedelta(seconds=60), description="From sending the request to the first token; queueing counts."
    )
    stall: Duration = Field(default=timedelta(seconds=20), description="Between two chunks of a stream.")
    total: Duration = Field(default=timedelta(minutes=5), description="From sending the request to its last byte.")


class StandAside(StrictModel):
    """What a run does while its replica has more waiting requests than `max_waiting`."""

    retry_after: Duration = Field(default=timedelta(seconds=30), description="Pause before looking at the queue again.")
    give_up_after: Duration = Field(
        default=timedelta(minutes=10), description="After this long the run is stored as invalid, reason `busy`."
    )


class DeclaredIdentity(StrictModel):
    """Facts about what is running that the server does not tell, none by default; a change of any is a bump."""

    engine: Text | None = Field(default=None, examples=["vllm"], description="Name of the engine.")
    version: Text | None = Field(default=None, examples=["0.29.1"], description="Version of the engine.")
    target: Text | None = Field(default=None, description="The model that verifies, with its revision if known.")
    drafter: Text | None = Field(default=None, description="Whatever proposes tokens, with its revision if known.")
    method: Text | None = Field(
        default=None,
        examples=["eagle3"],
        description="How drafts are made. `draft_model`, `eagle`, `mtp` and their like draft at every step, `ngram` "
        "and `suffix` only on a match, so that the stream shows no acceptance length of theirs.",
    )
    quantization: Text | None = Field(default=None, examples=["fp8"], description="Quantisation of the target.")
    tensor_parallel: Annotated[Whole, Field(le=MAX_GPUS)] | None = Field(
        default=None, description="GPUs that one copy of the target is spread over."
    )
    k: Annotated[Whole, Field(le=MAX_K)] | None = Field(default=None, description="Draft tokens per verification step.")


class Settings(StrictModel):
    """Everything about replaying prompts that `defaults` may give and a route may override."""

    every: Duration = Field(
        default=timedelta(minutes=40),
        description="Time between two runs of the same domain. More than 40m cannot keep the promise of a page within "
        "the hour.",
    )
    speedup_every: Duration = Field(
        default=timedelta(hours=6),
        description="Time between two measurements of a domain's speedup against `plain_twin`. One asks three to four "
        "times what a run does, of the replica and of the twin. Not less than `every`.",
    )
    confirm_after: tuple[Duration, Duration] = Field(
        default=(timedelta(minutes=5), timedelta(minutes=10)),
        description="When the two confirmation runs start, counted from the run that tripped a rule; the second after "
        "the first. Closer together means more false pages, because a disturbance may still last.",
    )
    max_tokens: Whole = Field(default=128, le=MAX_TOKENS, description="Completion tokens asked of every turn.")
    concurrency: Whole = Field(
        default=4,
        le=MAX_CONCURRENCY,
        description="Prompts in flight on one replica. Runs at another concurrency are not comparable.",
    )
    gpus: Annotated[Whole, Field(le=MAX_GPUS)] | None = Field(
        default=None, examples=[2], description="GPUs of one replica, for figures per GPU and cost. Unset: 1 for cost."
    )
    gpu_price_per_hour: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        examples=[2.5],
        description="What one GPU costs an hour, in your currency: shows what a million tokens and lost speed cost. "
        "Unset: no cost is shown.",
    )
    min_prompts: Whole = Field(
        default=12, le=MAX_PROMPTS, description="A run with fewer valid prompts than this is invalid."
    )
    temperature: Annotated[Number, Field(ge=0, le=2)] = Field(
        default=0.0, description="Sampling temperature; 0 is greedy and makes outputs repeat."
    )
    seed: WholeOrZero = Field(default=0, le=MAX_SEED, description="Sampling seed sent with every request.")
    thinking: Switch | None = Field(
        default=None,
        description="Sent as `chat_template_kwargs: {enable_thinking: …}`. Unset or `null`: not sent, the "
        "model decides.",
    )
    chat_template_kwargs: Mapping[StrictStr, JsonValue] = Field(
        default_factory=dict, description="Sent as it stands with every chat request, `thinking` added. Unset: none."
    )
    extra_body: Mapping[StrictStr, JsonValue] = Field(
        default_factory=dict,
        examples=[{"priority": 10}],
        description="Further keys of the request body, for example `priority` where the server schedules by it (lower "
        "numbers first). Keys that the probe sets itself are refused. Unset: none.",
    )
    endpoint: Literal["chat", "completions"] = Field(
        default="chat",
        description="`chat` replays turns through the chat template; `completions` sends the first turn, as raw text.",
    )
    engine: Literal["vllm", "sglang", "trtllm", "llamacpp", "tgi", "openai"] = Field(
        default="vllm",
        description="What the replicas are; `openai` is any other server with OpenAI's API. It is never guessed, so "
        "that a look that fails cannot change what figures mean.",
    )
    source: Literal["auto", "request", "stream", "counters"] = Field(
        default="auto",
        description="Where counts come from. `auto` takes `request` when the server offers it, otherwise `stream`, or "
        "`counters` where `identity.method` is n-gram or suffix. A named source that the server does not offer makes "
        "the run invalid. `counters` replays one prompt at a time, whatever `concurrency` says.",
    )
    max_contamination: Ratio = Field(
        default=0.01,
        description="With source `counters`: tokens that the server generated for others while it answered a prompt, "
        "as a share of that prompt's own. Above it the sample is invalid.",
    )
    cache: Literal["cold", "warm", "both"] = Field(
        default="cold",
        description="`cold` sends a `cache_salt` of its own with every run, so that no run meets the cache of another; "
        "`warm` sends none. `both` is `cold`, and then the same prompts once more under the same salt: the cold pass "
        "is the run and is judged, the warm one is shown beside it. It asks twice as much, and is refused for a "
        "drafter that learns from replayed prompts.",
    )
    max_waiting: WholeOrZero = Field(
        le=MAX_WAITING, default=0, description="Stand aside while the replica reports more waiting requests than this."
    )
    stand_aside: StandAside = Field(default=StandAside(), description="How standing aside is done.")
    timeouts: Timeouts = Field(default=Timeouts(), description="Limits per phase of one request.")
    headers: Headers = Field(
        default_factory=dict,
        examples=[{"X-Team": "chat"}],
        description="Further HTTP headers, each a text or a secret. `api_key` is sent by itself as a bearer token. "
        "Unset: none.",
    )
    ca_file: Path | None = Field(
        default=None,
        examples=["/etc/ssl/company.pem"],
        description="Certificates (PEM) to trust besides the usual ones. Unset: only those. A relative path starts at "
        "the configuration directory.",
    )
    identity: DeclaredIdentity = Field(
        default=DeclaredIdentity(), description="Declared facts about what is running, beside those observed."
    )

    @field_validator("identity")
    @classmethod
    def _no_warm_pass_where_drafts_are_learnt(cls, value: DeclaredIdentity, info: ValidationInfo) -> DeclaredIdentity:
        if info.data.get("cache") == "both" and learns_from_replay(info.data.get("engine"), value.method):
            raise ValueError(
                f"method {value.method} drafts from answers it has seen, so that a warm pass shows them and not the "
                "cache; use cache: cold instead of cache: both"
            )
        return value

    @field_validator("speedup_every")
    @classmethod
    def _not_more_than_runs(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        every = info.data.get("every")
        if every is not None and value < every:
            raise ValueError(
                f"{format_duration(value)} is less than every {format_duration(every)}; a measurement of speedup asks "
                "for three times what a run does"
            )
        return value

    @field_validator("confirm_after", mode="before")
    @classmethod
    def _exactly_two(cls, value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError("must be a list of exactly two durations; write for example [5m, 10m]")
        return value

    @field_validator("confirm_after")
    @classmethod
    def _ascending(cls, value: tuple[timedelta, timedelta]) -> tuple[timedelta, timedelta]:
        if value[0] >= value[1]:
            shown = ", ".join(map(format_duration, value))
            raise ValueError(f"[{shown}] is not ascending; the second run comes after the first")
        return value

    @field_validator("extra_body")
    @classmethod
    def _only_what_the_probe_does_not_set(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return extra_body(value)

    @field_validator("chat_template_kwargs")
    @classmethod
    def _sendable(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return _as_json(value)

    @field_validator("chat_template_kwargs")
    @classmethod
    def _thinking_has_its_own_key(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if "enable_thinking" in value:
            raise ValueError("enable_thinking has a key of its own; use thinking: true or thinking: false")
        return value

    @field_validator("ca_file")
    @classmethod
    def _from_the_directory(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        return from_directory(path, info)
