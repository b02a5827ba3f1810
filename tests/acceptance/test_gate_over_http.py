"""A gate asked of a real `serve`: measured by its workers, and not lost with the process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from monitor.sim import SimulatedServer
from tests.acceptance.processes import eventually, requests_running
from tests.acceptance.stored import jobs, rows

if TYPE_CHECKING:
    from monitor.store.database import Database
    from tests.acceptance.processes import Home, Serve

pytestmark = pytest.mark.timeout(180)
HEADERS = {"Authorization": "Bearer s3cret", "Idempotency-Key": "release 1"}
TOKEN = {"name": "ci", "token": {"env": "CI_TOKEN"}, "scopes": ["gates:read", "gates:write"]}


@pytest.fixture
def candidate(home: Home, simulator: SimulatedServer) -> SimulatedServer:
    """A second server like the route's own, that the configuration does not know."""
    home.environment["CI_TOKEN"] = "s3cret"
    (home.directory / "routes.yaml").write_text(
        (home.directory / "routes.yaml").read_text() + f"api_tokens: [{TOKEN}]\n".replace("'", '"')
    )
    return SimulatedServer(home.simulator_settings())


def ask(serve: Serve, candidate: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{serve.port}/api/v1/gates"
    answer = httpx.post(url, json={"route": "chat-0", "candidate": candidate}, headers=HEADERS, timeout=10)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_gate_cut_short_by_a_kill_is_measured_anew_after_the_restart(
    home: Home, simulator: SimulatedServer, candidate: SimulatedServer, database: Database
) -> None:
    with candidate.run_in_thread() as url:
        candidate.behave(latency_seconds=0.5)
        killed = home.serve()
        assert (ask(killed, url)["id"], ask(killed, url)["id"]) == (1, 1)
        eventually(lambda: requests_running(candidate), "the gate is under way")
        assert ask(killed, url)["status"] == "running"
        killed.kill()
        candidate.behave(latency_seconds=0.0)
        serve = home.serve(name="restarted")
        gate = eventually(lambda: ended(serve, url), "the gate is over")[0]
        assert (gate["id"], gate["verdict"], gate["reason"]) == (1, "pass", "no_regression"), gate["text"]
        assert rows(database, "SELECT id, status, attempts FROM gates") == [(1, "done", 2)]
        eventually(lambda: not jobs(database), "the queue is empty")
        serve.stop()


def ended(serve: Serve, candidate: str) -> list[dict[str, Any]]:
    """The gate once it is over."""
    found = ask(serve, candidate)
    return [found] if found["status"] == "done" else []


def test_scheduled_probes_keep_off_while_a_gate_measures_their_replica(
    home: Home, simulator: SimulatedServer, candidate: SimulatedServer, database: Database
) -> None:
    with candidate.run_in_thread() as url:
        serve = home.serve()
        eventually(lambda: rows(database, "SELECT FROM runs"), "the first probe is over")
        candidate.behave(latency_seconds=0.3)
        ask(serve, url)
        eventually(lambda: requests_running(candidate), "the gate is under way")
        asked = home.run("run", "now", "chat-0")
        assert asked.returncode == 0, asked.stderr
        gate = eventually(lambda: ended(serve, url), "the gate is over")[0]
        eventually(lambda: not jobs(database), "the probe is made")
        [(began,)] = rows(database, "SELECT started_at FROM runs ORDER BY id DESC LIMIT 1")
        assert began.isoformat() >= gate["finished_at"]
        serve.stop()


def test_the_commands_gate_takes_turns_with_probes_and_with_gates_asked_over_http(
    home: Home, simulator: SimulatedServer, candidate: SimulatedServer, database: Database
) -> None:
    with candidate.run_in_thread() as url, ThreadPoolExecutor(1) as shell:
        serve = home.serve()
        eventually(lambda: rows(database, "SELECT FROM runs"), "the first probe is over")
        candidate.behave(latency_seconds=0.3)
        gating = shell.submit(home.run, "gate", "chat-0", "--candidate", url, "--format", "json")
        eventually(lambda: requests_running(candidate), "the command's gate is under way")
        assert ask(serve, url)["id"] == 2
        assert home.run("run", "now", "chat-0").returncode == 0
        ended_with = gating.result(120)
        assert ended_with.returncode == 0, ended_with.stderr
        mine = json.loads(ended_with.stdout)
        other = eventually(lambda: ended(serve, url), "the gate asked over HTTP is over")[0]
        assert (mine["verdict"], other["verdict"]) == ("pass", "pass")
        assert other["started_at"] >= mine["finished_at"]
        eventually(lambda: not jobs(database), "the probe is made")
        [(began,)] = rows(database, "SELECT started_at FROM runs ORDER BY id DESC LIMIT 1")
        assert began.isoformat() >= mine["finished_at"]
        assert rows(database, "SELECT id, status, asked_by FROM gates ORDER BY id") == [
            (1, "done", None),
            (2, "done", "ci"),
        ]
        serve.stop()
