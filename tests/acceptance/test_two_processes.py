"""Several `serve` on one database: one schedules, all probe, and another takes over from a dead one."""

from __future__ import annotations

import itertools
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import eventually
from tests.acceptance.stored import count, jobs, runs

if TYPE_CHECKING:
    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home, Serve

pytestmark = pytest.mark.timeout(180)

LEADS = "this process schedules"


def slots_of(keys: list[str], domain: str) -> list[datetime]:
    """Times of the slots of a domain, from keys `slot ROUTE DOMAIN TIME`."""
    return sorted(datetime.fromisoformat(key.split()[3]) for key in keys if key.split()[2] == domain)


def leader_and_other(first: Serve, second: Serve) -> tuple[Serve, Serve]:
    eventually(lambda: LEADS in first.log() or LEADS in second.log(), "one of them schedules")
    return (first, second) if LEADS in first.log() else (second, first)


def test_two_processes_make_each_slot_once_and_one_takes_over_from_the_other(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(domains=["coding", "math"], every="2s")
    leader, other = leader_and_other(home.serve(name="first"), home.serve(name="second"))
    eventually(lambda: len(runs(database)) >= 8, "slots are probed")
    assert LEADS not in other.log()
    made = [key for key, _ in runs(database)] + [key for key, _ in jobs(database)]
    for domain in ("coding", "math"):
        slots = slots_of(list(set(made)), domain)
        assert {after - before for before, after in itertools.pairwise(slots)} == {timedelta(seconds=2)}

    leader.kill()
    killed_at = time.monotonic()
    eventually(lambda: LEADS in other.log(), "the other schedules")
    # 1 to 2 s on a machine with nothing else to do: the lock is free when the dead one's connection is.
    assert time.monotonic() - killed_at < 10
    before = len(runs(database))
    eventually(lambda: len(runs(database)) > before + 1, "probes go on, the dead one's job among them")
    other.stop()
    keys = [key for key, _ in runs(database)]
    assert len(keys) == len(set(keys))
    assert "doing" not in {status for _, status in jobs(database)}
    assert {key for key, _ in jobs(database)}.isdisjoint(keys)


def test_both_processes_probe(home: Home, simulator: SimulatedServer, database: Database) -> None:
    """With one worker each, two replicas that answer slowly are probed by both."""
    url = home.urls[0]
    home.routes(url, url.replace("127.0.0.1", "localhost"), every="2s")
    simulator.behave(latency_seconds=1)
    first, second = home.serve("--workers", "1", name="first"), home.serve("--workers", "1", name="second")
    eventually(lambda: first.counter("runs_total") >= 1 and second.counter("runs_total") >= 1, "both have probed")
    assert count(database, "procrastinate_workers") == 2
    first.stop()
    second.stop()
    assert count(database, "procrastinate_workers") == 0
