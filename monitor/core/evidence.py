"""What is known around runs that fell, or did not: the values that their explanation is made from. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from monitor.core.cause import LEVEL
from monitor.core.comparison import PromptChange
from monitor.core.organic import SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.outputs import Changes
    from monitor.core.replicas import ReplicaDifference


@dataclass(frozen=True)
class PromptMove(PromptChange):
    """One prompt against its baseline, by the metric that was judged, and what its prompt was like.

    `now`: geometric mean over the verdict's runs that have a value, as it was judged. `prompt_tokens`: in the last of
    them that told; `prompt_tokens_before`: every number that the baseline's runs had; empty where there is none, and
    for prompts of several turns, whose tokens depend on the answers. `cached_tokens`: the fewest of any of them.
    """

    prompt_tokens: int | None = None
    prompt_tokens_before: frozenset[int] = frozenset()
    cached_tokens: int | None = None

    @property
    def log_ratio(self) -> float:
        return math.log(self.now / self.before)


@dataclass(frozen=True)
class Load:
    """What else the server did: requests of others before the run, the most waiting, KV cache use, preemptions."""

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    preemptions: float | None = None


@dataclass(frozen=True)
class PastRun:
    """One valid run of the same route and domain; `change` is None where no baseline judged it."""

    run_id: int
    replica: str
    finished_at: datetime
    acceptance_length: float
    change: float | None = None
    cache: str = "cold"
    load: Load = field(default_factory=Load)
    server_started_at: float | None = None

    @property
    def uptime_seconds(self) -> float | None:
        return None if self.server_started_at is None else self.finished_at.timestamp() - self.server_started_at


@dataclass(frozen=True)
class OrganicMove:
    """Acceptance length of everybody's requests, before the run that was judged and after; steps behind each."""

    before: float
    after: float
    steps_before: int
    steps_after: int

    @property
    def change(self) -> float:
        return self.after / self.before - 1

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of it (docs/json.md)."""
        return {**vars(self), "change": self.change, "source": SOURCE}


@dataclass(frozen=True)
class Evidence:
    """Around the runs of one verdict; what was not looked at or not seen is None or empty.

    `metric`: what `moves` are of. `change`: of the verdict, as a fraction, `change_interval`: its 95 % interval, None
    where it is confirmed; `other_changes`: of other domains' latest runs. `replica`: of the last run.
    `survival`: by position, over all steps of the runs; the baseline's likewise. `identity_changes`: name →
    (baseline's, run's), of fields known on both sides, as the last run that shows a change has it. `outputs`: a prompt
    counts as changed that changed in most of the runs. `recent`: valid runs up to the last one, oldest first, itself
    the last; `run_ids`: those of the verdict. `tokens_per_second`: of one request while it decodes, median over
    prompts, and over the runs; the baseline's, one for each run. `removed_beside`: runs on the replicas at the time
    whose samples are no longer kept, so that how the replicas differed is not known any more.
    """

    metric: str = "acceptance_length"
    change: float | None = None
    change_interval: Sequence[float] | None = None
    other_changes: Mapping[str, float] = field(default_factory=dict)
    replica: str = ""
    source: str = "none"
    survival: tuple[float, ...] = ()
    baseline_survival: tuple[float, ...] = ()
    identity_changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    outputs: Changes | None = None
    replica_difference: ReplicaDifference | None = None
    removed_beside: tuple[int, ...] = ()
    moves: tuple[PromptMove, ...] = ()
    recent: tuple[PastRun, ...] = ()
    run_ids: tuple[int, ...] = ()
    baseline_loads: tuple[Load, ...] = ()
    organic: OrganicMove | None = None
    tokens_per_second: float | None = None
    baseline_tokens_per_second: tuple[float, ...] = ()

    @property
    def first_position_survival(self) -> float | None:
        return self.survival[0] if self.survival else None

    @property
    def moved(self) -> bool:
        """Whether there is something to explain: not a change that is next to none, or that may be noise."""
        if self.change is None:
            return True
        low, high = self.change_interval or (self.change, self.change)
        return abs(self.change) >= LEVEL and not low <= 0 <= high

    @property
    def loads(self) -> tuple[Load, ...]:
        """Of each valid run of the verdict."""
        own = [run for run in self.recent if run.run_id in self.run_ids] or self.recent[-1:]
        return tuple(run.load for run in own)
