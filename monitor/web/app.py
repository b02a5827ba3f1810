"""The HTTP side of `serve`: is it alive, is it ready, what does it measure."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from monitor.core.format import timeline
from monitor.errors import StoreError
from monitor.runbook import runbook
from monitor.store.incidents import get_incident
from monitor.store.snapshot import Snapshot, snapshot
from monitor.web import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from monitor.config.routes import Route as ConfiguredRoute
    from monitor.core.tally import Tally
    from monitor.store.database import Database

PAGES = {
    "/healthz": "200 while the process lives",
    "/readyz": "200 while it can do its work, else 503 and why",
    "/metrics": "figures for Prometheus",
    "/incidents/ID": "an incident with its timeline; `specwatch incidents` lists them",
    "/runbook": "what to do about an alert",
    "/api/v1/bumps": "POST with a token of api_tokens: announces a change",
    "/api/v1/gates": "POST with a token: has a candidate measured; GET /api/v1/gates/ID: how far it is",
}
"""What `/` names; Flagger's hooks are described in docs/gate.md."""


def build_app(
    database: Database,
    problems: Callable[[], list[str]],
    counters: Callable[[], Mapping[str, float | Tally]],
    routes: Sequence[ConfiguredRoute],
    api: Sequence[Route] = (),
    heartbeat: Callable[[], str | None] = lambda: None,
    receivers: Sequence[str] = (),
) -> Starlette:
    """`problems`: why this process cannot do its work now, empty when it can. `counters`: its own counts.

    `routes`: the routes that are configured. `api`: further paths, each kept in a module of its own.
    `heartbeat`: why the dead-man's switch is not called; it makes nobody unready, since others cannot do better.
    `receivers`: names of those that are configured.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(_: Request) -> Response:
        found = problems()
        try:
            await asyncio.to_thread(database.check_server)
        except StoreError as error:
            found = [*found, str(error)]
        body = {"ready": not found, "problems": found, "heartbeat": heartbeat()}
        return JSONResponse(body, status_code=503 if found else 200)

    async def metrics_page(_: Request) -> Response:
        try:
            found = await asyncio.to_thread(_snapshot, database)
        except StoreError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)
        return Response(metrics.render(found, counters(), routes, receivers), media_type=metrics.CONTENT_TYPE)

    async def incident(request: Request) -> Response:
        number = request.path_params["number"]
        try:
            found = await asyncio.to_thread(_incident, database, number)
        except StoreError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)
        if found is None:
            return PlainTextResponse(f"there is no incident {number}\n", status_code=404)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse(found)
        head = f"incident {number} of {found['route']}: {found['state']}, {found['severity']}\n"
        return PlainTextResponse(f"{head}{timeline(found, _utc)}\n")

    async def runbook_page(_: Request) -> Response:
        return PlainTextResponse(runbook())

    async def start_page(request: Request) -> Response:
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"pages": PAGES})
        width = max(map(len, PAGES))
        return PlainTextResponse("".join(f"{path:{width}}  {meaning}\n" for path, meaning in PAGES.items()))

    return Starlette(
        routes=[
            Route("/", start_page),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics_page),
            Route("/incidents/{number:int}", incident),
            Route("/runbook", runbook_page),
            *api,
        ]
    )


def _utc(value: str) -> str:
    """An ISO time to the second: a page does not know where its reader is."""
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S %Z")


def _incident(database: Database, number: int) -> dict[str, Any] | None:
    with database.transaction() as connection:
        return get_incident(connection, number) if number < 2**63 else None


def _snapshot(database: Database) -> Snapshot:
    with database.transaction() as connection:
        return snapshot(connection)
