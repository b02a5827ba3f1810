"""When a dead-man's switch is called: while probes run on time and messages leave."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitor.core.heartbeat import Probed, Waiting, why_not_beating
from tests.factories import START

EVERY, MINUTE, SECOND = timedelta(minutes=40), timedelta(minutes=1), timedelta(seconds=1)
NOW = START + timedelta(days=1)


def probed(ago: timedelta | None) -> Probed:
    return Probed("chat-prod", "coding", EVERY, None if ago is None else NOW - ago)


def test_all_is_well_while_every_domain_was_probed_and_nothing_waits() -> None:
    assert why_not_beating([probed(EVERY), probed(2 * EVERY)], None, START, NOW) is None


def test_a_domain_that_was_not_probed_for_two_periods_is_named_with_its_last_run() -> None:
    found = why_not_beating([probed(EVERY), probed(2 * EVERY + SECOND)], None, START, NOW)
    assert found == "chat-prod · coding: no run has finished since 2026-03-03 08:39:59+00:00"


@pytest.mark.parametrize(("watched", "well"), [(2 * EVERY, True), (2 * EVERY + SECOND, False)])
def test_what_was_due_before_anybody_watched_is_held_against_nobody(watched: timedelta, well: bool) -> None:
    for last in (None, timedelta(hours=20)):
        assert (why_not_beating([probed(last)], None, NOW - watched, NOW) is None) is well


@pytest.mark.parametrize(("waits", "well"), [(5 * MINUTE, True), (5 * MINUTE + SECOND, False)])
def test_a_message_may_wait_for_five_minutes(waits: timedelta, well: bool) -> None:
    found = why_not_beating([probed(EVERY)], Waiting("hook", NOW - waits), START, NOW)
    assert found == (None if well else "hook: a message waits since 2026-03-03 09:54:59+00:00")
