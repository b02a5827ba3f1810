"""When a maintenance window is open, also where clocks are changed, and what a schedule may not be."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from monitor.config.maintenance import Maintenance, parse_moment
from monitor.core.maintenance import Opening, Schedule, instant

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
TUESDAY, THURSDAY = 1, 3


def utc(day: int, hour: int, minute: int = 0, month: int = 12) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def window(**changes: Any) -> Maintenance:
    return Maintenance.model_validate({"name": "w", "reason": "rollout", "at": "22:00", "lasts": "2h", **changes})


def test_a_window_is_open_from_its_beginning_until_before_its_end() -> None:
    schedule = Schedule(ZoneInfo("UTC"), 2 * HOUR, at=time(22))
    opening = Opening(utc(3, 22), utc(4, 0))
    assert [schedule.open_at(now) for now in (utc(3, 21, 59), utc(3, 22), utc(3, 23, 59), utc(4, 0))] == [
        None, opening, opening, None,
    ]  # fmt: skip
    assert schedule.next_after(utc(3, 21, 59)) == opening
    assert schedule.next_after(utc(3, 22)) == Opening(utc(4, 22), utc(5, 0))


def test_a_window_that_lasts_into_another_day_is_of_the_day_it_opened() -> None:
    schedule = Schedule(BERLIN, 30 * HOUR, at=time(22), weekdays=frozenset({TUESDAY}))
    assert schedule.open_at(utc(2, 23)) == Opening(utc(1, 21), utc(3, 3))  # 1 December 2026 is a Tuesday
    assert schedule.open_at(utc(3, 3)) is None
    assert schedule.next_after(utc(1, 21)) == Opening(utc(8, 21), utc(10, 3))


def test_a_window_that_opens_once_is_over_after_it() -> None:
    schedule = Schedule(BERLIN, HOUR, once=parse_moment("2026-12-24 22:00"))
    assert schedule.next_after(utc(3, 0)) == Opening(utc(24, 21), utc(24, 22))
    assert schedule.open_at(utc(24, 21, 30)) == Opening(utc(24, 21), utc(24, 22))
    assert schedule.next_after(utc(24, 21)) is None


def test_a_time_that_clocks_skip_is_the_next_there_is() -> None:
    """In Berlin 2026-03-29 01:59:59 is followed by 03:00."""
    assert instant(parse_moment("2026-03-29 02:30"), BERLIN) == utc(29, 1, month=3)
    assert instant(parse_moment("2026-03-29 03:00"), BERLIN) == utc(29, 1, month=3)
    assert instant(parse_moment("2026-03-29 01:59"), BERLIN) == utc(29, 0, 59, month=3)


def test_a_time_that_comes_twice_is_the_first_and_the_length_is_elapsed_time() -> None:
    """In Berlin 2026-10-25 02:30 is at 00:30 and at 01:30 UTC."""
    schedule = Schedule(BERLIN, 2 * HOUR, at=time(2, 30))
    assert schedule.open_at(utc(25, 1, 30, month=10)) == Opening(utc(25, 0, 30, month=10), utc(25, 2, 30, month=10))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"at": 1320}, 'in quotes, for example "22:00"'),
        ({"at": "25:00"}, "is not a time of day"),
        ({"at": None}, "exactly one of at and once"),
        ({"once": "2026-12-24 22:00"}, "exactly one of at and once"),
        ({"at": None, "once": "tomorrow"}, "is not a date and time"),
        ({"at": None, "once": "2026-12-24T22:00:00+01:00"}, "is not a date and time"),
        ({"at": None, "once": "2026-12-24 22:00", "weekdays": ["thu"]}, "weekdays are of a window with at"),
        ({"lasts": "24h"}, "until it opens again"),
        ({"lasts": "48h", "weekdays": ["tue", "thu"]}, "until it opens again"),
        ({"lasts": "31d", "at": None, "once": "2026-12-24 22:00"}, "more than 30 days"),
        ({"timezone": "Berlin"}, "there is no time zone 'Berlin'"),
        ({"timezone": "../etc"}, "there is no time zone"),
        ({"weekdays": []}, "weekdays"),
        ({"weekdays": ["tuesday"]}, "weekdays"),
    ],
)
def test_what_is_no_window_is_refused_and_says_why(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told.replace("(", r"\(")):
        window(**changes)


def test_a_window_reads_its_schedule() -> None:
    schedule = window(weekdays=["tue", "thu"], timezone="Europe/Berlin").schedule
    assert schedule == Schedule(BERLIN, 2 * HOUR, time(22), frozenset({TUESDAY, THURSDAY}))
    assert window().schedule.weekdays == frozenset(range(7))
