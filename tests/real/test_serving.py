"""`specwatch serve` watches a real server while it dies, is away, comes back worse, and is mended.

The tests share one server and one `serve` and follow one another as days would; each begins with a well route.
"""

from __future__ import annotations

import math
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.client import acceptance_length, requests_running, stream_chats
from tests.real.familiar import TURNS
from tests.real.product import eventually
from tests.real.servers import RealServer
from tests.real.serving import BASELINE_RUNS, DOMAINS, ROUTE, SETTINGS, WHAT_WE_ADVISE, Hook, Serving
from tests.real.variants import graded_drafter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.pool import ServerPool
    from tests.real.tables import Tables

NOISE = 0.4


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with Hook() as found:
        yield found


@pytest.fixture(scope="module")
def server(servers: ServerPool) -> Iterator[RealServer]:
    servers.stop_all()
    with RealServer("draft", flags=WHAT_WE_ADVISE) as found:
        yield found


@pytest.fixture(scope="module")
def serving(server: RealServer, hook: Hook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """With an approved baseline of every domain."""
    with Serving(tmp_path_factory.mktemp("serving"), server.base_url, hook) as found:
        found.wait_for_baselines()
        yield found


@pytest.fixture
def alive(server: RealServer) -> RealServer:
    """The server, started again when an earlier test has killed it."""
    return server if server.is_running else server.restart()


def test_a_baseline_is_approved_from_the_first_valid_runs(serving: Serving) -> None:
    baselines = serving.ask("baseline", "list")
    runs = {run["id"]: run for run in serving.ask("runs", "--limit", "200")}
    assert len(baselines) == len(DOMAINS)
    for baseline in baselines:
        assert (baseline["source"], baseline["k"], baseline["approved_by"]) == ("request", 4, "specwatch")
        assert len(baseline["run_ids"]) == BASELINE_RUNS
        assert all(runs[run_id]["valid"] for run_id in baseline["run_ids"])
        assert baseline["prompts"] == len(TURNS[baseline["domain"]])


KILLS = {
    "API server, kill -9": (RealServer.kill_api_server, {"cut_off"}),
    "engine, kill -9": (RealServer.kill_engine, {"error_in_stream"}),
    "API server, SIGTERM": (
        lambda server: server.kill_api_server(signal.SIGTERM),
        {"aborted", "error_in_stream", "stalled"},
    ),
    "engine, SIGSTOP": (RealServer.freeze_engine, {"stalled"}),
}
"""How the server is killed, and the reasons of the samples in flight, of which one at least is seen."""

ATTEMPTS = 3
"""A run here lasts a second or two: on a fast machine it can end between the look at the gauge and the kill."""


@pytest.mark.parametrize("killed", KILLS)
def test_a_server_killed_in_mid_stream_makes_an_invalid_run_and_nothing_else(
    serving: Serving, alive: RealServer, hook: Hook, tables: Tables, killed: str
) -> None:
    kill, reasons = KILLS[killed]
    told, last = len(hook.bodies), serving.last_run_id()
    for _ in range(ATTEMPTS):
        before = serving.last_run_id()
        wait_for_a_run_to_begin(alive)
        kill(alive)
        broken = eventually(partial(first_invalid, serving, before), "the run is stored", 120, 1)
        shown = serving.ask("run", "show", str(broken["id"]))
        seen = {sample["invalid_reason"] for sample in shown["samples"]} - {None}
        alive.stop()
        if seen & reasons:
            break
        alive.restart()  # the run had ended just before the blow
    assert seen & reasons
    away = eventually(lambda: first_invalid(serving, broken["id"], "unreachable"), "a run meets nobody", 120, 1)
    tables.add(
        "real vLLM: a server killed under a run of specwatch serve",
        killed=killed,
        run=broken["invalid_reason"],
        valid=f"{broken['prompts_valid']}/{broken['prompts_total']}",
        samples=", ".join(sorted(seen)),
        afterwards=away["invalid_reason"],
    )
    assert alive.base_url in shown["invalid_detail"]
    assert (away["invalid_reason"], away["prompts_valid"]) == ("unreachable", 0)
    for run in (broken, away):
        verdicts = serving.ask("run", "show", str(run["id"]))["verdicts"]
        assert {verdict["outcome"] for verdict in verdicts} == {"invalid"}
    assert {run["reason"] for run in serving.runs_after(last)} == {"scheduled"}  # no trip, or it would be confirmed
    assert len(hook.bodies) == told
    assert serving.ask("incidents", "--open") == []


def test_a_swapped_drafter_opens_an_incident_that_closes_when_it_is_swapped_back(
    serving: Serving, alive: RealServer, hook: Hook, tables: Tables
) -> None:
    good, last = acceptance_by_prompt(alive), serving.last_run_id()
    alive.restart(drafter=graded_drafter(NOISE))
    while_away = serving.runs_after(last)
    told_while_away = list(hook.bodies)
    bad = acceptance_by_prompt(alive)
    firing = eventually(lambda: hook.bodies[:1], "the incident is told", 240)[0]
    (incident,) = serving.ask("incidents", "--open")
    opened = serving.ask("incidents", str(incident["id"]))["events"][0]
    tables.show("real vLLM: what the engineer was sent", opened["text"])
    for domain in DOMAINS:
        tables.add("real vLLM: a drafter swapped under specwatch serve", **effect(serving, last, domain, good, bad))

    assert "unreachable" in {run["invalid_reason"] for run in while_away}
    assert told_while_away == []
    assert (firing["version"], firing["status"], firing["receiver"]) == ("4", "firing", "hook")
    assert firing["commonAnnotations"]["summary"].startswith(f"PAGE {ROUTE} · {opened['domain']}: acceptance length ")
    (alert,) = firing["alerts"]
    assert (alert["status"], alert["labels"]["route"], alert["labels"]["team"]) == ("firing", ROUTE, "chat")
    assert (incident["route"], incident["severity"], incident["kind"]) == (ROUTE, "page", "acceptance")
    assert (opened["transition"], opened["domain"] in DOMAINS, opened["source"]) == ("opened", True, "request")
    assert opened["verdict"]["outcome"] == "confirmed"
    assert opened["verdict"]["change"] == pytest.approx(change(good, bad, opened["domain"]), abs=0.03)
    assert list(opened["last_bump"]["changes"]) == ["fingerprint"]
    reasons = {run["reason"] for run in serving.runs_after(last) if run["valid"]}
    assert reasons >= {"bump", "confirm"}

    alive.restart(drafter=graded_drafter(0))
    resolved = eventually(lambda: [body for body in hook.bodies if body["status"] == "resolved"], "resolution", 300)
    assert len(resolved) == 1
    assert [body["status"] for body in hook.bodies] == ["firing"] * (len(hook.bodies) - 1) + ["resolved"]
    (ended,) = resolved[0]["alerts"]
    assert (ended["labels"], ended["startsAt"]) == (alert["labels"], alert["startsAt"])
    assert ended["endsAt"] > ended["startsAt"]
    assert serving.ask("incidents", "--open") == []
    (closed,) = serving.ask("incidents")
    assert (closed["id"], closed["state"]) == (incident["id"], "resolved")


def wait_for_a_run_to_begin(server: RealServer) -> None:
    """Returns when most of the first prompts of a run are being answered."""
    eventually(lambda: requests_running(server.base_url) == 0, "the server is idle", pause_seconds=0.02)
    eventually(lambda: requests_running(server.base_url) > SETTINGS["concurrency"] / 2, "a run begins", 120, 0.02)


def first_invalid(serving: Serving, after: int, reason: str | None = None) -> dict[str, Any] | None:
    """The first run after that id that is invalid, for this reason if one is given."""
    invalid = (run for run in serving.runs_after(after) if not run["valid"])
    return next((run for run in invalid if reason in (None, run["invalid_reason"])), None)


def acceptance_by_prompt(server: RealServer) -> dict[str, list[float]]:
    """What a client of our own sees of the prompts that `serve` replays: acceptance length of each, by domain."""
    found = {}
    for domain in DOMAINS:
        prompts = [turns[0] for turns in TURNS[domain]]
        answers = stream_chats(server.base_url, prompts, max_tokens=SETTINGS["max_tokens"])
        found[domain] = [acceptance_length([answer]) for answer in answers]
    return found


def change(good: dict[str, list[float]], bad: dict[str, list[float]], domain: str) -> float:
    """From one to the other, as the geometric mean over prompts."""
    logs = [math.log(worse / better) for better, worse in zip(good[domain], bad[domain], strict=True)]
    return math.exp(sum(logs) / len(logs)) - 1


def effect(
    serving: Serving, last: int, domain: str, good: dict[str, list[float]], bad: dict[str, list[float]]
) -> dict[str, Any]:
    """What the swap did to one domain by our own client, and by the judged runs of `serve` since."""
    runs = [run for run in serving.runs_after(last) if run["domain"] == domain and run["valid"]]
    verdicts = [verdict for run in runs for verdict in serving.ask("run", "show", str(run["id"]))["verdicts"]]
    return {
        "domain": domain,
        "AL before": sum(good[domain]) / len(good[domain]),
        "AL after": sum(bad[domain]) / len(bad[domain]),
        "change": f"{change(good, bad, domain):+.1%}",
        "verdicts": ", ".join(f"{v['outcome']} {v['change']:+.1%}" for v in verdicts if v["change"] is not None),
    }
