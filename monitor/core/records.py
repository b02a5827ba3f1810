"""The values everything else passes around: samples, identities, regimes and runs, as raw as they were measured."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from monitor.core.warm import Warm


class Source(enum.StrEnum):
    """Where counts come from; figures of different sources are never compared."""

    REQUEST = "request"
    STREAM = "stream"
    COUNTERS = "counters"


class Reason(enum.StrEnum):
    """Why a run was made.

    `confirm` also: on another replica beside a confirmation, or to see whether an ill one is well. `speedup`: a replica
    is measured beside its plain twin, which is no run of its own. `gate`: a candidate was measured; it did not serve.
    """

    SCHEDULED = "scheduled"
    CONFIRM = "confirm"
    BUMP = "bump"
    MANUAL = "manual"
    ASKED = "asked"
    SPEEDUP = "speedup"
    GATE = "gate"


@dataclass(frozen=True)
class Counts:
    """Verification counts of one or more requests.

    `steps`: verification steps that had a draft. `drafted` and `accepted`: draft tokens proposed and accepted;
    `drafted` is None where the source cannot see it. `histogram[j]`: steps with exactly j accepted (length K+1, or up
    to the largest seen when K is unknown). `decode_steps`: steps after the prefill, with or without a draft.
    """

    steps: int = 0
    drafted: int | None = 0
    accepted: int = 0
    histogram: tuple[int, ...] = ()
    decode_steps: int = 0

    def __add__(self, other: Counts) -> Counts:
        size = max(len(self.histogram), len(other.histogram))
        pad = [h + (0,) * (size - len(h)) for h in (self.histogram, other.histogram)]
        drafted = None if self.drafted is None or other.drafted is None else self.drafted + other.drafted
        return Counts(
            self.steps + other.steps,
            drafted,
            self.accepted + other.accepted,
            tuple(a + b for a, b in zip(*pad, strict=True)),
            self.decode_steps + other.decode_steps,
        )


@dataclass(frozen=True)
class Sample:
    """One prompt replayed once: raw counts and timings, or the reason it is invalid.

    A prompt of several turns is replayed turn after turn with the model's own answers; counts and tokens are sums over
    turns, `ttft_seconds` is the first turn's, `chunk_tokens` and `chunk_seconds` (time since the request was sent, per
    token-bearing chunk) are one list per turn. `output_ids`, of all turns, are kept in memory only; stored is the hash.
    """

    question_id: str
    source: Source | None = None
    counts: Counts = field(default_factory=Counts)
    k: int | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    completion_tokens: int = 0
    ttft_seconds: float | None = None
    decode_seconds: float | None = None
    decode_tokens: int = 0
    total_seconds: float | None = None
    chunk_tokens: tuple[tuple[int, ...], ...] = ()
    chunk_seconds: tuple[tuple[float, ...], ...] = ()
    loop_lag_seconds: float = 0.0
    finish_reason: str | None = None
    output_hash: str | None = None
    invalid_reason: str | None = None
    invalid_detail: str | None = None
    output_ids: tuple[int, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def valid(self) -> bool:
        return self.invalid_reason is None

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a sample: raw counts and timings (docs/json.md)."""
        return {
            "question_id": self.question_id,
            "source": None if self.source is None else self.source.value,
            "k": self.k,
            "steps": self.counts.steps,
            "drafted": self.counts.drafted,
            "accepted": self.counts.accepted,
            "histogram": list(self.counts.histogram),
            "decode_steps": self.counts.decode_steps,
            "prompt_tokens": self.prompt_tokens,
            "cached_prompt_tokens": self.cached_prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "ttft_seconds": self.ttft_seconds,
            "decode_seconds": self.decode_seconds,
            "decode_tokens": self.decode_tokens,
            "total_seconds": self.total_seconds,
            "chunk_tokens": [list(turn) for turn in self.chunk_tokens],
            "chunk_seconds": [list(turn) for turn in self.chunk_seconds],
            "loop_lag_seconds": self.loop_lag_seconds,
            "finish_reason": self.finish_reason,
            "output_hash": self.output_hash,
            "invalid_reason": self.invalid_reason,
            "invalid_detail": self.invalid_detail,
        }


@dataclass(frozen=True)
class Identity:
    """What was running. A field is None where it was neither observed nor declared.

    Observed: `engine`, `version` (GET /version), `model` and `root` (GET /v1/models), `max_model_len`, `fingerprint`
    (system_fingerprint of a response), `k` (per-request counts or metric positions), `method`, `target`, `drafter`,
    `quantization`, `tensor_parallel` (GET /server_info, dev mode only). Declared values fill what was not observed.
    """

    engine: str | None = None
    version: str | None = None
    model: str | None = None
    root: str | None = None
    max_model_len: int | None = None
    fingerprint: str | None = None
    target: str | None = None
    drafter: str | None = None
    method: str | None = None
    k: int | None = None
    quantization: str | None = None
    tensor_parallel: int | None = None
    declared: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "version": self.version,
            "model": self.model,
            "root": self.root,
            "max_model_len": self.max_model_len,
            "fingerprint": self.fingerprint,
            "target": self.target,
            "drafter": self.drafter,
            "method": self.method,
            "k": self.k,
            "quantization": self.quantization,
            "tensor_parallel": self.tensor_parallel,
            "declared": list(self.declared),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Identity:
        return cls(**{**document, "declared": tuple(document.get("declared") or ())})

    def changes_from(self, previous: Identity) -> dict[str, tuple[Any, Any]]:
        """Fields known on both sides that differ: name → (previous, now). Unknown is not a change."""
        before, now = previous.as_dict(), self.as_dict()
        return {
            name: (before[name], value)
            for name, value in now.items()
            if name != "declared" and value is not None and before[name] is not None and before[name] != value
        }


@dataclass(frozen=True)
class Regime:
    """The load a run was measured at: the replica's gauges before the first request and the highest seen in between."""

    running_before: float | None = None
    waiting_before: float | None = None
    running_max: float | None = None
    waiting_max: float | None = None
    kv_cache_usage_max: float | None = None
    preemptions: float | None = None
    server_started_at: float | None = None


@dataclass(frozen=True)
class Sampling:
    """How tokens were chosen; part of what makes two runs comparable.

    `prompt_keys`: the keys of the request that prompts of the set bring with them, `response_format` or `tools`.
    """

    endpoint: str = "chat"
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int | None = 0
    cache: str = "cold"
    chat_template_kwargs: tuple[tuple[str, Any], ...] = ()
    extra_body: tuple[tuple[str, Any], ...] = ()
    prompt_keys: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Without `prompt_keys` where there are none: runs from before there were any stay comparable."""
        return {
            "endpoint": self.endpoint,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "cache": self.cache,
            "chat_template_kwargs": dict(self.chat_template_kwargs),
            "extra_body": dict(self.extra_body),
            **({"prompt_keys": list(self.prompt_keys)} if self.prompt_keys else {}),
        }


@dataclass(frozen=True)
class Run:
    """One replay of one prompt set on one replica at one concurrency: its samples and what they were measured under.

    `invalid_reason` is None when the run may be judged; otherwise the stable word why not. `acceptance_by_source`:
    pooled AL of the same answers by every source that has it, the run's own among them. Everything is of the cold pass
    where there is a warm one, which is in `warm`.
    """

    route: str
    domain: str
    replica: str
    prompt_set_hash: str
    concurrency: int
    sampling: Sampling
    reason: Reason
    started_at: datetime
    finished_at: datetime
    identity: Identity
    samples: tuple[Sample, ...]
    regime: Regime = field(default_factory=Regime)
    invalid_reason: str | None = None
    invalid_detail: str | None = None
    warnings: tuple[str, ...] = ()
    acceptance_by_source: Mapping[str, float] = field(default_factory=dict)
    warm: Warm | None = None
