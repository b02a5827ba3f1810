"""Several `serve` on one database: one schedules, all probe, and another takes over from a dead one."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import eventually
from tests.acceptance.stored import jobs, runs

if TYPE_CHECKING:
    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home, Serve

pytestmark = pytest.mark.timeout(180)

LEADS = "this process schedules"
EVERY = timedelta(seconds=2)


def three_slots(database: Database, route: str) -> list[datetime]:
    """Times of the slots of a route, of keys `slot ROUTE DOMAIN TIME`, in order; empty before there are three."""
    keys = {key for key, _ in jobs(database)} | {key for key, _ in runs(database)}
    slots = sorted(datetime.fromisoformat(key.split()[3]) for key in keys if key.split()[1] == route)
    return slots if len(slots) >= 3 else []


def leader_and_other(first: Serve, second: Serve) -> tuple[Serve, Serve]:
    eventually(lambda: LEADS in first.log() or LEADS in second.log(), "one of them schedules")
    return (first, second) if LEADS in first.log() else (second, first)


def test_two_processes_make_each_slot_once_and_one_takes_over_from_the_other(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    url = home.urls[0]
    home.routes(url, url.replace("127.0.0.1", "localhost"), every="2s")
    processes = [home.serve("--workers", "1", name=name) for name in ("first", "second")]
    leader, other = leader_and_other(*processes)
    eventually(lambda: all(serve.counter("runs_total") for serve in processes), "both make runs")
    assert LEADS not in other.log()
    for route in ("chat-0", "chat-1"):
        slots = eventually(partial(three_slots, database, route), f"three slots of {route}")
        steps = {after - before for before, after in pairwise(slots)}
        assert all(step % EVERY == timedelta() for step in steps)
        # On a slow machine a slot is left out while the one before it waits: never without a word.
        assert steps == {EVERY} or f"{route} · coding: a slot is left out" in leader.log()

    leader.kill()
    killed_at = time.monotonic()
    eventually(lambda: LEADS in other.log(), "the other schedules")
    # 1 to 2 s on a machine with nothing else to do: the lock is free when the dead one's connection is.
    assert time.monotonic() - killed_at < 10
    before = len(runs(database))
    eventually(lambda: len(runs(database)) > before + 2, "probes go on")
    other.stop()
    made, queued = [key for key, _ in runs(database)], jobs(database)
    assert len(made) == len(set(made))
    assert {key for key, status in queued if status == "todo"}.isdisjoint(made)
