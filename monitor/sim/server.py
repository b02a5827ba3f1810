"""A vLLM 0.32 without a model: the same HTTP, the same counts, scriptable while it runs."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from monitor.errors import UsageError
from monitor.sim import serving
from monitor.sim.behaviour import ArmedFaults, Behaviour, Fault
from monitor.sim.domains import KEY_CHARACTERS
from monitor.sim.engine import Engine, Generation
from monitor.sim.exposition import BLOCK_TOKENS
from monitor.sim.model import Drafter, Target, fingerprint, seeded
from monitor.sim.pages import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from monitor.sim.requests import GenerationRequest


@dataclass(frozen=True)
class ServerConfig:
    """What a server is started with, and what only a restart changes.

    `domains` maps the first 200 characters of a first user message to its domain; other prompts are 'default'.
    `engines` is the data-parallel size. The per-request settings are vLLM's flags; without speculation there are no
    per-request counts.
    """

    model: str = "tiny"
    target: Target = field(default_factory=Target)
    drafter: Drafter = field(default_factory=Drafter)
    version: str = "0.32.0"
    max_model_len: int = 8192
    max_num_seqs: int = 32
    engines: int = 1
    api_key: str | None = None
    dev_mode: bool = False
    per_request_counts: Literal["none", "summary", "detailed"] = "detailed"
    per_request_timings: bool = True
    prompt_tokens_details: bool = False
    domains: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


class SimulatedServer:
    """The ASGI application and its script: every method may be called from any thread while it serves."""

    def __init__(self, config: ServerConfig | None = None, behaviour: Behaviour | None = None) -> None:
        self.config = self.first_config = config or ServerConfig()
        self.drafter = self.config.drafter
        self.behaviour = behaviour or Behaviour()
        self.faults: ArmedFaults = ArmedFaults()
        self.chance = seeded("chance", str(self.config.seed)).random
        self._turns = itertools.count()
        self._served: Counter[tuple[str, str]] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._site = Site(self)
        self._boot()

    def _boot(self) -> None:
        config = self.config
        self.drafter = config.drafter
        self.started_seconds = time.time()
        self.engines = [Engine(index, self.drafter, config.max_num_seqs) for index in range(config.engines)]
        self.fingerprint = fingerprint(config.version, config.target, self.drafter)
        self._cached_prompts: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        await self._site(scope, receive, send)

    def begin(self, request: GenerationRequest) -> tuple[Generation, int]:
        """A generation on the engine asked for or whose turn it is; how many prompt tokens the prefix cache had."""
        domain = self.config.domains.get(request.opening[:KEY_CHARACTERS], "default")
        target = self.config.target
        output = target.output(
            request.text, request.max_tokens, min_tokens=request.min_tokens, ignore_eos=request.ignore_eos
        )
        prompt, prompt_tokens = (request.cache_salt, request.text), len(request.token_ids)
        cached_tokens = (prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS if prompt in self._cached_prompts else 0
        self._cached_prompts.add(prompt)
        generation = self._generation(
            request.text, domain, prompt_tokens, output, request.data_parallel_rank, cached=cached_tokens > 0
        )
        return generation, cached_tokens

    def drafter_of(self, domain: str, prompt_tokens: int, rank: int | None) -> Drafter:  # noqa: ARG002 - for subclasses
        """What drafts for one generation; a subclass may say otherwise for some."""
        return self.drafter

    def _generation(
        self,
        prompt: str,
        domain: str,
        prompt_tokens: int,
        output: list[int],
        rank: int | None = None,
        *,
        cached: bool = False,
    ) -> Generation:
        """Every replay of a prompt is another run: its salt is how often this drafter has served it."""
        drafter = self.drafter_of(domain, prompt_tokens, rank)
        served = (drafter.name, prompt)
        self._served[served] += 1
        steps = drafter.steps(prompt, domain, f"{self.config.seed}.{self._served[served]}", cached=cached)
        engine = self.engines[next(self._turns) % len(self.engines) if rank is None else rank]
        return Generation(engine, prompt_tokens, output, steps, time.perf_counter)

    def swap_drafter(self, drafter: Drafter, *, restart: bool = True) -> None:
        """Serve with another drafter. Without `restart` it is a hot weight update: counters and fingerprint stay."""
        if restart:
            self.restart(drafter=drafter)
        elif (drafter.method, drafter.k) != (self.drafter.method, self.drafter.k):
            raise UsageError("another method or draft length needs a restart; leave out restart=False")
        else:
            self.drafter = drafter

    def set_acceptance(self, domain: str, *conditionals: float) -> None:
        """Change what is accepted on one domain ('default': all others) from the next request on, and nothing else."""
        self.drafter = self.drafter.with_acceptance(domain, conditionals)

    def behave(self, **changes: Any) -> None:
        """Change lasting behaviour by the names of Behaviour's fields."""
        try:
            self.behaviour = replace(self.behaviour, **changes)
        except TypeError as error:
            raise UsageError(f"behaviour: {error}") from error

    def inject(self, fault: Fault) -> None:
        """Arm a fault for the next generation requests, after those armed before it."""
        self.faults.arm(fault)

    def restart(self, **changes: Any) -> None:
        """Start again with `changes` to the configuration: counters at 0, a new start time, open streams cut."""
        try:
            self.config = replace(self.config, **{"drafter": self.drafter, **changes})
        except TypeError as error:
            raise UsageError(f"restart: {error}") from error
        old = self.engines
        self._boot()
        self._in_loop(partial(_stop, old))

    def stop(self) -> None:
        """Cut all open streams."""
        self._in_loop(partial(_stop, self.engines))

    def traffic(
        self, domain: str = "default", *, requests: int = 1, max_tokens: int = 128, rank: int | None = None
    ) -> None:
        """Count what other users' requests would have, at once and without HTTP."""
        for _ in range(requests):
            prompt = f"traffic {domain} {sum(self._served.values())}"
            generation = self._generation(prompt, domain, 64, self.config.target.output(prompt, max_tokens), rank)
            generation.engine.running += 1
            generation.admitted(0)
            while not generation.advance():
                pass
            generation.engine.release()
            generation.finish("length")

    def _in_loop(self, action: Callable[[], object]) -> None:
        """Engine events belong to the serving loop; before it runs nobody waits for them."""
        if self._loop is None or self._loop.is_closed():
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    def run_in_thread(
        self, *, port: int = 0, certfile: Path | None = None, keyfile: Path | None = None
    ) -> AbstractContextManager[str]:
        """Serve on loopback until the block ends; gives the base URL, https with a certificate and its key."""
        return serving.in_thread(self, self.stop, port=port, certfile=certfile, keyfile=keyfile)


def _stop(engines: list[Engine]) -> None:
    for engine in engines:
        engine.stop()
