"""From a configured route to one run: the only place that turns configuration into a replay."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from monitor.core.address import at_rank, url_and_rank
from monitor.core.records import Identity, Sampling
from monitor.engines.registry import ENGINES
from monitor.probing.replay import StandAside, replay
from monitor.probing.speedup import PASSES, measure_speedup
from monitor.probing.sweep import Plan
from monitor.probing.target import Target, Timeouts

if TYPE_CHECKING:
    from monitor.config.routes import Route
    from monitor.config.secrets import Secret
    from monitor.core.records import Run
    from monitor.core.speedup import Speedup
    from monitor.prompts.sets import Prompt, PromptSet
    from monitor.service.jobs import ProbeJob


def target_of(route: Route, replica: str) -> Target:
    """The replica with the route's secrets revealed now, so that a rotated key is followed. Raises ConfigError."""
    limits = route.timeouts
    url, rank = url_and_rank(replica)
    return Target(
        base_url=url,
        model=route.model,
        api_key=None if route.api_key is None else route.api_key.reveal(os.environ),
        headers={name: _revealed(value) for name, value in route.headers.items()},
        ca_file=route.ca_file,
        timeouts=Timeouts(
            connect_seconds=limits.connect.total_seconds(),
            first_token_seconds=limits.first_token.total_seconds(),
            stall_seconds=limits.stall.total_seconds(),
            total_seconds=limits.total.total_seconds(),
        ),
        server_name=_server_name(route, url),
        data_parallel_rank=rank,
    )


def twin_of(route: Route, twin: str, replica: str) -> Target:
    """The plain twin as it is compared with the replica: beside one rank, one rank alone. Raises ConfigError.

    Rank 0 is there whether or not the twin has data parallelism; unpinned, it would spread the load over its engines.
    """
    pinned = url_and_rank(replica)[1] is not None
    return target_of(route, at_rank(twin, 0) if pinned else twin)


def _server_name(route: Route, url: str) -> str | None:
    """The name that a replica found by DNS is an address of; the plain twin has an address of its own."""
    found = route.replicas
    if isinstance(found, tuple) or found.dns is None or url == route.plain_twin:
        return None
    return urlsplit(found.dns).netloc


def _revealed(value: str | Secret) -> str:
    return value if isinstance(value, str) else value.reveal(os.environ)


def sampling_of(route: Route) -> Sampling:
    """How the route's probes sample; part of what makes runs comparable."""
    kwargs = dict(route.chat_template_kwargs)
    if route.thinking is not None:
        kwargs["enable_thinking"] = route.thinking
    return Sampling(
        endpoint=route.endpoint,
        max_tokens=route.max_tokens,
        temperature=route.temperature,
        seed=route.seed,
        cache="warm" if route.cache == "warm" else "cold",  # of both, the cold pass is the run
        chat_template_kwargs=tuple(sorted(kwargs.items())),
        extra_body=tuple(sorted(route.extra_body.items())),
    )


def declared_identity(route: Route) -> Identity:
    """The facts routes.yaml declares about what is running."""
    declared = {name: value for name, value in route.identity.model_dump().items() if value is not None}
    return Identity(**declared, declared=tuple(sorted(declared)))


async def run_probe(route: Route, job: ProbeJob, prompt_set: PromptSet) -> Run | StandAside:
    """Replays the prompt set on the job's replica; StandAside while the replica queues. Raises UsageError."""
    return await replay(
        target_of(route, job.replica),
        ENGINES[route.engine],
        prompt_set,
        route=route.name,
        sampling=sampling_of(route),
        concurrency=route.concurrency,
        source=route.source,
        max_contamination_ratio=route.max_contamination,
        declared_identity=declared_identity(route),
        max_waiting=route.max_waiting,
        min_prompts=route.min_prompts,
        reason=job.reason,
        warm=route.cache == "both",
    )


def speedup_plan(route: Route, prompts: tuple[Prompt, ...]) -> Plan:
    """What a measurement of speedup asks of the replica and of the plain twin: every prompt, at the route's load."""
    return Plan(
        prompts,
        sampling_of(route),
        concurrencies=(route.concurrency,),
        measured=len(prompts),
        repeats=PASSES,
        source=route.source,
        gpus=route.gpus,
        max_waiting=route.max_waiting,
    )


async def run_speedup(route: Route, job: ProbeJob, prompt_set: PromptSet, twin: str) -> Speedup:
    """Measures the job's replica beside the plain twin, both asked as the route's probes ask. Raises UsageError."""
    plan = speedup_plan(route, prompt_set.prompts)
    sides = target_of(route, job.replica), twin_of(route, twin, job.replica)
    return await measure_speedup(ENGINES[route.engine], prompt_set, plan, *sides, route=route.name)
