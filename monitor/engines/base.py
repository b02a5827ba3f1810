"""What probing asks of an engine, and the values it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.core.records import Identity, Sampling
    from monitor.engines.counters import Counters
    from monitor.errors import TargetError


@dataclass(frozen=True)
class RequestCounts:
    """Verification counts that the server reports for one request, in our words; None where it does not say.

    `decode_steps`: those without a draft included; None where it follows from the chunks.
    """

    steps: int
    accepted: int
    drafted: int | None = None
    histogram: tuple[int, ...] = ()
    k: int | None = None
    decode_steps: int | None = None


class DraftTotals(NamedTuple):
    """Tokens generated, drafted and accepted from the beginning of an answer until now."""

    tokens: int
    drafted: int
    accepted: int


@dataclass(frozen=True)
class Chunk:
    """What one event of a stream says; None where it does not say.

    `token_ids` are those of this chunk alone, `tokens` only their number; `completion_tokens` counts from the beginning
    of the answer, as do `draft_totals`.
    `stopped_by_text`: the answer ended at a stop string, not at a token. `after_the_answer`: it holds only totals.
    """

    text: str = ""
    after_the_answer: bool = False
    token_ids: tuple[int, ...] | None = None
    tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    finish_reason: str | None = None
    stopped_by_text: bool = False
    fingerprint: str | None = None
    request_counts: RequestCounts | None = None
    draft_totals: DraftTotals | None = None

    @property
    def bears_tokens(self) -> bool:
        """Whether the answer has begun; gateways send an empty chunk long before."""
        return bool(self.text or self.token_ids or self.completion_tokens)


@dataclass(frozen=True)
class Load:
    """What the replica says about its load now; None where it does not say. `started_at` is seconds since the epoch."""

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    preemptions: float | None = None
    started_at: float | None = None


@dataclass(frozen=True)
class Glance:
    """What one look at the replica's metrics page shows of one moment.

    `counters`: or why they cannot be had. `speculates` is None where it does not show whether speculation is on; some
    servers show it only after their first draft.
    """

    counters: Counters | TargetError
    load: Load = field(default_factory=Load)
    speculates: bool | None = None


@dataclass(frozen=True)
class Observation:
    """What the replica shows of itself. `model` is the name to put into requests; `glance` is of the end of the look.

    `notes`: what a reader of any figure from this replica must know, each as one sentence; `cold_notes`: the same, of
    cold runs alone.
    """

    model: str
    identity: Identity
    glance: Glance
    notes: tuple[str, ...] = ()
    cold_notes: tuple[str, ...] = ()


class Replica(Protocol):
    """The way to one replica, or to one data-parallel rank of it. Both methods raise TargetError."""

    @property
    def url(self) -> str: ...

    @property
    def data_parallel_rank(self) -> int | None: ...

    async def get_json(self, path: str) -> Any: ...

    async def get_text(self, path: str) -> str: ...


class Engine(Protocol):
    """What one kind of server exposes, and how it is asked.

    `chunks_are_steps`: whether the tokens of a chunk are those of one step. False: tokens are streamed one by one, and
    a chunk shows nothing of speculation. None: the answers must show.
    """

    @property
    def chunks_are_steps(self) -> bool | None: ...

    async def is_here(self, replica: Replica, owner: str | None) -> bool:
        """Whether the server shows that it is this engine; `owner` is who owns its models. Never raises TargetError."""

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """Identity and a glance. `model` None: the only one served. Raises TargetError when nothing can be measured."""

    async def glance(self, replica: Replica, model: str | None) -> Glance:
        """Load and counters of `model` (None: of the only one) now. Never raises TargetError."""

    def path(self, sampling: Sampling) -> str:
        """Where requests go."""

    def body(
        self, model: str, conversation: Sequence[tuple[str, str]], sampling: Sampling, salt: str | None
    ) -> dict[str, Any]:
        """The request for the next answer in a conversation of (role, text); `salt` keeps caches apart."""

    def read(self, event: bytes, url: str) -> Chunk:
        """One event of the answer. Raises TargetError when it is not a chunk or reports an error."""

    def counts_advice(self, version: str | None) -> str:
        """How to make this server report counts for each request."""
