"""The servers of a gate: whether they may be held against each other, and whether they stay what they were."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from monitor.core.gate import GateReason
from monitor.core.records import Identity
from monitor.errors import TargetError
from monitor.probing.client import Client
from monitor.probing.gate_reasons import reason_of

if TYPE_CHECKING:
    from monitor.core.records import Run
    from monitor.engines.base import Engine, Observation
    from monitor.probing.clock import Clock
    from monitor.probing.target import Target


@dataclass(frozen=True)
class Server:
    """One server of a gate. `name`: `candidate`, `reference` or `twin`."""

    name: str
    target: Target
    engine: Engine
    declared: Identity = field(default_factory=Identity)


class GateServers:
    """All that one gate asks. `against`: None where the candidate is held against a baseline.

    `refusal` comes first and fills, by name of the server, `seen`, the identity it has shown, and `targets`, how it is
    asked, with the model that was found.
    """

    def __init__(self, candidate: Server, against: Server | None, twin: Server | None, clock: Clock) -> None:
        self.candidate = candidate
        self.against = against
        self.twin = twin
        self.seen: dict[str, Identity] = {}
        self.targets: dict[str, Target] = {}
        self._started: dict[str, float] = {}
        self._clock = clock

    @property
    def pair(self) -> tuple[Server, ...]:
        """In the order of a pair."""
        return (self.candidate,) if self.against is None else (self.against, self.candidate)

    async def refusal(self) -> tuple[GateReason, str] | None:
        """Why nothing needs to be measured."""
        others = [server for server in (self.against, self.twin) if server is not None]
        for other in others:
            if other.target.base_url.rstrip("/") == self.candidate.target.base_url.rstrip("/"):
                return GateReason.SAME_SERVER, f"{other.target.base_url} cannot be held against itself"
        looks: dict[str, Observation] = {}
        for server in (*self.pair, *([self.twin] if self.twin else [])):
            beside = looks.get("candidate" if server is self.twin else "reference")
            try:
                looks[server.name] = await self._look_at(server, beside)
            except TargetError as error:
                return reason_of(error.reason, server.name), f"{server.name}: {error}"
        if self.twin is not None and looks["twin"].glance.speculates:
            told = f"{self.twin.target.replica} speculates: it is no plain twin to hold the candidate against"
            return GateReason.TWIN_SPECULATES, told
        return next((found for other in others if (found := self._one_process(looks, other))), None)

    def problem(self, server: Server, run: Run) -> tuple[GateReason, str] | None:
        """Why the run says nothing, or says it of something else than what was there at first."""
        if run.invalid_reason is not None:
            return reason_of(
                run.invalid_reason, server.name
            ), f"{server.name}: {run.invalid_detail or run.invalid_reason}"
        if problem := self._another(server, run.identity, run.regime.server_started_at):
            return problem
        self.seen[server.name] = run.identity
        return None

    async def no_longer(self, *servers: Server | None) -> tuple[GateReason, str] | None:
        """Why one of them is not what was measured any more: a run tells only of what there was as it began."""
        for server in filter(None, servers):
            try:
                found = await self._observed(server, self.targets[server.name].model)
            except TargetError as error:
                return reason_of(error.reason, server.name), f"{server.name}: {error}"
            if problem := self._another(server, found.identity, found.glance.load.started_at):
                return problem
        return None

    async def _look_at(self, server: Server, reference: Observation | None) -> Observation:
        """The candidate must serve the reference's model, its twin the candidate's, unless another is named."""
        wanted = server.target.model or (None if reference is None else reference.identity.model)
        found = await self._observed(server, wanted)
        self.seen[server.name] = found.identity
        self.targets[server.name] = replace(server.target, model=found.model)
        if (started_at := found.glance.load.started_at) is not None:
            self._started[server.name] = started_at
        return found

    async def _observed(self, server: Server, model: str | None) -> Observation:
        async with Client(server.target, connections=1, monotonic=self._clock.monotonic) as client:
            return await server.engine.observe(client, model, server.declared)

    def _one_process(self, looks: dict[str, Observation], other: Server) -> tuple[GateReason, str] | None:
        """Two addresses of one process: they started at the same hundredth of a second, as the same thing."""
        started = self._started.get("candidate")
        if started is None or started != self._started.get(other.name):
            return None
        if looks["candidate"].identity.changes_from(looks[other.name].identity):
            return None
        return GateReason.SAME_SERVER, (
            f"{other.target.replica} and {self.candidate.target.replica} are one process: both started at "
            "the same moment, with the same identity"
        )

    def _another(self, server: Server, identity: Identity, started: float | None) -> tuple[GateReason, str] | None:
        """In what it shows itself to be another than it was at first."""
        changed = identity.changes_from(self.seen[server.name])
        if changed:
            told = ", ".join(f"{name} {before} → {now}" for name, (before, now) in changed.items())
            return GateReason.IDENTITY_CHANGED, f"{server.name}: changed during the gate: {told}"
        if started is not None and self._started.setdefault(server.name, started) != started:
            return GateReason.IDENTITY_CHANGED, f"{server.name}: the server was restarted during the gate"
        return None
