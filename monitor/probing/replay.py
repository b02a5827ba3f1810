"""A run: one prompt set replayed on one replica, from the first look at it to its samples."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from monitor.core.records import Identity, Reason, Run, Sample, Sampling
from monitor.engines.counts import MAX_CONTAMINATION_RATIO
from monitor.errors import TargetError, UsageError
from monitor.probing.client import Client
from monitor.probing.clock import Clock, SystemClock
from monitor.probing.conversation import Attempt
from monitor.probing.crosscheck import acceptance_by_source, disagreements
from monitor.probing.walk import Plan, Walk
from monitor.probing.warm import warm_pass
from monitor.prompts.request_keys import ONLY_CHAT, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monitor.engines.base import Engine, Observation
    from monitor.probing.outcome import SourceWish
    from monitor.probing.target import Target
    from monitor.prompts.sets import PromptSet


@dataclass(frozen=True)
class StandAside:
    """The replica queues, so nothing was sent to it: `waiting` requests where `max_waiting` would do."""

    waiting: float
    max_waiting: int


async def replay(
    target: Target,
    engine: Engine,
    prompt_set: PromptSet,
    *,
    route: str,
    sampling: Sampling,
    concurrency: int = 4,
    source: SourceWish = "auto",
    max_contamination_ratio: float = MAX_CONTAMINATION_RATIO,
    declared_identity: Identity | None = None,
    max_waiting: int | None = None,
    min_prompts: int = 1,
    reason: Reason = Reason.MANUAL,
    limit: int | None = None,
    plain: bool = False,
    keep_concurrency: bool = False,
    warm: bool = False,
    clock: Clock | None = None,
    on_sample: Callable[[Sample], None] | None = None,
) -> Run | StandAside:
    """Replays the first `limit` prompts (None: all), `concurrency` at a time, and returns the run.

    With `plain` the server is one without speculation, measured for its times.
    With source `counters`, prompts go one at a time, whatever `concurrency` says, and the run says so. `auto` chooses
    it where a method is known not to draft at every step and answers have no counts, unless `keep_concurrency`.

    With `warm` the prompts are asked once more under the same salt, for `Run.warm`; `sampling` is the cold pass's.

    StandAside when more than `max_waiting` requests wait at the replica (None: whatever waits there).

    Whatever the replica does wrong is in the run: as the reason of invalid samples, and of the run when fewer than
    `min_prompts` are valid. Prompts not sent because the replica is plainly gone are invalid for that same reason.
    `on_sample` is called as prompts finish, with samples that the end of the run may still change. Cancelling closes
    every stream, which makes the server drop the requests.

    Raises UsageError for a key or CA file that cannot be used, and for prompts with tools on the completions endpoint.
    """
    sampling = _with_keys_of(prompt_set, sampling)
    clock = clock or SystemClock()
    declared = declared_identity or Identity()
    started_at = clock.now()
    attempts = [Attempt(prompt) for prompt in prompt_set.prompts[:limit]]
    async with Client(target, concurrency, clock.monotonic) as client:
        look = await _observe(client, engine, target.model, declared, attempts)
        waiting = 0 if look is None else look.glance.load.waiting or 0
        if max_waiting is not None and waiting > max_waiting:
            return StandAside(waiting, max_waiting)
        plan = Plan(
            sampling, concurrency, source, max_contamination_ratio, declared, plain, keep_concurrency, on_sample
        )
        salt = secrets.token_hex(16) if sampling.cache == "cold" else None
        walk = Walk(client, engine, plan, look, clock, salt)
        await walk.all(attempts)
        run = Run(
            route=route,
            domain=prompt_set.domain,
            replica=client.replica,
            prompt_set_hash=prompt_set.content_hash,
            concurrency=walk.concurrency,
            sampling=sampling,
            reason=reason,
            started_at=started_at,
            finished_at=clock.now(),
            identity=Identity(),
            samples=(),
        )
        run = _measured(run, walk, attempts, min_prompts)
        if warm:
            found, warnings = await warm_pass(run, walk, prompt_set.prompts[:limit], min_prompts)
            run = replace(run, warm=found, warnings=run.warnings + warnings, finished_at=clock.now())
    return run


def _with_keys_of(prompt_set: PromptSet, sampling: Sampling) -> Sampling:
    """What the prompts bring with them is part of how tokens are chosen."""
    keys = keys_of(prompt_set.prompts)
    if sampling.endpoint != "chat" and not ONLY_CHAT.isdisjoint(keys):
        raise UsageError(f"{prompt_set.domain} has prompts with tools, which only the endpoint chat takes")
    return replace(sampling, prompt_keys=keys)


def _measured(run: Run, walk: Walk, attempts: Sequence[Attempt], min_prompts: int) -> Run:
    """The run with all that came of its attempts."""
    outcome = walk.outcome()
    samples, reading = outcome.samples(attempts), outcome.reading(attempts)
    lengths = acceptance_by_source(attempts, reading, walk.counted)
    disagree = disagreements(lengths, reading.source, sum(sample.counts.steps for sample in samples))
    invalid_reason, invalid_detail = outcome.invalid(attempts, samples, min_prompts) or (None, None)
    return replace(
        run,
        identity=outcome.identity(attempts),
        samples=samples,
        regime=walk.regime(),
        invalid_reason=invalid_reason,
        invalid_detail=invalid_detail,
        warnings=(*outcome.warnings(attempts), *walk.warnings(), *disagree),
        acceptance_by_source=lengths,
    )


async def _observe(
    client: Client, engine: Engine, model: str | None, declared: Identity, attempts: Sequence[Attempt]
) -> Observation | None:
    """What the replica shows of itself; None, and every attempt failed, when that cannot be had."""
    try:
        return await engine.observe(client, model, declared)
    except TargetError as error:
        for attempt in attempts:
            attempt.error = error
        return None
