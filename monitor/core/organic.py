"""What a replica did for everybody: organic acceptance and load, added up from its counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

SOURCE = "organic"
"""Named with every organic figure: the server's counters over all its traffic, never compared with probes."""

WINDOW = timedelta(hours=1)
"""Of everybody's requests up to the end of a run, at most; held against those while the baseline was measured."""


@dataclass(frozen=True)
class Organic:
    """One replica between two times.

    Counts are what its counters moved by, over all traffic, probes included. `reads` and `failures`: looks that worked
    and that did not; `resets`: looks whose counters did not follow from the ones before, which count for nothing.
    `running_mean`, the maxima and `server_started_at` come from the looks; None where the page does not show them.
    """

    route: str
    replica: str
    began_at: datetime
    ended_at: datetime
    reads: int = 0
    failures: int = 0
    resets: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: tuple[int, ...] = ()
    generated_tokens: int = 0
    prompt_tokens: int = 0
    preemptions: int = 0
    running_mean: float | None = None
    running_max: float | None = None
    waiting_max: float | None = None
    kv_cache_usage_max: float | None = None
    server_started_at: float | None = None
    last_failure: str | None = None

    @property
    def window(self) -> tuple[str, str, datetime]:
        """The same in every version of a row that grows."""
        return self.route, self.replica, self.began_at


def added_counts(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Position by position; the shorter one is taken to go on with zeros, as when K has changed."""
    size = max(len(one), len(other))
    padded = [counts + (0,) * (size - len(counts)) for counts in (one, other)]
    return tuple(a + b for a, b in zip(*padded, strict=True))


def highest(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None
