"""What is said when a real server changes in a way that is known: what is blamed first, and when nothing is.

The tests share one server and one store and follow one another as days would. Each of the last two changes what is
served; until then nobody is told anything.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from monitor.core.causes import ORGANIC_STEPS
from tests.real.client import read_counters
from tests.real.product import background_clients, eventually
from tests.real.servers import MODELS, ROOT, RealServer
from tests.real.serving import DOMAINS, ROUTE, WHAT_WE_ADVISE, Hook, Serving
from tests.real.variants import graded_drafter, graded_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real.pool import ServerPool
    from tests.real.tables import Tables

DRAFTER_NOISE = 0.4
TARGET_NOISE = 0.5
USUAL, OTHER = "math", "prose"
"""What users ask until the mix moves, and then: of prose the tiny drafter guesses a quarter less."""
HEAVY = 16
"""Clients that ask without a pause: twice the requests of a probe, which count as traffic too."""
RUNS = 2
"""Of each domain, before a change is said to have done nothing."""
TWO_READINGS_SECONDS = 125.0
"""A replica is read once a minute, at a second of its own; what its counters did between two readings is known."""
STEPS = round(2.5 * ORGANIC_STEPS)
"""In the time of at least two readings, half of it between them."""
SETTINGS = {"every": "10s", "confirm_after": ["2s", "4s"]}
ALERTING = {
    "rules": yaml.safe_load((ROOT / "alerting.yaml").read_text())["rules"],
    "reopen_within": "off",  # each change is an incident of its own
    "stale": {"after": 60},
}
"""The rules are those that are shipped."""
TITLE = "real vLLM: what is blamed for a change that is known"


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with Hook() as found:
        yield found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny target, to be overwritten."""
    return shutil.copytree(MODELS / "tiny-target", tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module")
def server(servers: ServerPool, target: Path) -> Iterator[RealServer]:
    servers.stop_all()
    with RealServer("draft", target=target, flags=WHAT_WE_ADVISE) as found:
        yield found


@pytest.fixture(scope="module")
def serving(server: RealServer, hook: Hook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """With an approved baseline of every domain."""
    with Serving(tmp_path_factory.mktemp("serving"), server.base_url, hook, SETTINGS, ALERTING) as found:
        found.wait_for_baselines()
        yield found


def test_a_restart_with_the_same_weights_is_no_incident(serving: Serving, server: RealServer, hook: Hook) -> None:
    started = {run["regime"]["server_started_at"] for run in valid_runs(serving)}
    server.restart()
    last = serving.last_run_id()
    runs = eventually(partial(some_of_each, serving, last), "every domain is measured after the restart", 200, 1)
    assert len(started) == 1
    assert started.isdisjoint({run["regime"]["server_started_at"] for run in runs})
    nothing_is_told(serving, hook, runs)


def test_heavy_traffic_on_the_same_weights_is_no_incident(serving: Serving, server: RealServer, hook: Hook) -> None:
    runs = measured_beside(serving, server, USUAL)
    assert max(run["regime"]["running_before"] for run in runs) >= HEAVY / 2
    nothing_is_told(serving, hook, runs)


def test_another_mix_of_traffic_is_no_incident_and_is_explained(
    serving: Serving, server: RealServer, hook: Hook, tables: Tables
) -> None:
    runs = measured_beside(serving, server, OTHER)
    nothing_is_told(serving, hook, runs)
    explained = serving.ask("explain", ROUTE)
    for document in explained:
        note(tables, f"{USUAL} → {OTHER} asked by everybody", document)
    assert [document["domain"] for document in explained] == sorted(DOMAINS)
    for document in explained:
        assert (document["verdict"]["outcome"], document["moved"]) == ("ok", False)
        assert [(cause["kind"], cause["strength"]) for cause in document["causes"]] == [("traffic_mix", "strong")]
        assert document["organic"]["source"] == "organic"
        assert document["organic"]["change"] < -0.1


def test_another_drafter_is_an_incident_that_blames_the_drafter(
    serving: Serving, server: RealServer, hook: Hook, tables: Tables
) -> None:
    told = len(hook.bodies)
    server.restart(drafter=graded_drafter(DRAFTER_NOISE))
    opened = opened_incident(serving, hook, told)
    note(tables, "another drafter", opened)
    assert (opened["severity"], opened["verdict"]["outcome"], opened["source"]) == ("page", "confirmed", "request")
    assert (opened["causes"][0]["kind"], opened["causes"][0]["strength"]) == ("drafter", "strong")
    assert opened["causes"][0]["sentence"].startswith("outputs unchanged (24/24)")
    assert kinds(opened).isdisjoint({"target", "template", "engine_version", "traffic_mix"})
    assert serving.ask("explain", "--incident", str(opened["incident_id"]))["causes"][0]["kind"] == "drafter"

    server.restart(drafter=graded_drafter(0))
    eventually(lambda: [body for body in hook.bodies if body["status"] == "resolved"], "resolution", 300)


def test_a_target_overwritten_under_its_name_is_an_incident_that_blames_the_target(
    serving: Serving, server: RealServer, target: Path, hook: Hook, tables: Tables
) -> None:
    told = len(hook.bodies)
    shutil.copy(graded_target(TARGET_NOISE) / "model.safetensors", target)
    server.restart()
    opened = opened_incident(serving, hook, told)
    note(tables, "the target's weights overwritten", opened)
    assert (opened["verdict"]["outcome"], opened["source"]) == ("confirmed", "request")
    assert (opened["causes"][0]["kind"], opened["causes"][0]["strength"]) == ("target", "strong")
    assert "no change of model, drafter or engine was seen" in opened["causes"][0]["sentence"]
    assert kinds(opened).isdisjoint({"drafter", "template", "engine_version", "traffic_mix"})
    assert serving.ask("explain", "--incident", str(opened["incident_id"]))["causes"][0]["kind"] == "target"


def valid_runs(serving: Serving, after: int = 0) -> list[dict[str, Any]]:
    return [run for run in serving.runs_after(after) if run["valid"]]


def some_of_each(serving: Serving, after: int) -> list[dict[str, Any]] | None:
    """The valid runs since, once every domain has RUNS."""
    runs = valid_runs(serving, after)
    domains = [run["domain"] for run in runs]
    return runs if all(domains.count(domain) >= RUNS for domain in DOMAINS) else None


def measured_beside(serving: Serving, server: RealServer, domain: str) -> list[dict[str, Any]]:
    """The runs made while heavy traffic asked what is asked in this domain, for as long as enough of it to be read.

    What `serve` has read of it is stored when it ends; another takes its place.
    """
    last = serving.last_run_id()
    with background_clients(server.base_url, HEAVY, domain):
        before, began = read_counters(server.base_url), time.monotonic()
        eventually(partial(some_of_each, serving, last), "every domain is measured beside the traffic", 300, 2)
        time.sleep(max(0.0, began + TWO_READINGS_SECONDS - time.monotonic()))
        eventually(
            lambda: (read_counters(server.base_url) - before).drafts > STEPS,
            f"the traffic has made {STEPS} steps",
            seconds=300,
            pause_seconds=2,
        )
        runs = valid_runs(serving, last)
        serving.begin_again()
    return runs


def nothing_is_told(serving: Serving, hook: Hook, runs: list[dict[str, Any]]) -> None:
    """These runs were judged by every rule and are well, and there is and was no incident and no bump."""
    verdicts = [v for run in runs for v in serving.ask("run", "show", str(run["id"]))["verdicts"]]
    assert {verdict["rule"] for verdict in verdicts} >= {"acceptance-drop", "acceptance-slip", "slow-leak"}
    assert {verdict["outcome"] for verdict in verdicts} == {"ok"}
    assert max(abs(verdict["change"]) for verdict in verdicts if verdict["change"] is not None) < 0.03
    assert serving.ask("incidents") == []
    assert serving.ask("bumps") == []
    assert hook.bodies == []


def opened_incident(serving: Serving, hook: Hook, told: int) -> dict[str, Any]:
    """The opening of the one incident that is open, once its page is told."""
    eventually(lambda: hook.bodies[told:], "the incident is told", 300)
    (incident,) = serving.ask("incidents", "--open")
    opened: dict[str, Any] = serving.ask("incidents", str(incident["id"]))["events"][0]
    assert (opened["transition"], opened["domain"] in DOMAINS) == ("opened", True)
    return opened


def kinds(document: dict[str, Any]) -> set[str]:
    return {cause["kind"] for cause in document["causes"]}


def note(tables: Tables, change: str, document: dict[str, Any]) -> None:
    verdict, causes = document["verdict"], document["causes"]
    tables.add(
        TITLE,
        change=change,
        domain=document["domain"],
        verdict=f"{verdict['rule'] if 'rule' in verdict else document['rule']}: {verdict['outcome']}",
        moved=f"{verdict['change']:+.1%}",
        causes="; ".join(f"{cause['kind']} ({cause['strength']}): {cause['sentence']}" for cause in causes),
    )
