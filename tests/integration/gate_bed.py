"""The gate's API beside the runner that its worker would have, on the simulated server of production."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from sqlalchemy import text

from monitor.config.tokens import ApiToken
from monitor.prompts.sets import bundled_directory, load_prompt_sets
from monitor.service.discovery import Replicas
from monitor.service.gate_runner import GateRunner
from monitor.service.jobs import GateJob
from monitor.sim.model import Drafter
from monitor.store.gates import get_gate
from monitor.web.app import build_app
from monitor.web.flagger import flagger_api
from monitor.web.gates import gate_api
from tests.factories import ROUTE, START

if TYPE_CHECKING:
    from monitor.config.gates import Gates
    from monitor.config.routes import Route
    from monitor.store.database import Database

CI = ApiToken.model_validate({"name": "ci", "token": {"env": "CI_TOKEN"}, "scopes": ["gates:read", "gates:write"]})
READER = ApiToken.model_validate({"name": "page", "token": {"env": "READ_TOKEN"}, "scopes": ["gates:read"]})
RELEASE = ApiToken.model_validate(
    {"name": "release", "token": {"env": "RELEASE_TOKEN"}, "scopes": ["gates:read", "gates:write", "bump"]}
)
BEARER = {"Authorization": "Bearer s3cret"}
SETS = load_prompt_sets(bundled_directory())
WORSE = Drafter(name="worse", default_acceptance=(0.5, 0.5, 0.5, 0.5))
NOBODY = "http://127.0.0.1:9"


class Bed:
    """The API beside the runner that its worker would have; `work` plays the worker."""

    def __init__(self, database: Database, route: Route, gates: Gates | None = None) -> None:
        self.database = database
        self.route = route
        self.runner = GateRunner(database, [route], SETS, Replicas([route]), lambda: START, gates)
        api = [
            *gate_api(database, [CI, READER, RELEASE], self.runner.ask, lambda: START),
            *flagger_api(database, [CI, READER, RELEASE], self.runner.ask),
        ]
        self.app = build_app(database, list, dict, [route], api)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://specwatch", headers=BEARER)

    async def work(self, gate_id: int) -> None:
        await self.runner.work(GateJob(f"gate {gate_id}", ROUTE, gate_id, NOBODY))

    def queued(self) -> list[dict[str, Any]]:
        with self.database.transaction() as connection:
            rows = connection.execute(text("SELECT task_name, lock, args FROM procrastinate_jobs ORDER BY id"))
            return [row._asdict() for row in rows]

    def gate(self, gate_id: int) -> dict[str, Any]:
        with self.database.transaction() as connection:
            found = get_gate(connection, gate_id)
        assert found is not None
        return found
