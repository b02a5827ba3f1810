"""A gate's candidate beside its own plain twin, on simulated servers: every reason of speedup and of outputs."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.config.gate_request import GateRequest
from monitor.config.gates import Gates
from monitor.core.gate import GateReason
from monitor.probing.speedup import measure_speedup
from monitor.service.gating import sides_of
from monitor.service.own_gate import OwnGate
from monitor.service.promoting import Promoting
from monitor.sim.behaviour import Behaviour, Fault, FaultKind
from monitor.sim.model import Drafter, Target
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import slots
from tests.factories import ROUTE, START, make_route
from tests.integration.gate_bed import SETS, WORSE, Bed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from monitor.store.database import Database

PATH = "/api/v1/gates"
STEPS = Behaviour(step_time_seconds=0.005)
DEAR = Behaviour(step_time_seconds=0.005, draft_time_seconds=0.01)
BETTER = Drafter(name="next", default_acceptance=(0.9, 0.9, 0.9, 0.9))
PLAIN = Drafter(method=None)
QUICK = ("--prompts", "24", "--max-tokens", "48", "--concurrency", "8", "--domain", "math", "--format", "json")


@pytest.fixture
def served() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def candidate(served: ExitStack) -> str:
    return served.enter_context(SimulatedServer(ServerConfig(seed=1, drafter=BETTER), STEPS).run_in_thread())


@pytest.fixture
def dear(served: ExitStack) -> str:
    """A candidate whose drafts are accepted, and cost more than they save."""
    return served.enter_context(SimulatedServer(ServerConfig(seed=1, drafter=BETTER), DEAR).run_in_thread())


@pytest.fixture
def twin(served: ExitStack) -> str:
    return served.enter_context(SimulatedServer(ServerConfig(seed=2, drafter=PLAIN), STEPS).run_in_thread())


@pytest.fixture
def other_twin(served: ExitStack) -> str:
    """It answers otherwise, as a twin of other weights does, or a candidate that is not lossless."""
    config = ServerConfig(seed=2, drafter=PLAIN, target=Target("another"))
    return served.enter_context(SimulatedServer(config, STEPS).run_in_thread())


def gate(candidate: str, against: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["gate", "--candidate", candidate, "--against", against, *QUICK, *arguments])


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == found["exit_code"], result.output
    return found


def test_speedup_and_outputs_are_measured_beside_the_twin_and_pass(production: str, candidate: str, twin: str) -> None:
    found = document(gate(candidate, production, "--plain", twin, "--require-lossless", "twin", "--prompts", "36"))
    assert (found["exit_code"], found["reason"]) == (0, "no_regression")
    assert found["text"].endswith("and each is at least 1 × as fast as its plain twin")
    assert (found["thresholds"]["min_speedup"], found["thresholds"]["require_lossless"]) == (1.0, "twin")
    [domain] = found["domains"]
    measured = domain["twin"]
    assert measured["speedup"]["low"] > 1
    assert (measured["speedup"]["n"], measured["speedup"]["repeats"]) == (36, 3)
    assert (measured["plain"]["prompts_valid"], measured["speculative"]["prompts_total"]) == (108, 108)
    assert (found["twin"]["replica"], found["twin"]["identity"]["k"]) == (twin, None)
    outputs = found["twin"]["outputs"]
    assert (outputs["verdict"], outputs["replica_and_twin"]["same"], outputs["replica_and_twin"]["share"]) == (
        "pass",
        108,
        1.0,
    )
    assert (outputs["twin_and_itself"]["same"], outputs["replica_and_twin"]["first_differences"]) == (72, [])


def test_outputs_are_reported_also_where_nothing_is_required_of_them(
    production: str, candidate: str, other_twin: str
) -> None:
    found = document(gate(candidate, production, "--plain", other_twin))
    outputs = found["twin"]["outputs"]
    assert (found["exit_code"], outputs["verdict"], outputs["replica_and_twin"]["same"]) == (0, None, 0)
    assert len(outputs["replica_and_twin"]["first_differences"]) == 72
    assert outputs["text"].startswith("0/72 greedy outputs are the plain twin's, which repeats 48/48 of its own; ")


@pytest.mark.parametrize("required", ["twin", "95%", "100%"])
def test_a_candidate_that_answers_otherwise_than_its_twin_is_lossy(
    production: str, candidate: str, other_twin: str, required: str
) -> None:
    found = document(gate(candidate, production, "--plain", other_twin, "--require-lossless", required))
    assert (found["exit_code"], found["verdict"], found["reason"]) == (10, "fail", "lossy")
    assert found["text"].startswith("outputs: 0/72 greedy outputs are the plain twin's")


def test_a_candidate_slower_than_its_twin_is_too_slow_whatever_is_accepted(
    production: str, dear: str, twin: str
) -> None:
    found = document(gate(dear, production, "--plain", twin))
    assert (found["exit_code"], found["verdict"], found["reason"]) == (10, "fail", "too_slow")
    assert found["domains"][0]["change"] > 0
    assert found["domains"][0]["twin"]["speedup"]["high"] < 1
    assert found["text"].startswith("math: speedup 0.")


def test_a_speedup_that_straddles_what_is_asked_is_undecided(production: str, candidate: str, twin: str) -> None:
    at = document(gate(candidate, production, "--plain", twin))["domains"][0]["twin"]["speedup"]["ratio"]
    found = document(gate(candidate, production, "--plain", twin, "--min-speedup", f"{at:.3f}"))
    assert (found["exit_code"], found["verdict"], found["reason"]) == (11, "inconclusive", "speedup_undecided")


def test_what_acceptance_has_refused_is_not_timed(production: str, served: ExitStack, twin: str) -> None:
    worse = served.enter_context(SimulatedServer(ServerConfig(drafter=WORSE), STEPS).run_in_thread())
    found = document(gate(worse, production, "--plain", twin))
    assert (found["exit_code"], found["reason"], found["domains"][0]["twin"]) == (10, "regression", None)
    assert found["twin"]["speedup"]["ratio"] is None


def test_a_twin_that_speculates_is_none(production: str, candidate: str, served: ExitStack) -> None:
    other = served.enter_context(SimulatedServer(ServerConfig(seed=5), STEPS).run_in_thread())
    found = document(gate(candidate, production, "--plain", other))
    assert (found["exit_code"], found["reason"], found["domains"]) == (13, "twin_speculates", [])


def test_a_twin_that_is_gone_or_of_another_model_or_the_candidate_itself_is_told(
    production: str, candidate: str, served: ExitStack
) -> None:
    other = SimulatedServer(ServerConfig(model="tiny-v2", drafter=PLAIN))
    for plain, reason in (
        ("http://127.0.0.1:9", "unreachable"),
        (served.enter_context(other.run_in_thread()), "other_model"),
        (candidate, "same_server"),
    ):
        found = document(gate(candidate, production, "--plain", plain))
        assert (found["exit_code"], found["reason"], found["domains"]) == (13, reason, [])


def test_a_twin_that_fails_half_way_leaves_no_pass(production: str, candidate: str, served: ExitStack) -> None:
    server = SimulatedServer(ServerConfig(drafter=PLAIN), STEPS)
    server.inject(Fault(FaultKind.CUT, times=None))
    found = document(gate(candidate, production, "--plain", served.enter_context(server.run_in_thread())))
    assert (found["exit_code"], found["reason"]) == (13, "unreachable")
    assert found["text"].startswith("math: no speedup beside the plain twin: ")


@pytest.mark.parametrize("which", ["candidate", "twin"])
def test_a_server_restarted_beside_the_twin_leaves_no_pass(
    production: str, served: ExitStack, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    servers = {
        "candidate": SimulatedServer(ServerConfig(seed=1, drafter=BETTER), STEPS),
        "twin": SimulatedServer(ServerConfig(seed=2, drafter=PLAIN), STEPS),
    }

    async def measured(*given: Any, **options: Any) -> Any:
        servers[which].restart()
        return await measure_speedup(*given, **options)

    monkeypatch.setattr("monitor.probing.gate_twin.measure_speedup", measured)
    candidate, twin = (served.enter_context(server.run_in_thread()) for server in servers.values())
    found = document(gate(candidate, production, "--plain", twin))
    assert (found["exit_code"], found["reason"]) == (13, "identity_changed")
    assert found["text"] == f"math: {which}: the server was restarted during the gate"
    assert found["domains"][0]["twin"]["speedup"]["low"] > 1


def test_a_speedup_of_fewer_prompts_than_are_asked_is_no_pass(
    production: str, candidate: str, twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measured(*given: Any, **options: Any) -> Any:
        found = await measure_speedup(*given, **options)
        assert found.point is not None
        assert found.point.speedup is not None
        return replace(found, point=replace(found.point, speedup=replace(found.point.speedup, n=23)))

    monkeypatch.setattr("monitor.probing.gate_twin.measure_speedup", measured)
    found = document(gate(candidate, production, "--plain", twin, "--min-prompts", "24"))
    assert (found["exit_code"], found["reason"]) == (13, "too_few_prompts")
    assert found["text"] == "math: 23 prompts with a speedup, 24 are needed"


def test_times_that_mean_nothing_are_no_speedup(
    production: str, candidate: str, twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.probing.speedup.LATE_SECONDS", -1.0)
    found = document(gate(candidate, production, "--plain", twin))
    assert (found["exit_code"], found["reason"]) == (13, "speedup_invalid")
    assert found["domains"][0]["twin"]["invalid_reason"] == "late_client"


def test_the_time_out_holds_beside_the_twin_too(production: str, candidate: str, served: ExitStack) -> None:
    slow = SimulatedServer(ServerConfig(drafter=PLAIN), Behaviour(step_time_seconds=2.0))
    url = served.enter_context(slow.run_in_thread())
    found = document(gate(candidate, production, "--plain", url, "--timeout", "8s"))
    assert (found["exit_code"], found["reason"]) == (11, "timed_out")
    assert re.search(r"not measured beside its plain twin within 8 s; about \d+ s more would do; ", found["text"])


def test_reports_have_the_speedup_of_every_domain_and_the_outputs_as_a_case(
    production: str, candidate: str, other_twin: str, tmp_path: Path
) -> None:
    words = ("--plain", other_twin, "--require-lossless", "twin")
    file = tmp_path / "gate.xml"
    table = gate(candidate, production, *words, "--format", "junit", "--out", str(file)).stdout
    cases = {case.get("name"): case for case in ElementTree.parse(file).getroot().iter("testcase")}
    assert list(cases) == ["math", "outputs"]
    failure = cases["outputs"].find("failure")
    assert failure is not None
    assert failure.get("type") == "lossy"
    assert cases["math"].find("failure") is None
    assert "same output" in table
    assert "0/72" in table
    assert f"{other_twin} (plain): 1 × its speed is asked, and the outputs that it repeats itself" in " ".join(
        table.split()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--min-speedup", "1.1"], "a plain twin is needed: name it with --plain URL"),
        (["--require-lossless", "twin"], "a plain twin is needed"),
        (["--plain", "http://z", "--min-speedup", "0"], "0<x<=100"),
        (["--plain", "http://z", "--require-lossless", "wholly"], "write for example 95%, 100% or twin"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["gate", "--candidate", "http://x", "--against", "http://y", *arguments])
    assert (result.exit_code, words in result.output) == (2, True), result.output


class TestOfARoute:
    @pytest.fixture
    async def beside(self, database: Database, production: str, twin: str, bed: Bed) -> AsyncIterator[Bed]:
        """As the bed, of a route that has a plain twin."""
        settings = {"domains": ["math"], "model": None, "max_tokens": 32, "concurrency": 8, "plain_twin": twin}
        found = Bed(database, make_route(replicas=[production], **settings))
        async with found.client:
            yield found

    async def test_its_own_plain_twin_serves_where_none_is_named(self, beside: Bed, candidate: str, twin: str) -> None:
        sent = {"route": ROUTE, "candidate": candidate, "prompts": 24, "min_speedup": 0.5, "require_lossless": "100%"}
        queued = (await beside.client.post(PATH, json=sent)).json()
        assert (queued["twin"]["replica"], queued["twin"]["speedup"]["ratio"]) == (twin, None)
        await beside.work(1)
        found = beside.gate(1)
        assert (found["verdict"], found["twin"]["outputs"]["verdict"]) == ("pass", "pass")
        assert found["thresholds"]["min_speedup"] == 0.5
        assert found["twin"].keys() == queued["twin"].keys()

    @pytest.mark.parametrize(("slow", "reason"), [(True, "too_slow"), (False, "lossy")])
    async def test_a_twin_that_is_named_decides_over_http_too(
        self, bed: Bed, candidate: str, dear: str, other_twin: str, slow: bool, reason: str
    ) -> None:
        sent = {"route": ROUTE, "candidate": dear if slow else candidate, "prompts": 24, "plain": other_twin}
        await bed.client.post(PATH, json=sent if slow else {**sent, "require_lossless": "twin"})
        await bed.work(1)
        assert (bed.gate(1)["verdict"], bed.gate(1)["reason"], bed.gate(1)["exit_code"]) == ("fail", reason, 10)

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"min_speedup": 1.1}, "chat-prod has no plain_twin in routes.yaml; name the candidate's own with --plain"),
            ({"min_speedup": 0}, "min_speedup"),
            ({"plain": "vllm:8000"}, "plain: "),
            ({"plain": "http://z", "require_lossless": "wholly"}, "require_lossless: "),
        ],
    )
    async def test_what_no_gate_could_do_is_refused(self, bed: Bed, options: dict[str, Any], told: str) -> None:
        answer = await bed.client.post(PATH, json={"route": ROUTE, "candidate": "http://x", **options})
        assert (answer.status_code, bed.queued()) == (400, [])
        assert told in answer.json()["error"]

    async def test_a_twin_is_called_only_where_gates_may_call(
        self, database: Database, production: str, bed: Bed, twin: str
    ) -> None:
        route = make_route(replicas=[production], domains=["math"], plain_twin=twin)
        careful = Bed(database, route, Gates(candidates=("*.canary.svc",)))
        sent = {"route": ROUTE, "candidate": "http://chat.canary.svc:8000"}
        async with careful.client:
            own = await careful.client.post(PATH, json={**sent, "min_speedup": 1.1})
            other = await careful.client.post(PATH, json={**sent, "plain": "http://169.254.169.254"})
        assert (own.status_code, own.json()["thresholds"]["min_speedup"]) == (202, 1.1)
        assert (other.status_code, "http://169.254.169.254 is not among" in other.json()["error"]) == (403, True)

    async def test_sampled_outputs_cannot_be_required_to_be_alike(
        self, database: Database, production: str, bed: Bed, twin: str
    ) -> None:
        sampled = Bed(database, make_route(replicas=[production], domains=["math"], temperature=0.7))
        async with sampled.client:
            sent = {"route": ROUTE, "candidate": "http://x", "plain": twin, "require_lossless": "twin"}
            answer = await sampled.client.post(PATH, json=sent)
        assert answer.status_code == 400
        assert "only greedy outputs" in answer.json()["error"]

    async def test_whoever_measures_beside_the_twin_is_told_and_waited_for_no_longer_than_the_time_out(
        self, beside: Bed, candidate: str, twin: str
    ) -> None:
        route, told = beside.route, []
        asked = GateRequest(route=ROUTE, candidate=candidate, min_speedup=1.0, timeout=timedelta(seconds=1))
        sides = sides_of(beside.database, route, asked, SETS, lambda: route.listed)
        gate = OwnGate(beside.database, sides, Promoting(route, list), lambda: START, told.append)
        async with slots.measuring(beside.database.conninfo(), twin):
            verdict = await asyncio.wait_for(gate.measure(lambda _: None), 20)
        assert verdict is not None
        assert verdict.ending == (
            GateReason.TIMED_OUT,
            f"not measured within 1 s: others measure beside the plain twin {twin}; ask again, or allow more time with "
            "--timeout",
        )
        assert (verdict.exit_code, verdict.domains) == (11, ())
        assert told == [f"gate 1 waits: others measure beside the plain twin {twin}"]

    async def test_it_waits_for_whoever_measures_beside_the_twin_and_holds_it(
        self, beside: Bed, candidate: str, twin: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("monitor.service.gate_measuring.LOOK_EVERY_SECONDS", 0.05)
        await beside.client.post(
            PATH, json={"route": ROUTE, "candidate": candidate, "prompts": 24, "plain": twin, "min_speedup": 0.1}
        )
        conninfo = beside.database.conninfo()
        async with slots.measuring(conninfo, twin) as ours:
            assert ours
            working = asyncio.create_task(beside.work(1))
            await asyncio.sleep(0.5)
            assert beside.gate(1)["status"] == "running"
            assert not working.done()
        await asyncio.sleep(0.5)
        async with slots.measuring(conninfo, twin) as ours:
            assert ours is working.done()
        await working
        assert (beside.gate(1)["verdict"], beside.gate(1)["text"][:40]) == (
            "pass",
            "math has not lost 10% of acceptance leng",
        )
