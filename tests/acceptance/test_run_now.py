"""`specwatch run now`: what is asked for is made by the running `serve`, judged, and told to who waits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from monitor.cli import run_now
from tests.acceptance.processes import eventually
from tests.acceptance.stored import count, jobs, rows, runs

if TYPE_CHECKING:
    from monitor.sim import SimulatedServer
    from monitor.store.database import Database
    from tests.acceptance.processes import Home

pytestmark = pytest.mark.timeout(180)


def test_a_run_that_is_asked_for_is_made_judged_and_told(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(domains=["coding", "math"], baseline={"approve_after": 1})
    serve = home.serve()
    eventually(lambda: count(database, "baselines") == 2, "there are baselines")
    asked = home.run("run", "now", "chat-0", "--domain", "coding", "--wait")
    assert (asked.returncode, asked.stderr) == (0, "")
    queued, line = asked.stdout.splitlines()
    assert queued == f"queued chat-0 · coding on {home.urls[0]}"
    assert re.fullmatch(
        r"run 3  chat-0 · coding  AL \d\.\d\d by request  14/14  [+-]?\d+\.\d% vs baseline \d  asked  (ok|tripped)",
        line,
    )
    assert rows(database, "SELECT reason, domain, valid FROM runs WHERE id = 3") == [("asked", "coding", True)]
    assert rows(database, "SELECT count(*) FROM verdicts WHERE run_id = 3") == [(1,)]

    asked = home.run("run", "now", "chat-0")
    assert asked.returncode == 0
    assert asked.stdout.splitlines() == [
        f"queued chat-0 · coding on {home.urls[0]}",
        f"queued chat-0 · math on {home.urls[0]}",
        "the running 'specwatch serve' makes them; 'specwatch runs --route chat-0' shows them",
    ]
    eventually(lambda: len(runs(database)) == 5 and not jobs(database), "they are made")
    serve.stop()


def test_a_server_that_cannot_be_measured_is_13(home: Home, database: Database) -> None:
    home.routes("http://127.0.0.1:1")
    home.serve()
    eventually(lambda: runs(database), "the first run is stored")
    asked = home.run("run", "now", "chat-0", "--wait")
    assert asked.returncode == 13
    assert "run 2  chat-0 · coding  AL –  0/14  asked  unreachable: http://127.0.0.1:1/v1/models" in asked.stdout


def test_without_a_serve_the_probes_stay_queued_and_it_says_so(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    asked = home.run("run", "now", "chat-0")
    assert asked.returncode == 0
    assert asked.stderr == "no running 'specwatch serve' works on this store: start one, and it makes them\n"
    assert [status for _, status in jobs(database)] == ["todo"]
    home.serve()
    eventually(lambda: len(runs(database)) == 2, "the one asked for is made beside the one that was due")


def test_waiting_without_a_serve_is_13(home: Home, simulator: SimulatedServer, database: Database) -> None:
    asked = home.run("run", "now", "chat-0", "--wait", timeout=run_now.NOBODY_SECONDS + 30)
    assert asked.returncode == 13
    assert asked.stderr.endswith("no 'specwatch serve' took 1 probe within 30 s; what is queued stays\n")
    assert [status for _, status in jobs(database)] == ["todo"]


def test_what_takes_too_long_is_4(home: Home, simulator: SimulatedServer, database: Database) -> None:
    simulator.behave(latency_seconds=60)
    home.serve()
    asked = home.run("run", "now", "chat-0", "--wait", "--timeout", "1")
    assert asked.returncode == 4
    assert asked.stderr.endswith("1 probe not recorded within 1 s; what is queued stays\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "there is no route nowhere in "),
        (("chat-0", "--domain", "cooking"), "cooking is not a domain of chat-0; there are: coding"),
        (("chat-0", "--replica", "http://b"), "http://b is not a replica of chat-0; there are: http://127.0.0.1:"),
    ],
)
def test_what_is_not_configured_is_refused_with_what_is(
    home: Home, simulator: SimulatedServer, database: Database, arguments: tuple[str, ...], said: str
) -> None:
    asked = home.run("run", "now", *arguments)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert said in asked.stderr
    assert jobs(database) == []


def test_a_serve_that_does_not_know_the_domain_makes_no_run_and_who_waits_is_told(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    serve = home.serve()
    eventually(lambda: runs(database), "the first run is stored")
    home.routes(domains=["coding", "math"])
    asked = home.run("run", "now", "chat-0", "--domain", "math", "--wait")
    assert asked.returncode == 13
    assert "chat-0 · math: no run was made: the 'serve' that took it does not have it" in asked.stderr
    serve.stop()
