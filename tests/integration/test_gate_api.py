"""`/api/v1/gates` and Flagger's hooks over HTTP: gates asked, measured on simulated servers, read and cancelled."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text, update

from monitor.config.gates import Gates
from monitor.core.gate import GateReason
from monitor.service.web_server import warn_of_any_candidate
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import gate_requests
from monitor.store.gate_requests import Claim
from monitor.store.schema import gates
from monitor.web.gates import LARGEST_BODY
from tests.factories import ROUTE, START, make_config, make_route
from tests.integration.gate_bed import CI, NOBODY, READER, WORSE, Bed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monitor.config.tokens import ApiToken
    from monitor.store.database import Database


PATH = "/api/v1/gates"


@pytest.fixture
def candidate() -> Iterator[str]:
    with SimulatedServer(ServerConfig(seed=1)).run_in_thread() as url:
        yield url


def asked(candidate: str, **options: Any) -> dict[str, Any]:
    return {"route": ROUTE, "candidate": candidate, "prompts": 24, **options}


async def test_a_gate_is_asked_at_once_measured_later_and_read_in_one_shape(
    bed: Bed, candidate: str, production: str
) -> None:
    answer = await bed.client.post(PATH, json=asked(candidate))
    assert (answer.status_code, answer.headers["Location"]) == (202, f"{PATH}/1")
    first = answer.json()
    assert (first["id"], first["status"], first["verdict"], first["exit_code"]) == (1, "queued", None, None)
    assert (first["text"], first["candidate"]["replica"]) == ("waits for its turn", candidate)
    [job] = bed.queued()
    assert (job["task_name"], job["lock"]) == ("gate", f"replica {production}")
    await bed.work(1)
    found = await bed.client.get(f"{PATH}/1")
    gate = found.json()
    assert (found.status_code, gate["status"], gate["verdict"], gate["exit_code"]) == (200, "done", "pass", 0)
    assert (gate["domains"][0]["domain"], gate["domains"][0]["prompts_valid"]) == ("math", 24)
    assert gate.keys() == first.keys()
    assert (await bed.client.get(PATH, params={"route": ROUTE})).json() == {"gates": [gate]}
    assert (await bed.client.get(PATH, params={"route": "chut"})).json() == {"gates": []}


async def test_a_gate_is_read_by_two_statements_however_many_there_are(bed: Bed, candidate: str) -> None:
    """So that it takes well under the 50 ms that a pipeline which looks often may expect."""
    await bed.client.post(PATH, json=asked(candidate))
    await bed.work(1)
    statements: list[str] = []
    event.listen(bed.database.engine, "before_cursor_execute", lambda *sent: statements.append(sent[2]))
    assert (await bed.client.get(f"{PATH}/1")).status_code == 200
    assert [re.findall(r"FROM (\w+)", statement)[0] for statement in statements] == ["gates", "gate_waivers"]


async def test_a_worse_candidate_fails(bed: Bed) -> None:
    with SimulatedServer(ServerConfig(drafter=WORSE)).run_in_thread() as worse:
        await bed.client.post(PATH, json=asked(worse))
        await bed.work(1)
    gate = bed.gate(1)
    assert (gate["status"], gate["verdict"], gate["reason"], gate["exit_code"]) == ("done", "fail", "regression", 10)


async def test_one_key_is_one_gate_and_another_body_under_it_is_refused(bed: Bed, candidate: str) -> None:
    key = {"Idempotency-Key": "build 42"}
    both = await asyncio.gather(*(bed.client.post(PATH, json=asked(candidate), headers=key) for _ in range(2)))
    assert [(answer.status_code, answer.json()["id"]) for answer in both] == [(202, 1), (202, 1)]
    assert len(bed.queued()) == 1
    other = await bed.client.post(PATH, json=asked(candidate, max_drop="5%"), headers=key)
    assert other.status_code == 422
    assert other.json()["error"].startswith("the Idempotency-Key 'build 42' stands for gate 1")
    await bed.work(1)
    done = await bed.client.post(PATH, json=asked(candidate), headers=key)
    assert (done.status_code, done.json()["status"], done.json()["verdict"]) == (200, "done", "pass")


async def test_a_key_is_forgotten_after_a_day_so_that_no_old_verdict_passes_a_new_release(
    bed: Bed, candidate: str
) -> None:
    key = {"Idempotency-Key": "rollout 7"}
    await bed.client.post(PATH, json=asked(candidate), headers=key)
    with bed.database.transaction() as connection:
        connection.execute(update(gates).values(asked_at=text("now() - interval '25 hours'")))
    again = await bed.client.post(PATH, json=asked(candidate), headers=key)
    assert (again.status_code, again.json()["id"]) == (202, 2)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"route": ROUTE}, "candidate: is missing"),
        (asked("vllm:8000"), "candidate: "),
        (asked(NOBODY, route="chut"), "there is no route 'chut'; there are: chat-prod"),
        (asked(NOBODY, domains=["poetry"]), "poetry is not a domain of chat-prod; there are: math"),
        (asked(NOBODY, max_drop=10), "max_drop: 10 is not between 0% and 100%; did you mean 10%?"),
        (asked(NOBODY, timeout="soon"), "timeout: 'soon' is not a duration"),
        (asked(NOBODY, prompts=12, min_prompts=20), "prompts 12 is less than the 20 of min_prompts"),
        (asked(NOBODY, drop=1), "drop: is not known"),
        (asked(NOBODY, candidate_model="\0"), "candidate_model: has a NUL character in it"),
        (asked(NOBODY, min_speedup=True), "min_speedup: "),
        (asked(f"http://{'x' * 3_000}"), "candidate: a URL of 3007 characters is refused; 2000 are allowed"),
        (asked(NOBODY, promote=True, link="javascript:alert(1)"), "link: is not a link"),
        (asked(NOBODY, promote=True, link="https://u:s3cret@ci/42"), "link: has a user or password in it"),
        ([], "the body is not a JSON object"),
    ],
)
async def test_what_no_gate_could_do_is_refused_before_it_is_queued(bed: Bed, body: Any, told: str) -> None:
    answer = await bed.client.post(PATH, json=body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]
    assert bed.queued() == []


async def test_a_candidate_that_is_not_named_is_refused_and_the_key_is_said(
    bed: Bed, production: str, database: Database
) -> None:
    named = Gates(candidates=("*.canary.svc",))
    guarded = Bed(database, make_route(replicas=[production], domains=["math"]), named)
    async with guarded.client as client:
        refused = await client.post(PATH, json=asked("http://169.254.169.254"))
        against = await client.post(PATH, json=asked("http://v2.canary.svc", against="http://10.0.0.1:6379"))
        plain = await client.post(PATH, json=asked("http://v2.canary.svc", plain="http://10.0.0.2"))
        halted = await client.post("/api/v1/flagger", json=hook("http://169.254.169.254"))
        assert guarded.queued() == []
        admitted = await client.post(PATH, json=asked("http://v2.canary.svc", against=production))
    told = "http://169.254.169.254 is not among the hosts of gates.candidates in routes.yaml; add it there"
    assert (refused.status_code, refused.json()["error"]) == (403, told)
    assert (against.status_code, "http://10.0.0.1:6379 is not" in against.json()["error"]) == (403, True)
    assert (plain.status_code, "http://10.0.0.2 is not" in plain.json()["error"]) == (403, True)
    assert halted.status_code == 403
    assert admitted.status_code == 202


@pytest.mark.parametrize(
    ("host", "token", "candidates", "warns"),
    [
        ("0.0.0.0", CI, None, True),
        ("specwatch.prod", CI, None, True),
        ("127.0.0.1", CI, None, False),
        ("::1", CI, None, False),
        ("0.0.0.0", CI, ("*.canary.svc",), False),
        ("0.0.0.0", READER, None, False),
    ],
)
def test_serve_warns_where_others_could_have_any_server_called(
    host: str,
    token: ApiToken,
    candidates: tuple[str, ...] | None,
    warns: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = replace(make_config(make_route()), api_tokens=(token,), gates=Gates(candidates=candidates))
    warn_of_any_candidate(config, host)
    told = f"gates.candidates is unset in routes.yaml, and this listens on {host}: with the token of ci a gate may call"
    assert [message.startswith(told) for message in caplog.messages] == [True] * warns


async def test_a_body_that_is_too_large_is_refused(bed: Bed) -> None:
    answer = await bed.client.post(PATH, content=b" " * (LARGEST_BODY + 1))
    assert answer.status_code == 413


async def test_a_reader_reads_and_neither_asks_nor_cancels(bed: Bed) -> None:
    await bed.client.post(PATH, json=asked(NOBODY))
    reader = {"Authorization": "Bearer r3ad"}
    assert (await bed.client.get(f"{PATH}/1", headers=reader)).status_code == 200
    assert (await bed.client.get(PATH, headers=reader)).status_code == 200
    assert (await bed.client.post(PATH, json=asked(NOBODY), headers=reader)).status_code == 403
    assert (await bed.client.delete(f"{PATH}/1", headers=reader)).status_code == 403
    assert (await bed.client.get(f"{PATH}/1", headers={"Authorization": "Bearer none"})).status_code == 401


async def test_a_gate_that_is_not_there_is_404(bed: Bed) -> None:
    for number in ("7", str(2**64)):
        assert (await bed.client.get(f"{PATH}/{number}")).status_code == 404
        assert (await bed.client.delete(f"{PATH}/{number}")).status_code == 404
    assert (await bed.client.get(PATH, params={"limit": "many"})).status_code == 400


async def test_a_cancelled_gate_is_never_measured_and_is_no_pass(bed: Bed) -> None:
    await bed.client.post(PATH, json=asked(NOBODY))
    cancelled = (await bed.client.delete(f"{PATH}/1")).json()
    assert (cancelled["status"], cancelled["verdict"], cancelled["reason"]) == (
        "cancelled",
        "inconclusive",
        "cancelled",
    )
    assert (cancelled["text"], cancelled["exit_code"]) == ("cancelled by ci", 11)
    await bed.work(1)
    assert (await bed.client.post(f"{PATH}/1/cancel")).json() == cancelled


async def test_a_gate_that_is_measured_stops_soon_after_it_is_cancelled(
    bed: Bed, candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.service.gate_measuring.LOOK_EVERY_SECONDS", 0.02)
    began, never = asyncio.Event(), asyncio.Event()

    async def endless(*_: object, **__: object) -> None:
        began.set()
        await never.wait()

    monkeypatch.setattr("monitor.service.gate_measuring.run_gate", endless)
    await bed.client.post(PATH, json=asked(candidate))
    working = asyncio.create_task(bed.work(1))
    await asyncio.wait_for(began.wait(), 5)
    assert bed.gate(1)["status"] == "running"
    await bed.client.delete(f"{PATH}/1")
    await asyncio.wait_for(working, 5)
    assert bed.gate(1)["status"] == "cancelled"


async def test_a_gate_whose_process_died_is_measured_anew(bed: Bed, candidate: str, production: str) -> None:
    await bed.client.post(PATH, json=asked(candidate))
    with bed.database.transaction() as connection:
        assert gate_requests.claim(connection, 1, [candidate, production], START) is Claim.TAKEN
    await bed.work(1)
    assert (bed.gate(1)["status"], bed.gate(1)["verdict"]) == ("done", "pass")


async def test_a_gate_that_three_processes_left_unfinished_ends_undecided_with_its_reason(
    bed: Bed, candidate: str
) -> None:
    await bed.client.post(PATH, json=asked(candidate))
    with bed.database.transaction() as connection:
        connection.execute(update(gates).values(attempts=3))
    await bed.work(1)
    gate = bed.gate(1)
    assert (gate["status"], gate["verdict"], gate["exit_code"]) == ("done", "inconclusive", 11)
    assert gate["reason"] == "interrupted"
    assert gate["text"].startswith("given up after 3 attempts")


async def test_a_mistake_of_our_own_ends_the_gate_undecided(
    bed: Bed, candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("monitor.service.gate_measuring.run_gate", broken)
    await bed.client.post(PATH, json=asked(candidate))
    await bed.work(1)
    assert (bed.gate(1)["verdict"], bed.gate(1)["reason"], bed.runner.errors) == ("inconclusive", "interrupted", 1)


async def test_a_candidate_that_is_not_there_is_not_measurable(bed: Bed) -> None:
    await bed.client.post(PATH, json=asked(NOBODY))
    await bed.work(1)
    gate = bed.gate(1)
    assert (gate["status"], gate["verdict"], gate["reason"]) == ("done", "not_measurable", "unreachable")


async def test_two_gates_never_measure_one_server_at_once(bed: Bed, candidate: str, production: str) -> None:
    for _ in range(2):
        await bed.client.post(PATH, json=asked(candidate))
    with bed.database.transaction() as connection:
        assert gate_requests.claim(connection, 1, [candidate, production], START) is Claim.TAKEN
        assert gate_requests.claim(connection, 2, ["http://other:8000", production], START) is Claim.BUSY
        assert gate_requests.is_measured(connection, candidate)
        assert not gate_requests.is_measured(connection, "http://other:8000")
    await bed.work(2)
    assert bed.gate(2)["status"] == "queued"
    later = bed.queued()[-1]
    assert (later["task_name"], later["lock"]) == ("gate later", None)
    with bed.database.transaction() as connection:
        connection.execute(update(gates).where(gates.c.id == 1).values(lease_until=text("now()")))
    with bed.database.transaction() as connection:
        assert gate_requests.claim(connection, 2, [candidate, production], START) is Claim.TAKEN


@pytest.mark.parametrize("claimed", [True, False])
async def test_a_gate_silent_for_longer_than_its_lease_goes_on_only_where_no_other_has_its_servers(
    bed: Bed, candidate: str, production: str, claimed: bool
) -> None:
    for _ in range(2):
        await bed.client.post(PATH, json=asked(candidate))
    with bed.database.transaction() as connection:
        assert gate_requests.claim(connection, 1, [candidate, production], START) is Claim.TAKEN
        connection.execute(update(gates).where(gates.c.id == 1).values(lease_until=text("now() - interval '1 s'")))
    if claimed:
        with bed.database.transaction() as connection:
            assert gate_requests.claim(connection, 2, [production], START) is Claim.TAKEN
    with bed.database.transaction() as connection:
        assert gate_requests.renew(connection, 1, START) is not claimed
        assert gate_requests.claim(connection, 2, [production], START) is (Claim.TAKEN if claimed else Claim.BUSY)
    gate = bed.gate(1)
    if claimed:
        assert (gate["status"], gate["verdict"], gate["reason"]) == ("done", "inconclusive", "interrupted")
        assert gate["text"] == (
            "its process was silent for over 30 s, and its servers are another's meanwhile: "
            f"gate 2 of route {ROUTE}, asked by ci, measures {production}"
        )
    else:
        assert (gate["status"], gate["verdict"]) == ("running", None)


async def test_the_first_ending_stands(bed: Bed) -> None:
    await bed.client.post(PATH, json=asked(NOBODY))
    await bed.client.delete(f"{PATH}/1")
    with bed.database.transaction() as connection:
        assert not gate_requests.finish(connection, 1, {"verdict": "pass"}, START)
        assert not gate_requests.give_up(connection, 1, GateReason.INTERRUPTED, "late", START)
        assert not gate_requests.renew(connection, 1, START)
    assert bed.gate(1)["status"] == "cancelled"


def hook(candidate: str, **changes: Any) -> dict[str, Any]:
    """What Flagger posts; its metadata are texts."""
    metadata = {"route": ROUTE, "candidate": candidate, "prompts": "24", "domains": "math"}
    return {
        "name": "chat",
        "namespace": "prod",
        "phase": "Progressing",
        "checksum": "85d557f47b",
        "metadata": metadata,
        **changes,
    }


async def test_flagger_is_halted_until_the_gate_has_passed(bed: Bed, candidate: str) -> None:
    """A new revision is another checksum, and another gate."""
    halted = await bed.client.post("/api/v1/flagger", json=hook(candidate))
    assert (halted.status_code, halted.text) == (409, "gate 1 queued: waits for its turn\n")
    assert (await bed.client.post("/api/v1/flagger/rollback", json=hook(candidate))).status_code == 409
    assert len(bed.queued()) == 1
    await bed.work(1)
    passed = await bed.client.post("/api/v1/flagger", json=hook(candidate))
    assert (passed.status_code, passed.text.startswith("gate 1 pass: ")) == (200, True)
    assert (await bed.client.post("/api/v1/flagger/rollback", json=hook(candidate))).status_code == 412
    other = await bed.client.post("/api/v1/flagger", json=hook(candidate, checksum="other"))
    assert (other.status_code, other.text) == (409, "gate 2 queued: waits for its turn\n")


async def test_flagger_rolls_back_only_what_has_failed(bed: Bed) -> None:
    with SimulatedServer(ServerConfig(drafter=WORSE)).run_in_thread() as worse:
        await bed.client.post("/api/v1/flagger", json=hook(worse))
        await bed.work(1)
        refused = await bed.client.post("/api/v1/flagger", json=hook(worse))
        rollback = await bed.client.post("/api/v1/flagger/rollback", json=hook(worse))
    assert (refused.status_code, refused.text.startswith("gate 1 fail: ")) == (412, True)
    assert rollback.status_code == 200


@pytest.mark.parametrize(("text", "status"), [("1.1", 409), ("fast", 400), ("nan", 400)])
async def test_flagger_can_ask_for_a_speedup_in_its_metadata(bed: Bed, text: str, status: int) -> None:
    metadata = {"route": ROUTE, "candidate": NOBODY, "plain": "http://plain:8000", "min_speedup": text}
    answer = await bed.client.post("/api/v1/flagger", json=hook(NOBODY, metadata=metadata))
    assert answer.status_code == status
    if status == 409:
        assert bed.gate(1)["thresholds"]["min_speedup"] == 1.1
    else:
        assert "min_speedup: " in answer.json()["error"]


@pytest.mark.parametrize("missing", ["name", "namespace", "checksum", "metadata"])
async def test_what_is_no_hook_of_flaggers_halts(bed: Bed, missing: str) -> None:
    sent = hook(NOBODY)
    del sent[missing]
    answer = await bed.client.post("/api/v1/flagger", json=sent)
    assert answer.status_code == 400
    assert missing in answer.json()["error"]


async def test_flagger_sends_its_token_as_the_password_of_the_url(bed: Bed) -> None:
    for password, status in (("s3cret", 409), ("wrong", 401)):
        basic = {"Authorization": f"Basic {base64.b64encode(f'flagger:{password}'.encode()).decode()}"}
        assert (await bed.client.post("/api/v1/flagger", json=hook(NOBODY), headers=basic)).status_code == status
