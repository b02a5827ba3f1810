"""The counters of a server, series by series, and what they moved by between two looks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from monitor.engines.failures import failure
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Counter(StrEnum):
    """What is counted; all of them only ever rise while a server runs."""

    STEPS = "steps"
    DRAFTED = "drafted"
    ACCEPTED = "accepted"
    ACCEPTED_AT = "accepted at a position"
    GENERATED = "generated tokens"
    PROMPT = "prompt tokens"
    PREEMPTIONS = "preemptions"


class Series(NamedTuple):
    """One line of the page: what it counts, at which draft position if at one, and its other labels."""

    counter: Counter
    position: int | None
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Counters:
    """One look at a server's counters. `started_at`: seconds since the epoch, None where the page does not tell.

    `lazy`: a series comes into being with its first count, so that one which is not there stands at 0.
    """

    series: Mapping[Series, float]
    started_at: float | None = None
    lazy: bool = False


def counters_or_why(read: Callable[[], Counters]) -> Counters | TargetError:
    """What `read` gives, or the TargetError that it raises."""
    try:
        return read()
    except TargetError as error:
        return error


@dataclass(frozen=True)
class Change:
    """What the counters moved by, summed over engines; `accepted_at[i]`: steps that accepted more than i tokens.

    `drafted` is None, and `accepted_at` empty, where the server does not count them.
    """

    steps: int
    drafted: int | None
    accepted: int
    accepted_at: tuple[int, ...]
    generated_tokens: int
    prompt_tokens: int
    preemptions: int

    @property
    def histogram(self) -> tuple[int, ...]:
        """Steps by accepted count; empty without positions."""
        if not self.accepted_at:
            return ()
        reached = (self.steps, *self.accepted_at, 0)
        return tuple(here - beyond for here, beyond in pairwise(reached))

    def contradiction(self) -> str | None:
        """Why the change cannot be true, or None: AL = 1 + Σ survival must hold, and survival cannot rise."""
        if self.accepted and not self.steps:
            return f"{self.accepted} tokens were accepted in no step"
        if self.accepted_at and sum(self.accepted_at) != self.accepted:
            return (
                f"{self.accepted} tokens were accepted, but the positions add up to {sum(self.accepted_at)}, so AL is "
                "not 1 + Σ survival; counters by position are known to be wrong under data parallelism where one "
                "engine's stand for all"
            )
        if any(count < 0 for count in self.histogram):
            return f"of {self.steps} steps {list(self.accepted_at)} reached each position, which cannot rise"
        if self.drafted is not None and self.accepted > self.drafted:
            return f"{self.accepted} tokens were accepted of {self.drafted} drafted"
        return None


def difference(before: Counters, after: Counters, url: str) -> Change:
    """What was counted from `before` to `after`, two looks at `url`.

    Raises TargetError when they are not the same server's, or not of one life of it: `counters_reset` when it may have
    been restarted, `load_balancer` when the looks met different servers.
    """
    if fault := _other_start(before, after, url) or _other_series(before, after, url) or _decrease(before, after, url):
        raise fault
    moved: dict[tuple[Counter, int | None], float] = {}
    for series, value in after.series.items():
        key = (series.counter, series.position)
        moved[key] = moved.get(key, 0.0) + value - before.series.get(series, 0.0)
    without_drafted = not after.lazy and not any(series.counter is Counter.DRAFTED for series in after.series)
    positions = 1 + max((position for _, position in moved if position is not None), default=-1)
    return Change(
        steps=round(moved.get((Counter.STEPS, None), 0)),
        drafted=None if without_drafted else round(moved.get((Counter.DRAFTED, None), 0)),
        accepted=round(moved.get((Counter.ACCEPTED, None), 0)),
        accepted_at=tuple(round(moved.get((Counter.ACCEPTED_AT, i), 0)) for i in range(positions)),
        generated_tokens=round(moved.get((Counter.GENERATED, None), 0)),
        prompt_tokens=round(moved.get((Counter.PROMPT, None), 0)),
        preemptions=round(moved.get((Counter.PREEMPTIONS, None), 0)),
    )


def _other_start(before: Counters, after: Counters, url: str) -> TargetError | None:
    if before.started_at is None or after.started_at is None or before.started_at == after.started_at:
        return None
    if after.started_at < before.started_at:
        seconds = before.started_at - after.started_at
        return failure("load_balancer", url, f"the second look met a server started {seconds:.0f} s before the first's")
    return failure("counters_reset", url, "the server's start time changed between two looks at its counters")


def _other_series(before: Counters, after: Counters, url: str) -> TargetError | None:
    gone, new = before.series.keys() - after.series.keys(), after.series.keys() - before.series.keys()
    if after.lazy and before.lazy:
        return (
            failure("counters_reset", url, f"{_shown(min(gone, key=str))} is gone from the counters") if gone else None
        )
    if not gone and not new:
        return None
    what = f"{_shown(min(gone, key=str))} is gone" if gone else f"{_shown(min(new, key=str))} is new"
    return failure("load_balancer", url, f"two looks at the counters show different engines: {what}")


def _decrease(before: Counters, after: Counters, url: str) -> TargetError | None:
    for series, value in before.series.items():
        if after.series[series] < value:
            fell = f"fell from {value:.0f} to {after.series[series]:.0f}"
            return failure("counters_reset", url, f"{_shown(series)} {fell}")
    return None


def _shown(series: Series) -> str:
    labels = dict(series.labels)
    where = [] if series.position is None else [f"position {series.position}"]
    where += [f"{name} {labels[name]}" for name in ("engine", "ReplicaId", "WorkerId", "model_name") if name in labels]
    return f"{series.counter} ({', '.join(where)})" if where else str(series.counter)
