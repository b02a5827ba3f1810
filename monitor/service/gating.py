"""From a configured route to a gate: its production replica or its baselines as the reference, its settings on both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from monitor.core.address import url_and_rank
from monitor.core.gate_verdict import GateThresholds
from monitor.core.records import Identity
from monitor.engines.registry import ENGINES
from monitor.errors import UsageError
from monitor.probing.comparing import GatePlan, KnownBaseline
from monitor.probing.gate import Server
from monitor.service.probes import declared_identity, sampling_of, target_of
from monitor.store import baselines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.config.gate_request import GateRequest
    from monitor.config.routes import Route
    from monitor.core.judge import Comparability
    from monitor.probing.comparing import FindBaseline
    from monitor.prompts.sets import PromptSet
    from monitor.store.database import Database


def route_plan(
    route: Route, prompt_sets: Sequence[PromptSet], thresholds: GateThresholds, against: str, limit: int | None
) -> GatePlan:
    """Both sides are asked as the route's probes ask."""
    return GatePlan(
        tuple(prompt_sets),
        thresholds,
        sampling_of(route),
        route.concurrency,
        against,
        route=route.name,
        source=route.source,
        max_contamination_ratio=route.max_contamination,
        max_waiting=route.max_waiting,
        limit=limit,
    )


def sets_of(route: Route, sets: Mapping[str, PromptSet], wanted: Sequence[str] | None) -> list[PromptSet]:
    """Of the domains named, or of all the route's. Raises UsageError."""
    for domain in wanted or ():
        if domain not in route.domains:
            raise UsageError(f"{domain} is not a domain of {route.name}; there are: {', '.join(route.domains)}")
    return [sets[domain] for domain in dict.fromkeys(wanted or route.domains)]


def thresholds_of(request: GateRequest, sets: Sequence[PromptSet], mix: Mapping[str, float]) -> GateThresholds:
    """The mix is the route's as far as its domains are compared. Raises UsageError for a set that is too small."""
    for one in sets:
        if len(one.prompts) < request.min_prompts:
            raise UsageError(f"{one.domain} has {len(one.prompts)} prompts, {request.min_prompts} must be valid")
    weights = {one.domain: mix[one.domain] if mix else 1.0 for one in sets if not mix or one.domain in mix}
    shares = {domain: weight / sum(weights.values()) for domain, weight in weights.items()}
    return GateThresholds(
        request.metric, request.max_drop, request.min_prompts, request.timeout.total_seconds(), shares
    )


def plan_of(route: Route, request: GateRequest, sets: Mapping[str, PromptSet]) -> GatePlan:
    """The whole plan of a gate that was asked over HTTP. Raises UsageError."""
    chosen = sets_of(route, sets, request.domains)
    return route_plan(route, chosen, thresholds_of(request, chosen, route.mix), request.kind, request.prompts)


def candidate_of(route: Route, url: str, model: str | None) -> Server:
    """The candidate as a server of the route. What routes.yaml declares is of production, but for the engine.

    Raises ConfigError.
    """
    target = replace(target_of(route, url), server_name=None)
    declared = route.identity.engine
    identity = Identity() if declared is None else Identity(engine=declared, declared=("engine",))
    return Server("candidate", replace(target, model=model or target.model), ENGINES[route.engine], identity)


def production_of(route: Route, replicas: Sequence[str], candidate: str) -> Server:
    """The first replica that is not the candidate, or else the first. Raises ConfigError."""
    others = [replica for replica in replicas if url_and_rank(replica)[0] != candidate]
    target = target_of(route, (others or list(replicas))[0])
    return Server("reference", target, ENGINES[route.engine], declared_identity(route))


def url_of(route: Route, url: str) -> Server:
    """Any other server as the reference. Raises ConfigError."""
    return replace(candidate_of(route, url, None), name="reference")


def approved_baselines(database: Database, route: Route, metric: str) -> FindBaseline:
    """Finds the route's approved baselines in the store."""

    def find(domain: str, run: Comparability) -> KnownBaseline | None:
        with database.transaction() as connection:
            found = baselines.reference(connection, route.name, domain, metric, run)
            if found is None:
                return None
            return KnownBaseline(found, baselines.identity_of(connection, found.id))

    return find
