"""The walk over the prompts of a run: how many at once, what is watched meanwhile, and when to give up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from monitor.core.records import Identity, Regime
from monitor.engines.counters import Change
from monitor.engines.counts import drafts_every_step
from monitor.engines.failures import GONE
from monitor.errors import TargetError
from monitor.probing.conversation import Asking
from monitor.probing.outcome import Outcome
from monitor.probing.watch import LagWatch, PageWatch
from monitor.probing.window import CounterWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from monitor.core.records import Sample, Sampling, Source
    from monitor.engines.base import Engine, Observation
    from monitor.engines.counts import Window
    from monitor.probing.client import Client
    from monitor.probing.clock import Clock
    from monitor.probing.conversation import Attempt
    from monitor.probing.outcome import SourceWish

FAILURES_IN_A_ROW = 3
"""After so many failed prompts in a row (or one per prompt in flight, if more) the replica is left alone."""

ANOTHER_SERVER = frozenset({"counters_behind", "counters_reset", "load_balancer"})
"""Reasons which say that the metrics page may not be that of the server which answers."""
CROSSCHECK_SETTLE_SECONDS = 2.0
"""How long the end of a run waits for counters that are only to be compared with."""


@dataclass(frozen=True)
class Plan:
    """What `replay` was asked for, beyond the prompts."""

    sampling: Sampling
    concurrency: int
    source: SourceWish
    max_contamination_ratio: float
    declared: Identity
    plain: bool
    keep_concurrency: bool
    on_sample: Callable[[Sample], None] | None


class Walk:
    """Prompts in flight, what is watched meanwhile, and when to stop."""

    def __init__(
        self,
        client: Client,
        engine: Engine,
        plan: Plan,
        look: Observation | None,
        clock: Clock,
        salt: str | None = None,
    ) -> None:
        self._client = client
        self._engine = engine
        self._plan = plan
        self._look = look
        self._clock = clock
        self._salt = salt
        self._page = PageWatch(engine, client, look.model, look.glance, clock.monotonic) if look else None
        self._lag = LagWatch(clock.monotonic)
        self._answered_at = clock.monotonic()
        self._failures = 0
        self._given_up: TargetError | None = None
        self.concurrency = plan.concurrency
        self.counted: Window | None = None

    async def all(self, attempts: Sequence[Attempt]) -> None:
        """Replays every attempt that has not failed already."""
        if self._look is None or self._page is None:
            return
        asking = Asking(self._client, self._engine, self._look.model, self._plan.sampling, self._salt)
        queue = iter(attempts)
        around_all, around_each = self._window(self._page), self._window(self._page)
        async with asyncio.TaskGroup() as watches:
            watching = [
                watches.create_task(self._page.watch()),
                watches.create_task(self._lag.watch()),
            ]
            try:
                if self._counters_wanted:
                    await self._work_in_windows(around_each, asking, queue)
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(self._plan.concurrency, len(attempts))):
                        workers.create_task(self._work(asking, queue))
            finally:
                for watch in watching:
                    watch.cancel()
        await self._page.look_since(self._answered_at)
        if around_all.is_open:  # else the counters say nothing of this run, which is no fault of it
            counted = await self._closed(around_all, attempts, CROSSCHECK_SETTLE_SECONDS)
            self.counted = counted if isinstance(counted, Change) or counted.reason in ANOTHER_SERVER else None

    async def _work(self, asking: Asking, queue: Iterator[Attempt]) -> None:
        for attempt in queue:
            if self._given_up is None:
                await self._replay(asking, attempt)
                self._learn_from(attempt.error)
            else:
                attempt.error = self._given_up
            self._tell(attempt)

    async def _replay(self, asking: Asking, attempt: Attempt) -> None:
        began = self._clock.monotonic()
        await asking.replay(attempt)
        self._answered_at = self._clock.monotonic()
        attempt.total_seconds = self._answered_at - began
        attempt.loop_lag_seconds = self._lag.worst_since(began)

    def _tell(self, attempt: Attempt) -> None:
        if self._plan.on_sample is not None:
            self._plan.on_sample(self._outcome(None).samples([attempt])[0])

    @property
    def _counters_wanted(self) -> bool:
        if self._plan.source != "auto" or self._plan.keep_concurrency or self._plan.plain:
            return self._plan.source == "counters"
        if self._engine.chunks_are_steps is False:
            return True
        return drafts_every_step(self._outcome(None).identity([]).method) is False

    async def _work_in_windows(self, window: CounterWindow, asking: Asking, queue: Iterator[Attempt]) -> None:
        """Replays one prompt at a time between two looks at the counters, as long as these are the best source.

        What is left in the queue is for `_work`: all of it when `auto` finds no counters here, what comes after the
        first answer when that has counts of its own.
        """
        insists = self._plan.source == "counters"
        self.concurrency = 1 if insists else self.concurrency
        try:
            await window.open()
        except TargetError as error:
            self._given_up = error if insists else None
            return
        for attempt in queue:
            await self._replay_in(window, asking, attempt)
            fault = attempt.window if isinstance(attempt.window, TargetError) else None
            self._learn_from(attempt.error or (fault if insists else None))
            self._tell(attempt)
            if self._given_up or (not insists and (fault or attempt.has_request_counts)):
                return
        self.concurrency = 1

    async def _replay_in(self, window: CounterWindow, asking: Asking, attempt: Attempt) -> None:
        try:
            await window.open()
        except TargetError as error:
            attempt.window = error
            await self._replay(asking, attempt)
        else:
            await self._replay(asking, attempt)
            attempt.window = await self._closed(window, [attempt])

    def _window(self, page: PageWatch) -> CounterWindow:
        return CounterWindow(page, self._client.url, self._clock.monotonic)

    async def _closed(
        self, window: CounterWindow, attempts: Sequence[Attempt], settle_seconds: float | None = None
    ) -> Window:
        """What the counters moved by while the attempts were made, or why that is not known."""
        own_tokens = sum(answer.completion_tokens for attempt in attempts for answer in attempt.answers)
        try:
            return await window.close(own_tokens, self._answered_at, settle_seconds)
        except TargetError as error:
            return error

    def _learn_from(self, error: TargetError | None) -> None:
        """Gives up on a replica that is gone, or that fails prompt after prompt: hammering it helps nobody."""
        if error is None:
            self._failures = 0
            return
        self._failures += error.reason != "context_too_long"
        if error.reason in GONE or self._failures >= max(FAILURES_IN_A_ROW, self.concurrency):
            self._given_up = error

    def again(self, source: Source) -> Walk:
        """Another walk that begins where this one ended, warm: under the same salt, with counts from `source`."""
        assert self._look is not None  # somebody answered
        assert self._page is not None
        plan = replace(self._plan, sampling=replace(self._plan.sampling, cache="warm"), source=source.value)
        look = replace(self._look, glance=self._page.latest)
        return Walk(self._client, self._engine, plan, look, self._clock, self._salt)

    def outcome(self) -> Outcome:
        """What is known at the end."""
        return self._outcome(self._page.speculates if self._page else None)

    def _outcome(self, speculates: bool | None) -> Outcome:
        observed = self._look.identity if self._look else Identity()
        return Outcome(
            url=self._client.url,
            observed=observed,
            declared=self._plan.declared,
            speculates=speculates,
            wish=self._plan.source,
            advice=self._engine.counts_advice(observed.version),
            plain=self._plan.plain,
            max_contamination_ratio=self._plan.max_contamination_ratio,
            chunks_are_steps=self._engine.chunks_are_steps,
            notes=self._notes(),
            counted=self.counted,
        )

    def _notes(self) -> tuple[str, ...]:
        if self._look is None:
            return ()
        return self._look.notes + (self._look.cold_notes if self._plan.sampling.cache == "cold" else ())

    def regime(self) -> Regime:
        return self._page.regime() if self._page else Regime()

    def warnings(self) -> tuple[str, ...]:
        """What the watches and the counters around all prompts showed that a reader of the figures must know."""
        if self._page is None:
            return ()
        found = self._page.warnings()
        if isinstance(self.counted, TargetError) and self._plan.source != "counters" and not self._page.restarted:
            found = (*found, str(self.counted))
        return found
