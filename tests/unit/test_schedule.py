"""Slots: every process computes the same ones, each instant has one, and load is spread."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.schedule import EPOCH, current_slot, offset, replica_index

EVERY = timedelta(minutes=40)
DOMAINS = ("coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem", "writing")

names = st.text(min_size=1, max_size=20)
periods = st.timedeltas(timedelta(seconds=1), timedelta(days=2))
instants = st.datetimes(datetime(2020, 1, 3), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def test_an_offset_is_a_fixed_function_of_the_names() -> None:
    assert offset("chat-prod", "coding", EVERY) == timedelta(seconds=1357.792225)
    assert offset("chat-prod", "math", EVERY) == timedelta(seconds=25.996278)


def test_names_that_run_together_alike_have_slots_of_their_own() -> None:
    assert offset("chat-a", "b", EVERY) != offset("chat-", "ab", EVERY)


@given(names, names, periods)
def test_an_offset_lies_within_the_period(route: str, domain: str, every: timedelta) -> None:
    assert timedelta() <= offset(route, domain, every) <= every


@given(names, names, periods, instants)
def test_every_instant_has_exactly_one_current_slot(route: str, domain: str, every: timedelta, now: datetime) -> None:
    slot = current_slot(route, domain, every, now)
    assert slot <= now < slot + every
    assert (slot - EPOCH - offset(route, domain, every)) % every == timedelta()


@given(names, names, periods, instants)
def test_a_slot_stays_current_from_its_start_until_the_next(
    route: str, domain: str, every: timedelta, now: datetime
) -> None:
    slot = current_slot(route, domain, every, now)
    last_moment = slot + every - timedelta(microseconds=1)
    assert current_slot(route, domain, every, slot) == slot
    assert current_slot(route, domain, every, last_moment) == slot
    assert current_slot(route, domain, every, slot + every) == slot + every


def test_slots_of_one_route_are_spread_over_the_period() -> None:
    places = sorted(offset("chat-prod", domain, EVERY) / EVERY for domain in DOMAINS)
    assert len(set(places)) == len(DOMAINS)
    assert places[0] < 0.25
    assert places[-1] > 0.75


def test_slots_of_many_routes_load_every_tenth_of_the_period_alike() -> None:
    tenths = [0] * 10
    for number in range(200):
        for domain in DOMAINS:
            tenths[int(offset(f"route-{number}", domain, EVERY) / EVERY * 10)] += 1
    assert min(tenths) > 150
    assert max(tenths) < 250


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_every_domain_visits_every_replica_in_turn(replicas: int) -> None:
    first = current_slot("chat-prod", "coding", EVERY, datetime(2026, 3, 2, tzinfo=UTC))
    visited = [replica_index(first + EVERY * number, EVERY, 0, replicas) for number in range(2 * replicas)]
    assert sorted(visited[:replicas]) == list(range(replicas))
    assert visited[:replicas] == visited[replicas:]


def test_in_one_period_the_domains_of_a_route_are_shared_out_among_its_replicas() -> None:
    end = EPOCH + EVERY * 1000
    slots = [current_slot("chat-prod", domain, EVERY, end - timedelta(microseconds=1)) for domain in DOMAINS]
    visited = [replica_index(slot, EVERY, position, 2) for position, slot in enumerate(slots)]
    assert visited.count(0) == visited.count(1) == 5
