"""Gates asked over HTTP: kept and queued at once, then measured by whichever worker takes them, and ended once.

1. `ask` keeps the gate and queues its job in one transaction: an answer with an id is a gate that will end.
2. A worker claims both servers, so that no two gates measure one of them; it says every few seconds that it lives.
3. The verdict, a cancellation or the third worker that dies of it ends the gate. What was cut short is measured anew.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monitor.config.gate_request import GateRequest
from monitor.config.gates import Gates
from monitor.core.address import url_and_rank
from monitor.core.gate import REFERENCES, GateReason
from monitor.errors import RefusedError, StoreError, UsageError
from monitor.probing.gate_servers import Server
from monitor.service.complaint import Complaint
from monitor.service.gate_measuring import open_gate, servers_of, unless_ended
from monitor.service.gating import sides_of
from monitor.service.jobs import GateJob, defer_gate
from monitor.service.promoting import Promoting
from monitor.store import gate_requests
from monitor.store.gate_requests import MOST_ATTEMPTS, Asked, Claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from monitor.config.routes import Route
    from monitor.core.gate_verdict import GateVerdict
    from monitor.prompts.sets import PromptSet
    from monitor.service.discovery import Replicas
    from monitor.service.gating import Sides
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

BUSY_RETRY = timedelta(seconds=5)
STORE_RETRY_SECONDS = 1.0
STORE_PATIENCE = timedelta(minutes=30)
"""How long a verdict is kept in memory while the database is away."""


class GateRunner:
    """Asks for gates and measures them. `errors` counts what went wrong by a mistake of Specwatch itself."""

    def __init__(
        self,
        database: Database,
        routes: Iterable[Route],
        prompt_sets: Mapping[str, PromptSet],
        replicas: Replicas,
        now: Callable[[], datetime],
        gates: Gates | None = None,
    ) -> None:
        self._database = database
        self._routes = {route.name: route for route in routes}
        self._prompt_sets = prompt_sets
        self._replicas = replicas
        self._now = now
        self._gates = gates or Gates()
        self.errors = 0

    def ask(self, request: GateRequest, asked: Mapping[str, Any], by: str, key: str | None) -> Asked:
        """Keeps the gate and queues it, once per key. Raises UsageError for what no gate could do, and StoreError.

        Who promotes, where that is not said, is `by`.
        """
        if request.promote and request.by is None:
            request, asked = request.model_copy(update={"by": by}), {**asked, "by": by}
        sides = self._sides(request)
        candidate, reference, _ = sides
        against = reference if isinstance(reference, Server) else candidate
        with self._database.transaction() as connection:
            found = gate_requests.ask(connection, open_gate(sides, self._now()), asked, by, key)
            if found.new:
                job = GateJob(f"gate {found.id}", request.route, found.id, against.target.base_url)
                defer_gate(connection, job)
        return found

    async def work(self, job: GateJob) -> None:
        """Measures the gate and ends it. Raises StoreError where the database is away: then it is tried again."""
        try:
            await self._measure(job)
        except StoreError:
            raise
        except UsageError as error:
            await self._give_up(job, GateReason.RUN_INVALID, str(error))
        except Exception as error:
            self.errors += 1
            logger.exception("gate %s failed; this is a mistake in Specwatch, please report it", job.gate_id)
            told = f"a mistake in Specwatch: {type(error).__name__}; its log has more"
            await self._give_up(job, GateReason.INTERRUPTED, told)

    async def take_its_turn(self, job: GateJob) -> None:
        """A gate that waited for its servers takes its place among the probes of its replica."""
        await asyncio.to_thread(self._defer, job, None)

    async def _measure(self, job: GateJob) -> None:
        asked = await asyncio.to_thread(self._asked, job.gate_id)
        if asked is None:
            return
        request = GateRequest.model_validate(asked)
        sides = self._sides(request)
        match await asyncio.to_thread(self._claim, job.gate_id, sides):
            case Claim.OVER:
                return
            case Claim.BUSY:
                await asyncio.to_thread(self._defer, job, self._now() + BUSY_RETRY)
            case Claim.WORN:
                why = f"given up after {MOST_ATTEMPTS} attempts: each was cut short by the end of its process"
                await self._give_up(job, GateReason.INTERRUPTED, why)
            case Claim.TAKEN:
                logger.info("gate %s: %s is measured", job.gate_id, request.candidate)
                route = self._routes[request.route]
                promoting = Promoting(route, lambda: self._replicas.known(route))
                verdict = await unless_ended(self._database, job.gate_id, sides, promoting.candidate_runs.append)
                if verdict is not None:
                    await self._keep(job.gate_id, verdict, promoting)

    def _sides(self, request: GateRequest) -> Sides:
        """Raises UsageError, and RefusedError for a server that no gate may call."""
        route = self._routes.get(request.route)
        if route is None:
            raise UsageError(f"there is no route {request.route!r}; there are: {', '.join(self._routes)}")
        self._require_admitted(request, route)
        return sides_of(self._database, route, request, self._prompt_sets, lambda: self._replicas.known(route))

    def _require_admitted(self, request: GateRequest, route: Route) -> None:
        own = {url_and_rank(replica)[0] for replica in self._replicas.known(route)}
        asked = {request.candidate, request.against, request.plain or request.candidate}
        for url in asked - own - {*REFERENCES, route.plain_twin}:
            if not self._gates.admits(url):
                raise RefusedError(f"{url} is not among the hosts of gates.candidates in routes.yaml; add it there")

    async def _keep(self, gate_id: int, verdict: GateVerdict, promoting: Promoting) -> None:
        """However long the database takes to come back. Raises StoreError after STORE_PATIENCE."""
        deadline = self._now() + STORE_PATIENCE
        waiting = Complaint(logger, f"the verdict of gate {gate_id} waits for the database", f"gate {gate_id} is kept")
        while True:
            try:
                await asyncio.to_thread(self._finish, gate_id, verdict, promoting)
            except StoreError as error:
                if self._now() > deadline:
                    raise
                waiting.raise_for(error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
            else:
                waiting.end()
                logger.info("gate %s: %s", gate_id, verdict.decision.value)
                return

    async def _give_up(self, job: GateJob, reason: GateReason, why: str) -> None:
        logger.warning("gate %s is not measured: %s", job.gate_id, why)
        await asyncio.to_thread(self._end_early, job.gate_id, reason, why)

    def _asked(self, gate_id: int) -> dict[str, Any] | None:
        with self._database.transaction() as connection:
            return gate_requests.asked_of(connection, gate_id)

    def _claim(self, gate_id: int, sides: Sides) -> Claim:
        with self._database.transaction() as connection:
            return gate_requests.claim(connection, gate_id, servers_of(sides), self._now())

    def _finish(self, gate_id: int, verdict: GateVerdict, promoting: Promoting) -> None:
        with self._database.transaction() as connection:
            promoting.finish(connection, gate_id, verdict, self._now())

    def _end_early(self, gate_id: int, reason: GateReason, why: str) -> None:
        with self._database.transaction() as connection:
            gate_requests.give_up(connection, gate_id, reason, why, self._now())

    def _defer(self, job: GateJob, at: datetime | None) -> None:
        with self._database.transaction() as connection:
            defer_gate(connection, job, at)
