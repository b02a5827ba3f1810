"""From a configured route to a gate: its production replica or its baselines as the reference, its settings on both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from monitor.core.address import url_and_rank
from monitor.core.gate import REFERENCES
from monitor.core.records import Identity
from monitor.engines.registry import ENGINES
from monitor.errors import UsageError
from monitor.probing.comparing import GatePlan, KnownBaseline, asks_for_twin, thresholds_of
from monitor.probing.gate_servers import Server
from monitor.service.probes import declared_identity, sampling_of, target_of, twin_of
from monitor.store import baselines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from monitor.config.routes import Route
    from monitor.core.judge import Comparability
    from monitor.probing.comparing import FindBaseline, GateAsked
    from monitor.probing.target import Target
    from monitor.prompts.sets import PromptSet
    from monitor.store.database import Database

    Sides = tuple[Server, Server | FindBaseline, GatePlan]


def sides_of(
    database: Database,
    route: Route,
    asked: GateAsked,
    sets: Mapping[str, PromptSet],
    replicas: Callable[[], Sequence[str]],
) -> Sides:
    """Candidate, reference and plan of a gate of the route. `replicas`: those of production now.

    Raises UsageError for what no gate could do, and ConfigError.
    """
    kind = asked.against if asked.against in REFERENCES else "url"
    plan = _plan_of(route, asked, sets, kind)
    reference: Server | FindBaseline
    match kind:
        case "production":
            reference = _production_of(route, replicas(), asked.candidate)
        case "baseline":
            reference = _approved_baselines(database, route, asked.metric)
        case _:
            reference = replace(_candidate_of(route, asked.against, None), name="reference")
    return _candidate_of(route, asked.candidate, asked.candidate_model), reference, plan


def _plan_of(route: Route, asked: GateAsked, sets: Mapping[str, PromptSet], kind: str) -> GatePlan:
    """Both sides are asked as the route's probes ask."""
    for domain in asked.domains or ():
        if domain not in route.domains:
            raise UsageError(f"{domain} is not a domain of {route.name}; there are: {', '.join(route.domains)}")
    chosen = [sets[domain] for domain in dict.fromkeys(asked.domains or route.domains)]
    return GatePlan(
        tuple(chosen),
        thresholds_of(asked, chosen, route.mix),
        sampling_of(route),
        route.concurrency,
        kind,
        route=route.name,
        source=route.source,
        max_contamination_ratio=route.max_contamination,
        max_waiting=route.max_waiting,
        limit=asked.prompts,
        promotion=asked.promotion,
        twin=_twin_of(route, asked) if asks_for_twin(asked) else None,
    )


def _twin_of(route: Route, asked: GateAsked) -> Target:
    """The candidate's plain twin: the one that is named, or else the route's. Raises UsageError without one."""
    url = asked.plain or route.plain_twin
    if url is None:
        raise UsageError(f"{route.name} has no plain_twin in routes.yaml; name the candidate's own with --plain URL")
    if asked.require_lossless is not None and route.temperature != 0:
        raise UsageError(
            f"{route.name} has temperature {route.temperature:g}; only greedy outputs can be required to be alike"
        )
    target = replace(twin_of(route, url, asked.candidate), server_name=None)
    return replace(target, model=asked.candidate_model or target.model)


def _candidate_of(route: Route, url: str, model: str | None) -> Server:
    """The candidate as a server of the route. What routes.yaml declares is of production, but for the engine.

    Raises ConfigError.
    """
    target = replace(target_of(route, url), server_name=None)
    declared = route.identity.engine
    identity = Identity() if declared is None else Identity(engine=declared, declared=("engine",))
    return Server("candidate", replace(target, model=model or target.model), ENGINES[route.engine], identity)


def _production_of(route: Route, replicas: Sequence[str], candidate: str) -> Server:
    """The first replica that is not the candidate, or else the first. Raises ConfigError."""
    others = [replica for replica in replicas if url_and_rank(replica)[0] != candidate]
    target = target_of(route, (others or list(replicas))[0])
    return Server("reference", target, ENGINES[route.engine], declared_identity(route))


def _approved_baselines(database: Database, route: Route, metric: str) -> FindBaseline:
    """Finds the route's approved baselines in the store."""

    def find(domain: str, run: Comparability) -> KnownBaseline | None:
        with database.transaction() as connection:
            found = baselines.reference(connection, route.name, domain, metric, run)
            if found is None:
                return None
            return KnownBaseline(found, baselines.identity_of(connection, found.id))

    return find
