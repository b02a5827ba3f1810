"""`/api/v1/bumps`: pipelines announce bumps, and anybody sees what became of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from monitor.config.strict import Line, Link, StrictModel
from monitor.core.bumps import Announced
from monitor.errors import StoreError
from monitor.store.bumps import list_bumps
from monitor.web.tokens import asked_route, authorised, problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from monitor.config.routes import Route as ConfiguredRoute
    from monitor.config.tokens import ApiToken
    from monitor.store.database import Database

    Announce = Callable[..., tuple[dict[str, Any], list[dict[str, str]] | None]]

PATH = "/api/v1/bumps"
LARGEST_BODY = 64 * 1024
LISTED = 50


class BumpRequest(StrictModel):
    """What a pipeline announces; unset is not said. `by` unset: the name of its token."""

    route: Line
    model: Line | None = None
    drafter: Line | None = None
    engine_version: Line | None = None
    note: Line | None = None
    by: Line | None = None
    link: Link | None = None
    key: Line | None = None


def bump_api(
    database: Database, routes: Sequence[ConfiguredRoute], tokens: Sequence[ApiToken], announce: Announce
) -> list[Route]:
    """`announce(route, what, by, note=…, link=…, key=…)`: the announcement and the probes queued, None on a repeat."""
    configured = {route.name: route for route in routes}

    def unknown(name: str) -> Response:
        return problem(404, f"there is no route {name!r}; there are: {', '.join(configured)}")

    async def post(request: Request) -> Response:
        token = authorised(request, tokens, "bump")
        if isinstance(token, Response):
            return token
        asked = _read(await _body(request))
        if isinstance(asked, Response):
            return asked
        if asked.route not in configured:
            return unknown(asked.route)
        what = Announced(asked.model, asked.drafter, asked.engine_version)
        said = {"note": asked.note, "link": asked.link, "key": asked.key}
        try:
            document, queued = await asyncio.to_thread(
                lambda: announce(configured[asked.route], what, asked.by or token.name, **said)
            )
        except StoreError as error:
            return problem(503, str(error))
        body = {"announcement": document, "queued": queued or []}
        return JSONResponse(body, status_code=200 if queued is None else 201)

    async def get(request: Request) -> Response:
        route = asked_route(request)
        try:
            found = await asyncio.to_thread(_list, database, route)
        except StoreError as error:
            return problem(503, str(error))
        if route is not None and not found and route not in configured:
            return unknown(route)
        return JSONResponse({"bumps": found})

    return [Route(PATH, post, methods=["POST"]), Route(PATH, get, methods=["GET"])]


def _read(body: bytes | None) -> BumpRequest | Response:
    if body is None:
        return problem(413, f"the body is larger than {LARGEST_BODY} bytes")
    allowed = ", ".join(BumpRequest.model_fields)
    try:
        document = orjson.loads(body)
    except ValueError:
        return problem(400, f"the body is not JSON; send an object with some of: {allowed}")
    try:
        return BumpRequest.model_validate(document)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the body'}: {_said(one)}" for one in error.errors())
        return problem(400, f"{wrong}. Allowed are texts under: {allowed}; route is required")


def _said(error: Any) -> str:
    words = {"extra_forbidden": "is not known", "missing": "is missing", "string_type": "is not a text"}
    return words.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")


async def _body(request: Request) -> bytes | None:
    """All of it, or None when it is too large to be one of ours."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            return None
    return body


def _list(database: Database, route: str | None) -> list[dict[str, Any]]:
    with database.transaction() as connection:
        return list_bumps(connection, route, LISTED)
