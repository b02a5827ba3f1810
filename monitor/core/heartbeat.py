"""Whether the monitor does its work: what a dead-man's switch is to hear of. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

PERIODS_WITHOUT_RUN = 2
"""A run may wait for its turn and take its time: one missed period is no sign yet."""
OUTBOX_YOUNG = timedelta(minutes=5)
"""A message that waits longer has been tried six times or more."""


@dataclass(frozen=True)
class Probed:
    """A domain of a route, its period, and when its latest run, valid or not, finished."""

    route: str
    domain: str
    every: timedelta
    finished_at: datetime | None


@dataclass(frozen=True)
class Waiting:
    """The oldest message that has not arrived, and since when it should have."""

    receiver: str
    since: datetime


def why_not_beating(
    probed: Sequence[Probed], waiting: Waiting | None, watched_since: datetime, now: datetime
) -> str | None:
    """What is wrong, or None while every domain was probed in time and no message is late.

    `watched_since`: what was due before that is not held against anybody. Invalid runs count: the monitor did its work.
    """
    for one in probed:
        last = max(one.finished_at or watched_since, watched_since)
        if now - last > PERIODS_WITHOUT_RUN * one.every:
            return f"{one.route} · {one.domain}: no run has finished since {_clock(last)}"
    if waiting is not None and now - waiting.since > OUTBOX_YOUNG:
        return f"{waiting.receiver}: a message waits since {_clock(waiting.since)}"
    return None


def _clock(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds")
