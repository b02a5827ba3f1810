"""`specwatch gate` as a pipeline runs it, on real servers: what it says of a candidate is what the servers counted."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.real.client import counters_after, read_counters, stream_chats
from tests.real.familiar import TURNS, write_familiar_sets
from tests.real.product import COMMAND, environment, specwatch
from tests.real.variants import graded_drafter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.pool import ServerPool
    from tests.real.servers import RealServer
    from tests.real.tables import Tables

DOMAINS = ("coding", "math")
MAX_TOKENS = 128
ATTEMPTS = 3
"""For a gate that measures: where processes stand still for seconds, a server may close connections that wait."""
TITLE = "real vLLM: specwatch gate, and what the servers counted over the same prompts"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_familiar_sets(tmp_path_factory.mktemp("prompts"), *DOMAINS)


@pytest.fixture
def reference(servers: ServerPool) -> RealServer:
    return servers.get("draft")


@pytest.fixture
def identical(servers: ServerPool, reference: RealServer) -> RealServer:
    """Another server of the very same thing; the reference is asked for first, so that the pool keeps it."""
    return servers.get("draft", drafter=graded_drafter(0))


GRADES = {
    "a drafter that loses about 5 %": (0.18, "math", (-0.09, -0.03), {0, 11}),
    "a drafter that loses about 15 %": (0.18, "coding", (-0.19, -0.12), {10, 11}),
    "a drafter that loses 20 % and more": (0.25, "coding", (-0.60, -0.20), {10}),
}
"""Noise on the drafter's weights, a domain, what that costs there by the servers' counters, and the exit codes."""


def test_an_identical_candidate_passes(
    reference: RealServer, identical: RealServer, prompts: Path, tables: Tables
) -> None:
    verdict = measured_gate(identical, reference, prompts)
    for domain in verdict["domains"]:
        note(tables, "identical", domain, true_change(identical, reference, domain["domain"]))
    assert (verdict["exit_code"], verdict["verdict"], verdict["reason"]) == (0, "pass", "no_regression")
    assert [domain["domain"] for domain in verdict["domains"]] == list(DOMAINS)
    assert verdict["prompts_valid"] == verdict["prompts_total"] == sum(len(TURNS[domain]) for domain in DOMAINS)
    assert (verdict["mix"]["verdict"], verdict["mix"]["source"]) == ("pass", "request")
    assert verdict["mix"]["change"] == pytest.approx(0, abs=0.02)
    assert verdict["identity_changes"] == {}
    assert verdict["difference"].startswith("nothing that the servers show; ")


def test_a_candidate_killed_half_way_is_not_measurable(
    identical: RealServer, reference: RealServer, prompts: Path
) -> None:
    command = [*COMMAND, *arguments(identical.base_url, reference.base_url, prompts)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as gate:
        assert gate.stdout is not None
        assert gate.stderr is not None
        assert gate.stderr.readline().startswith(b"coding:")  # decided, or nearly; the other domain is to come
        identical.kill_api_server()
        verdict = json.loads(gate.stdout.read())
    identical.stop()
    assert (gate.returncode, verdict["exit_code"], verdict["verdict"]) == (13, 13, "not_measurable")
    assert verdict["reason"] == "unreachable"
    assert verdict["domains"][0]["looks"] != []
    assert verdict["domains"][1]["reason"] == "unreachable"
    assert identical.base_url in verdict["text"]


@pytest.mark.parametrize("graded", GRADES)
def test_a_worse_drafter_is_judged_by_what_the_servers_counted(
    servers: ServerPool, reference: RealServer, prompts: Path, tables: Tables, graded: str
) -> None:
    noise, domain, (worst, best), codes = GRADES[graded]
    candidate = servers.get("draft", drafter=graded_drafter(noise))
    lost = true_change(candidate, reference, domain)
    verdict = measured_gate(candidate, reference, prompts, "--domain", domain)
    (found,) = verdict["domains"]
    note(tables, f"noise {noise}", found, lost)
    assert worst <= lost <= best
    assert verdict["exit_code"] in codes
    assert found["change"] == pytest.approx(lost, abs=0.03)
    low, high = found["change_interval"]
    assert (found["source"], low < found["change"] < high) == ("request", True)


def test_a_side_without_speculation_is_named(servers: ServerPool, reference: RealServer, prompts: Path) -> None:
    plain = servers.get("plain")
    verdict = measured(plain.base_url, reference.base_url, prompts)
    assert (verdict["exit_code"], verdict["reason"]) == (13, "candidate_no_speculation")
    assert plain.base_url in verdict["text"]
    verdict = measured(reference.base_url, plain.base_url, prompts)
    assert (verdict["exit_code"], verdict["reason"]) == (13, "reference_no_speculation")


def test_a_server_by_another_of_its_addresses_is_the_same_server(reference: RealServer, prompts: Path) -> None:
    verdict = measured(reference.base_url.replace("127.0.0.1", "localhost"), reference.base_url, prompts)
    assert (verdict["exit_code"], verdict["reason"], verdict["domains"]) == (13, "same_server", [])


def arguments(candidate: str, against: str, prompts: Path) -> list[str]:
    """Of a gate between two servers that prints its document."""
    servers = ["--candidate", candidate, "--against", against]
    return ["gate", *servers, "--prompts-dir", str(prompts), "--max-tokens", str(MAX_TOKENS), "--format", "json"]


def measured(candidate: str, against: str, prompts: Path, *options: str) -> dict[str, Any]:
    """The document of one gate, of which the process says the same."""
    result = specwatch(*arguments(candidate, against, prompts), *options)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.returncode == document["exit_code"], result.stderr
    return document


def measured_gate(candidate: RealServer, reference: RealServer, prompts: Path, *options: str) -> dict[str, Any]:
    """Of two servers that live: one that lost a connection to a server that still answers is run again."""
    for _ in range(ATTEMPTS):
        verdict = measured(candidate.base_url, reference.base_url, prompts, *options)
        if verdict["reason"] != "unreachable":
            return verdict
        for server in (candidate, reference):
            assert httpx.get(f"{server.base_url}/health", timeout=60).status_code == 200
    raise AssertionError(verdict["text"])


def true_change(candidate: RealServer, reference: RealServer, domain: str) -> float:
    """Of the acceptance length of all prompts of the domain, by the two servers' own counters."""
    return counted_length(candidate, domain) / counted_length(reference, domain) - 1


def counted_length(server: RealServer, domain: str) -> float:
    """1 + accepted/steps by the server's counters, which moved for our requests and nobody else's."""
    before = read_counters(server.base_url)
    answers = stream_chats(server.base_url, [turns[0] for turns in TURNS[domain]], max_tokens=MAX_TOKENS)
    generated = sum(len(answer.token_ids) for answer in answers)
    change = counters_after(server.base_url, before, generated)
    assert change.generated == generated
    return 1 + change.accepted / change.drafts


def note(tables: Tables, candidate: str, domain: dict[str, Any], lost: float) -> None:
    """A row of what the gate says of a domain beside what was counted."""
    tables.add(
        TITLE,
        candidate=candidate,
        domain=domain["domain"],
        counted=f"{lost:+.1%}",
        gate=f"{domain['change']:+.1%}",
        interval=" to ".join(f"{end:+.1%}" for end in domain["change_interval"]),
        pairs=domain["pairs"],
        verdict=domain["verdict"],
    )
