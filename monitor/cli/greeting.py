"""What a configuration amounts to, in lines: shown by `config check`, and by `serve` when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from monitor import __version__
from monitor.config.units import format_duration
from monitor.core.format import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.prompts.sets import PromptSet
    from monitor.store.database import Database


def configuration_lines(config: Config, sets: Mapping[str, PromptSet]) -> list[str]:
    """One line per route and per receiver."""
    from monitor.cli.receivers import described, hears_text

    lines = [_route_line(route, sets) for route in config.routes]
    return lines + [
        f"receiver {receiver['name']} → {receiver['where']}: {hears_text(receiver)}" for receiver in described(config)
    ]


def _route_line(route: Route, sets: Mapping[str, PromptSet]) -> str:
    prompts = [prompt for domain in route.domains for prompt in sets[domain].prompts]
    answers = sum(len(prompt.turns) for prompt in prompts) if route.endpoint == "chat" else len(prompts)
    hourly = answers * route.max_tokens * (3600 / route.every.total_seconds())
    return (
        f"{route.name}: {count(len(route.domains), 'domain')} every {format_duration(route.every)}, "
        f"{count(len(prompts), 'prompt')}, "
        f"at most {hourly:,.0f} generated tokens an hour over {count(len(route.replicas), 'replica')}"
    )


def greeting(
    config: Config, sets: Mapping[str, PromptSet], database: Database, listen: tuple[str, int], *, own: bool
) -> str:
    """Version, configuration, store, and how every route's baselines stand. Raises StoreError."""
    from monitor.postgres import data_directory

    where = f"own Postgres in {data_directory(os.environ)}" if own else database.shown()
    lines = [
        f"specwatch {__version__}, configuration {config.directory}, store: {where}",
        f"http://{listen[0]}:{listen[1]}: /healthz /readyz /metrics",
        *configuration_lines(config, sets),
        *(f"{route.name}: {_baselines(database, route)}" for route in config.routes),
    ]
    return "\n  ".join(lines)


def _baselines(database: Database, route: Route) -> str:
    """How many domains have an approved baseline, and what the others wait for."""
    from monitor.store.baselines import has_approved, last_valid_runs

    needed = route.baseline.approve_after
    with database.transaction() as connection:
        without = [domain for domain in route.domains if not has_approved(connection, route.name, domain)]
        runs = [len(last_valid_runs(connection, route.name, domain, needed or 1)) for domain in without]
    if not without:
        return f"baselines of all {count(len(route.domains), 'domain')}"
    missing = f"no baseline yet of {count(len(without), 'domain')}"
    if needed is None:
        return f"{missing}: no rule can trip there until 'specwatch baseline create {route.name} --approve'"
    return f"{missing}: each is approved by itself after {needed} valid runs, the slowest has {min(runs)}"
