"""`/api/v1/gates`: pipelines ask for a gate, look how far it is, and cancel it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import orjson
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from monitor.config.gate_request import GateRequest
from monitor.core.gate_status import OPEN
from monitor.errors import RefusedError, StoreError, UsageError
from monitor.store import gate_requests
from monitor.store.gates import get_gate, list_gates
from monitor.web.tokens import asked_route, authorised, lacking, problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from starlette.requests import Request

    from monitor.config.tokens import ApiToken
    from monitor.store.database import Database
    from monitor.store.gate_requests import Asked

    Ask = Callable[[GateRequest, Mapping[str, Any], str, str | None], Asked]

PATH = "/api/v1/gates"
LARGEST_BODY = 64 * 1024
LONGEST_KEY = 255
LISTED, MOST_LISTED = 20, 200


def gate_api(database: Database, tokens: Sequence[ApiToken], ask: Ask, now: Callable[[], datetime]) -> list[Route]:
    """`ask(request, as it was sent, by, key)` keeps and queues a gate, once per key."""

    async def post(request: Request) -> Response:
        token = authorised(request, tokens, "gates:write")
        if isinstance(token, Response):
            return token
        body = await body_of(request)
        return body if isinstance(body, Response) else await asked(database, ask, body, token, key_of(request))

    async def one(request: Request) -> Response:
        token = authorised(request, tokens, "gates:read")
        if isinstance(token, Response):
            return token
        return await _shown(database, request.path_params["number"])

    async def every(request: Request) -> Response:
        token = authorised(request, tokens, "gates:read")
        if isinstance(token, Response):
            return token
        limit = request.query_params.get("limit", str(LISTED))
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= MOST_LISTED:
            return problem(400, f"limit {limit!r} is not a whole number from 1 to {MOST_LISTED}")
        try:
            found = await asyncio.to_thread(_list, database, asked_route(request), int(limit))
        except StoreError as error:
            return problem(503, str(error))
        return JSONResponse({"gates": found})

    async def cancel(request: Request) -> Response:
        token = authorised(request, tokens, "gates:write")
        if isinstance(token, Response):
            return token
        number = request.path_params["number"]
        try:
            await asyncio.to_thread(_cancel, database, number, token.name, now())
        except StoreError as error:
            return problem(503, str(error))
        return await _shown(database, number)

    number = f"{PATH}/{{number:int}}"
    return [
        Route(PATH, post, methods=["POST"]),
        Route(PATH, every, methods=["GET"]),
        Route(number, one, methods=["GET"]),
        Route(number, cancel, methods=["DELETE"]),
        Route(f"{number}/cancel", cancel, methods=["POST"]),
    ]


def key_of(request: Request) -> str | None:
    return request.headers.get("idempotency-key", "").strip()[: LONGEST_KEY + 1] or None


async def asked(database: Database, ask: Ask, body: Mapping[str, Any], token: ApiToken, key: str | None) -> Response:
    """202 with the gate while it has no verdict, 200 when the key's has; 4xx says what is wrong with the body."""
    found = await gate_of(database, ask, body, token, key)
    if isinstance(found, Response):
        return found
    status = 202 if found["status"] in OPEN else 200
    return JSONResponse(found, status_code=status, headers={"Location": f"{PATH}/{found['id']}"})


async def gate_of(
    database: Database, ask: Ask, body: Mapping[str, Any], token: ApiToken, key: str | None
) -> dict[str, Any] | Response:
    """The document of the gate that this asks for, new or the key's own, or the answer that refuses it."""
    if key is not None and len(key) > LONGEST_KEY:
        return problem(400, f"the Idempotency-Key is longer than {LONGEST_KEY} characters")
    try:
        request = GateRequest.model_validate(body)
        if request.promote and "bump" not in token.scopes:
            return lacking(token, "bump")
        found = await asyncio.to_thread(ask, request, body, token.name, key)
        if not found.same:
            told = f"the Idempotency-Key {key!r} stands for gate {found.id}, of which something else was asked"
            return problem(422, f"{told}; send another key for another gate")
        return cast("dict[str, Any]", await asyncio.to_thread(_get, database, found.id))
    except ValidationError as error:
        return problem(400, _wrong(error))
    except RefusedError as error:
        return problem(403, str(error))
    except UsageError as error:
        return problem(400, str(error))
    except StoreError as error:
        return problem(503, str(error))


async def body_of(request: Request) -> dict[str, Any] | Response:
    """The object that was sent, or the answer that refuses it."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            return problem(413, f"the body is larger than {LARGEST_BODY} bytes")
    try:
        document = orjson.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return problem(400, 'the body is not a JSON object; send for example {"route": …, "candidate": …}')
    return document


def _wrong(error: ValidationError) -> str:
    words = {"extra_forbidden": "is not known", "missing": "is missing", "string_type": "is not a text"}
    told = [
        f"{'.'.join(map(str, one['loc'])) or 'the body'}: "
        f"{words.get(one['type']) or str(one['msg']).removeprefix('Value error, ')}"
        for one in error.errors()
    ]
    return f"{'; '.join(told)}. Known are: {', '.join(GateRequest.model_fields)}; route and candidate are required"


async def _shown(database: Database, number: int) -> Response:
    try:
        found = await asyncio.to_thread(_get, database, number) if number < 2**63 else None
    except StoreError as error:
        return problem(503, str(error))
    return problem(404, f"there is no gate {number}; GET {PATH} lists them") if found is None else JSONResponse(found)


def _get(database: Database, number: int) -> dict[str, Any] | None:
    with database.transaction() as connection:
        return get_gate(connection, number)


def _list(database: Database, route: str | None, limit: int) -> list[dict[str, Any]]:
    with database.transaction() as connection:
        return list_gates(connection, route, limit)


def _cancel(database: Database, number: int, by: str, at: datetime) -> None:
    with database.transaction() as connection:
        if number < 2**63:
            gate_requests.cancel(connection, number, by, at)
