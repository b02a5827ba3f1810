"""The load that probing adds, from the configuration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.service.probes import speedup_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from monitor.config.routes import Route
    from monitor.prompts.sets import Prompt, PromptSet

LEAST_WORKERS, MOST_WORKERS = 8, 32
REPLICAS_PER_WORKER = 4
"""At 16 s per run and 11 domains every 40 minutes a replica is probed for 7 percent of the time: four times what that
needs, because slots of many routes meet (benchmarks/README.md)."""


def tokens_per_hour(route: Route, prompt_sets: Mapping[str, PromptSet]) -> float:
    """The most completion tokens its scheduled probes ask for in an hour, over all its replicas.

    Of a route with a plain twin with its measurements of speedup, which ask as much again of the twin.
    """
    sets = [prompt_sets[domain].prompts for domain in route.domains]
    passes_of_a_run = 2 if route.cache == "both" else 1
    per_run = [passes_of_a_run * _answers(route, prompts) for prompts in sets]
    per_hour = sum(per_run) * 3600 / route.every.total_seconds()
    if route.plain_twin is not None:
        plans = [speedup_plan(route, prompts) for prompts in sets]
        passes = [plan.repeats * _answers(route, plan.prompts_of_a_pass(route.concurrency)) for plan in plans]
        per_hour += sum(passes) * 3600 / route.speedup_every.total_seconds()
    return per_hour * route.max_tokens


def _answers(route: Route, prompts: Sequence[Prompt]) -> int:
    return sum(len(prompt.turns) for prompt in prompts) if route.endpoint == "chat" else len(prompts)


def runs_per_hour(routes: Iterable[Route]) -> float:
    """How many scheduled runs these routes ask for."""
    return sum(len(route.domains) * 3600 / route.every.total_seconds() for route in routes)


def workers_for(replicas: int) -> int:
    """How many probes run at once when nobody says: a quarter of the replicas, from 8 to 32."""
    return min(MOST_WORKERS, max(LEAST_WORKERS, -(-replicas // REPLICAS_PER_WORKER)))
