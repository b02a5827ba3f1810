"""What a sweep compares: running servers, a route's replica and its twin, or servers that are started for it."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from monitor.cli.context import Context
    from monitor.cli.progress import Progress
    from monitor.core.records import Sampling
    from monitor.core.sweep import Sweep
    from monitor.probing.sweep import Contender, Measured, Plan
    from monitor.probing.target import Target


@dataclass(frozen=True)
class Servers:
    """What is compared: running servers of one engine (`auto`: as they show), or a model to start `vllm serve` with."""

    plain: Target | None
    speculative: tuple[Target, ...]
    model: str | None
    configs: tuple[str, ...]
    command: tuple[str, ...]
    log_directory: Path
    start_seconds: float
    engine: str = "vllm"

    @property
    def number(self) -> int:
        """Of all that are measured, the plain one among them."""
        return 1 + len(self.configs or self.speculative)


def named(
    plain: str | None,
    speculative: Sequence[str],
    model: str | None,
    configs: tuple[str, ...],
    key: str | None,
    engine: str,
) -> Servers:
    """Raises ConfigError for a key that is not set."""
    from monitor.config.secrets import Secret
    from monitor.probing.target import Target

    secret = None if key is None else Secret(env=key).reveal(os.environ)
    targets = tuple(Target(url, api_key=secret) for url in speculative)
    plain_target = None if plain is None else Target(plain, api_key=secret)
    return Servers(plain_target, targets, model, configs, (), Path(), 0, engine)


def of_route(context: Context, name: str, sampling: Sampling) -> tuple[Servers, Sampling]:
    """The route's first replica and its plain twin, asked as its probes ask. Raises ConfigError, UsageError."""
    from monitor.errors import UsageError
    from monitor.service.discovery import replicas_now
    from monitor.service.probes import sampling_of, target_of, twin_of

    route = context.route(name)
    if route.plain_twin is None:
        raise UsageError(f"route {name} has no plain_twin; a sweep needs a server without speculation to compare with")
    first = replicas_now(route)[0]
    replica, twin = target_of(route, first), twin_of(route, route.plain_twin, first)
    asked = replace(sampling_of(route), max_tokens=sampling.max_tokens)
    return Servers(twin, (replica,), None, (), (), Path(), 0, route.engine), asked


def measured(plan: Plan, servers: Servers, progress: Progress) -> list[Sweep]:
    """The curve of each speculative server. Raises TargetError, UsageError."""
    from monitor.probing.sweep import Contender

    if servers.model is not None:
        return asyncio.run(_in_turn(plan, servers, progress))
    assert servers.plain is not None
    contenders = [Contender("plain", servers.plain, plain=True)]
    contenders += [Contender(target.replica, target) for target in servers.speculative]
    return asyncio.run(_side_by_side(servers.engine, plan, contenders, progress))


async def _side_by_side(engine: str, plan: Plan, contenders: list[Contender], progress: Progress) -> list[Sweep]:
    from monitor.engines.registry import ENGINES
    from monitor.errors import UsageError
    from monitor.probing.recognise import AUTO
    from monitor.probing.sweep import compared, interleaved

    name = await _common_engine([contender.target for contender in contenders]) if engine == AUTO else engine
    if ENGINES[name].chunks_are_steps is False:
        raise UsageError(
            f"{name} sends every token in a chunk of its own, those of one step all at once, so that chunks show no "
            "time of a step; a sweep cannot measure its speedup"
        )
    plain, *others = await interleaved(ENGINES[name], plan, contenders, progress.sample_done, progress.point_done)
    return [compared(plan, plain, other, interleaved=True) for other in others]


async def _common_engine(targets: Sequence[Target]) -> str:
    """What all of them show themselves to be. Raises TargetError for one that is not there, and UsageError."""
    from monitor.errors import UsageError
    from monitor.probing.recognise import engine_name_at

    found = {target.replica: await engine_name_at(target) for target in targets}
    if len(set(found.values())) > 1:
        told = ", ".join(f"{replica} is {name}" for replica, name in found.items())
        raise UsageError(f"a speedup is one engine's, with speculation and without: {told}; --engine overrules this")
    return found[targets[0].replica]


async def _in_turn(plan: Plan, servers: Servers, progress: Progress) -> list[Sweep]:
    """Starts the plain server, then one for each config, one at a time."""
    from monitor.engines.registry import ENGINES
    from monitor.probing.launched import launched
    from monitor.probing.sweep import Contender, alone, compared
    from monitor.probing.target import Target

    async def alone_measured(label: str, arguments: Sequence[str], log: str, *, plain: bool) -> Measured:
        click.echo(f"starting {label}; its log is {servers.log_directory / log}", err=True)
        command = (*servers.command, *arguments)
        async with launched(command, servers.log_directory / log, servers.start_seconds) as url:
            contender = Contender(label, Target(url), plain)
            return await alone(ENGINES["vllm"], plan, contender, progress.sample_done, progress.point_done)

    with _stopped_by_sigterm():
        plain = await alone_measured("the plain server", (), "plain.log", plain=True)
        found = []
        for number, config in enumerate(servers.configs, start=1):
            arguments = ("--speculative-config", config, "--per-request-spec-decode-metrics", "summary")
            log = f"speculative-{number}.log"
            found.append(await alone_measured(_label(json.loads(config)), arguments, log, plain=False))
    return [compared(plan, plain, one, interleaved=False) for one in found]


def _label(config: Mapping[str, Any]) -> str:
    """A config in a few words: method, draft length, drafter."""
    drafter = f" {Path(str(config['model'])).name}" if config.get("model") else ""
    return f"{config.get('method', 'draft_model')} K={config['num_speculative_tokens']}{drafter}"


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the sweep as Ctrl-C does, so that what was started is stopped."""
    import signal

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
