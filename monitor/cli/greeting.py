"""What a configuration amounts to, in lines: shown by `config check`, and by `serve` when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from monitor import __version__
from monitor.config.units import format_duration
from monitor.core.format import count
from monitor.service.budget import runs_per_hour, tokens_per_hour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.prompts.sets import PromptSet
    from monitor.service.discovery import Replicas
    from monitor.store.database import Database


def configuration_lines(config: Config, sets: Mapping[str, PromptSet], replicas: Replicas) -> list[str]:
    """One line per route and per receiver, and one per replica that was found and is not written there."""
    from monitor.cli.receivers import described, hears_text

    lines = [line for route in config.routes for line in _route_lines(route, sets, replicas.known(route))]
    return lines + [
        f"receiver {receiver['name']} → {receiver['where']}: {hears_text(receiver)}" for receiver in described(config)
    ]


def _route_lines(route: Route, sets: Mapping[str, PromptSet], replicas: Sequence[str]) -> list[str]:
    prompts = sum(len(sets[domain].prompts) for domain in route.domains)
    line = (
        f"{route.name}: {count(len(route.domains), 'domain')} every {format_duration(route.every)}, "
        f"{count(prompts, 'prompt')}, "
        f"at most {tokens_per_hour(route, sets):,.0f} generated tokens an hour "
        f"over {count(len(replicas), 'replica')}"
    )
    if isinstance(route.replicas, tuple):
        return [line]
    return [line, *(f"  {route.replicas.key} → {replica}" for replica in replicas)]


def greeting(
    config: Config,
    sets: Mapping[str, PromptSet],
    replicas: Replicas,
    database: Database,
    listen: tuple[str, int],
    *,
    own: bool,
) -> str:
    """What `serve` will do and where it keeps it, and how far every route is from being judged. Raises StoreError."""
    from monitor.cli.receivers import described, hears_text
    from monitor.postgres import data_directory

    tokens = sum(tokens_per_hour(route, sets) for route in config.routes)
    told = [f"{receiver['name']} → {receiver['where']}: {hears_text(receiver)}" for receiver in described(config)]
    load = f"at most {tokens:,.0f} generated tokens and {runs_per_hour(config.routes):,.0f} runs an hour"
    host = f"[{listen[0]}]" if ":" in listen[0] else listen[0]
    return "\n".join(
        [
            f"specwatch {__version__}",
            *_block("config", [str(config.directory)]),
            *_block("store", [f"own Postgres in {data_directory(os.environ)}" if own else database.shown()]),
            *_block("routes", [_route_plan(database, route, len(replicas.known(route))) for route in config.routes]),
            *_block("receivers", told),
            *_block("load", [load]),
            *_block("pages", [f"http://{host}:{listen[1]}: /healthz /readyz /metrics /runbook"]),
            *_block("log", ["runs and troubles follow; --log-level warning leaves out the runs; Ctrl-C ends"]),
        ]
    )


def _block(name: str, lines: list[str]) -> list[str]:
    return [f"  {name if number == 0 else '':10} {line}" for number, line in enumerate(lines)]


def _route_plan(database: Database, route: Route, replicas: int) -> str:
    return (
        f"{route.name}: {count(replicas, 'replica')}, {count(len(route.domains), 'domain')} "
        f"every {format_duration(route.every)}; {_baselines(database, route)}"
    )


def _baselines(database: Database, route: Route) -> str:
    """How many domains have an approved baseline, and what the others wait for."""
    from monitor.store.approvals import has_approved
    from monitor.store.baselines import last_valid_runs

    needed = route.baseline.approve_after
    with database.transaction() as connection:
        without = [domain for domain in route.domains if not has_approved(connection, route.name, domain)]
        runs = [len(last_valid_runs(connection, route.name, domain, needed or 1)) for domain in without]
    have = len(route.domains) - len(without)
    if not without:
        return f"baselines of {count(have, 'domain')}"
    told = f"baselines of {have} of {count(len(route.domains), 'domain')}" if have else "no baseline yet"
    if needed is None:
        return f"{told}: no rule can trip there until 'specwatch baseline create {route.name} --approve'"
    valid = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
    return f"{told}: {valid} of {needed} valid runs"
