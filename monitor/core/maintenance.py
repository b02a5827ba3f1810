"""When a maintenance window is open. Pure: a window is wall-clock time in its zone, its length is elapsed time.

A beginning that the zone skips is at the next instant there is; of one that the zone has twice, the first counts.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

EVERY_DAY = frozenset(range(7))
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Opening:
    """One time that a window is open; both in UTC, the end not included."""

    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class Schedule:
    """`at` that time of the weekdays (Monday is 0), or `once`, a date and time without a zone. One of them."""

    zone: ZoneInfo
    lasts: timedelta
    at: time | None = None
    weekdays: frozenset[int] = EVERY_DAY
    once: datetime | None = None

    def open_at(self, now: datetime) -> Opening | None:
        """The opening that `now` is in."""
        return next((one for one in self._around(now) if one.begins_at <= now < one.ends_at), None)

    def next_after(self, now: datetime) -> Opening | None:
        """The first opening that has not begun; None when there will be none."""
        return next((one for one in self._around(now) if one.begins_at > now), None)

    def _around(self, now: datetime) -> Iterator[Opening]:
        """In their order, every opening that holds now, and one at least that is to come."""
        if self.once is not None:
            yield self._opening(self.once)
        if self.at is None:
            return
        today = now.astimezone(self.zone).date()
        for days in range(-(self.lasts // _DAY) - 1, 9):
            date = today + days * _DAY
            if date.weekday() in self.weekdays:
                yield self._opening(datetime.combine(date, self.at))

    def _opening(self, local: datetime) -> Opening:
        begins_at = instant(local, self.zone)
        return Opening(begins_at, begins_at + self.lasts)


def shortest_gap(weekdays: frozenset[int]) -> timedelta:
    """From one of these weekdays to the next, by the calendar; a week where there is one only."""
    days = sorted(weekdays)
    following = [*days[1:], days[0] + 7]
    return min(after - before for before, after in zip(days, following, strict=True)) * _DAY


def instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The UTC instant at which clocks in the zone show `local`, which has no zone of its own."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first <= second:
        return first
    # Clocks skip it: read by the offset of before (fold 0) it lies behind the change, by that of after, ahead of it.
    after = first.astimezone(zone).utcoffset()
    seconds = range((first - second) // _SECOND)
    skipped = bisect_left(seconds, True, key=lambda s: (second + s * _SECOND).astimezone(zone).utcoffset() == after)
    return second + skipped * _SECOND
