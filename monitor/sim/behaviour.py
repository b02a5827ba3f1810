"""How a simulated server misbehaves: lasting behaviour, and faults that strike the next requests."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


@dataclass(frozen=True)
class Behaviour:
    """What holds for every request until it is changed; the default is a healthy server that never waits.

    One engine step takes `step_time_seconds`, plus `draft_time_seconds` per drafted position, plus
    `token_time_seconds` per token verified in the batch (running requests × (K + 1)): the last makes speculation stop
    paying at large batches. All zero: as fast as possible. `latency_seconds` comes before the first token,
    `merge_probability` is the chance that a step's tokens wait for the next chunk, `stream_interval` the fewest
    tokens a chunk carries between the first and the last. `waiting` replaces the number of waiting requests shown.
    `divide_positions`: the page shows accepted tokens per position divided by the number of data-parallel engines, as
    an exporter did that kept the last engine's in place of their sum.
    """

    step_time_seconds: float = 0.0
    draft_time_seconds: float = 0.0
    token_time_seconds: float = 0.0
    latency_seconds: float = 0.0
    merge_probability: float = 0.0
    stream_interval: int = 1
    keep_alive_comments: bool = False
    omit_request_counts: bool = False
    omit_spec_metrics: bool = False
    divide_positions: bool = False
    waiting: int | None = None
    engine_dead: bool = False
    not_vllm: bool = False

    def step_seconds(self, running: int, k: int) -> float:
        """Duration of one engine step with `running` requests at draft length `k`."""
        return self.step_time_seconds + self.draft_time_seconds * k + self.token_time_seconds * running * (k + 1)


class FaultKind(enum.StrEnum):
    """What a fault does to the request it strikes."""

    REJECT = "reject"
    """Answer with `status` (429 and 503 with Retry-After when `retry_after_seconds` is given)."""
    ERROR_IN_STREAM = "error_in_stream"
    """An error object inside the 200 stream, then `[DONE]`: what a dead engine looks like."""
    CUT = "cut"
    """The connection ends in the middle of a chunk."""
    HANG = "hang"
    """Nothing more is sent and the connection stays open: what SIGTERM to a real server looks like."""
    ABORT = "abort"
    """The answer ends in good order with finish reason `abort` and no counts: what else SIGTERM looks like."""
    INVALID_JSON = "invalid_json"
    """One chunk is not JSON."""
    NO_USAGE = "no_usage"
    """The stream ends without its usage chunk."""


@dataclass(frozen=True)
class Fault:
    """Strikes the next `times` generation requests (None: all until cleared), `after_chunks` chunks into the stream."""

    kind: FaultKind
    times: int | None = 1
    after_chunks: int = 3
    status: int = 503
    retry_after_seconds: float | None = None


class ArmedFaults:
    """Faults waiting for requests, first come first served; safe to arm from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Fault] = []

    def arm(self, fault: Fault) -> None:
        with self._lock:
            self._armed.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._armed.clear()

    def strike(self) -> Fault | None:
        """The fault of the request that asks, or None; a used-up fault is gone."""
        with self._lock:
            if not self._armed:
                return None
            fault = self._armed[0]
            if fault.times is not None:
                self._armed[:1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
            return fault


def from_json(kind: type[T], document: Mapping[str, Any]) -> T:
    """A behaviour, fault or drafter from its JSON; UsageError names the key that is not known and those that are."""
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    for key in document:
        if key not in known:
            raise UsageError(f"{kind.__name__.lower()} has no {key!r}; known are {', '.join(sorted(known))}")
    try:
        return kind(**document)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{kind.__name__.lower()}: {error}") from error
