"""`/api/v1/bumps` over HTTP: who may announce, what is asked for, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from monitor.config.tokens import ApiToken
from monitor.service.bumps import announce
from monitor.store import queue
from monitor.web.app import build_app
from monitor.web.bumps import LARGEST_BODY, bump_api
from tests.factories import DOMAIN, REPLICA, ROUTE, START, make_route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from monitor.config.routes import Route
    from monitor.core.bumps import Announced
    from monitor.store.database import Database

CI = ApiToken.model_validate({"name": "ci", "token": {"env": "CI_TOKEN"}, "scopes": ["bump"]})
OTHER = CI.model_copy(update={"name": "other", "scopes": ("something-else",)})
BEARER = {"Authorization": "Bearer s3cret"}
PATH = "/api/v1/bumps"


def client_of(database: Database, tokens: Sequence[ApiToken]) -> httpx.AsyncClient:
    def announce_now(route: Route, what: Announced, by: str, **said: Any) -> Any:
        with database.transaction() as connection:
            document, jobs = announce(connection, route, [REPLICA], what, by, START, **said)
        return document, None if jobs is None else [{"domain": job.domain, "replica": job.replica} for job in jobs]

    routes = [make_route(domains=[DOMAIN])]
    app = build_app(database, list, dict, routes, bump_api(database, routes, tokens, announce_now))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://specwatch")


@pytest.fixture
async def client(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("CI_TOKEN", "s3cret")
    async with client_of(database, [CI]) as found:
        yield found


async def test_a_pipeline_announces_a_bump_once_and_probes_are_queued(
    client: httpx.AsyncClient, database: Database
) -> None:
    asked = {"route": ROUTE, "drafter": "org/drafter-v2", "link": "https://ci.example.com/42"}
    first = await client.post(PATH, json=asked, headers=BEARER)
    assert first.status_code == 201
    assert first.json() == {
        "announcement": {
            "id": 1,
            "route": ROUTE,
            "model": None,
            "drafter": "org/drafter-v2",
            "engine_version": None,
            "candidate": None,
            "note": None,
            "link": "https://ci.example.com/42",
            "key": "https://ci.example.com/42",
            "by": "ci",
            "announced_at": START.isoformat(),
        },
        "queued": [{"domain": DOMAIN, "replica": REPLICA}],
    }
    with database.transaction() as connection:
        states = queue.job_states(connection, [f"announced 1 {DOMAIN} {REPLICA}"])
    assert list(states.values()) == ["todo"]
    again = await client.post(PATH, json=asked, headers=BEARER)
    assert (again.status_code, again.json()) == (200, {**first.json(), "queued": []})
    other = await client.post(PATH, json={**asked, "key": "43", "by": "ann"}, headers=BEARER)
    assert (other.status_code, other.json()["announcement"]["by"]) == (201, "ann")


async def test_bumps_are_listed_by_route_for_anybody(client: httpx.AsyncClient) -> None:
    await client.post(PATH, json={"route": ROUTE, "key": "1"}, headers=BEARER)
    [bump] = (await client.get(PATH, params={"route": ROUTE})).json()["bumps"]
    assert (bump["route"], bump["state"], bump["announcement"]["key"]) == (ROUTE, "probing", "1")
    assert (await client.get(PATH)).json()["bumps"] == [bump]
    assert (await client.get(PATH, params={"route": "\0"})).status_code == 404
    missing = await client.get(PATH, params={"route": "chut"})
    assert (missing.status_code, missing.json()) == (404, {"error": f"there is no route 'chut'; there are: {ROUTE}"})


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic s3cret"}, {"Authorization": "Bearer "}])
async def test_without_a_token_the_answer_says_which_scope_is_needed(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await client.post(PATH, json={"route": ROUTE}, headers=headers)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "with a token of api_tokens that has the scope bump" in answer.json()["error"]


async def test_a_token_that_nobody_has_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json={"route": ROUTE}, headers={"Authorization": "Bearer other"})
    assert answer.status_code == 401
    assert "none of api_tokens in routes.yaml; one with the scope bump is needed" in answer.json()["error"]


async def test_a_token_for_something_else_is_forbidden_and_told_what_it_lacks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_TOKEN", "s3cret")
    async with client_of(database, [OTHER]) as client:
        answer = await client.post(PATH, json={"route": ROUTE}, headers=BEARER)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("token other lacks the scope bump, it has something-else")


async def test_without_tokens_in_the_configuration_nobody_may_and_the_key_to_set_is_named(database: Database) -> None:
    async with client_of(database, []) as client:
        answer = await client.post(PATH, json={"route": ROUTE}, headers=BEARER)
    assert answer.status_code == 403
    assert "api_tokens: [{name: ci, token: {env: SPECWATCH_CI_TOKEN}, scopes: [bump]}]" in answer.json()["error"]


async def test_a_secret_that_cannot_be_had_fits_nobody(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_TOKEN", raising=False)
    async with client_of(database, [CI]) as client:
        assert (await client.post(PATH, json={"route": ROUTE}, headers=BEARER)).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "the body is not JSON"),
        (b"[]", 400, "the body: "),
        (b"{}", 400, "route: is missing. Allowed are texts under: route, model, drafter, engine_version"),
        (b'{"route": "chat-prod", "target": "x"}', 400, "target: is not known"),
        (b'{"route": "chat-prod", "model": 3}', 400, "model: is not a text"),
        (b'{"route": "chat-prod", "model": " "}', 400, "model: is empty"),
        (b'{"route": "chat-prod", "model": "a\\u0001b"}', 400, "model: has a character that cannot be printed"),
        (b'{"route": "chut"}', 404, "there is no route 'chut'; there are: "),
        (b" " * (LARGEST_BODY + 1), 413, "the body is larger than"),
    ],
)
async def test_what_is_wrong_is_said_with_what_is_allowed(
    client: httpx.AsyncClient, body: bytes, status: int, said: str
) -> None:
    answer = await client.post(PATH, content=body, headers=BEARER)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
