"""One engine of a simulated server: slots, a common step for all running requests, and exact counters."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from monitor.sim.model import Drafter, Step

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_SECONDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Histogram:
    """Observations counted by bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class EngineStopped(Exception):  # noqa: N818  an event of the simulation, not an error of ours
    """The engine was restarted under a running request."""


class Engine:
    """Admits at most `max_num_seqs` requests at a time, first come first served, and steps them together.

    Counters are exact: `step_histogram[j]` counts steps with a draft that accepted j tokens, before the answer is
    trimmed at its end; `generation_tokens` counts what was sent.
    """

    def __init__(self, index: int, drafter: Drafter, max_num_seqs: int) -> None:
        self.index, self.max_num_seqs = index, max_num_seqs
        self.k = drafter.k
        self.created_seconds = time.time()
        self.running = 0
        self.tokens_held = 0
        self.step_histogram = [0] * (self.k + 1)
        self.draft_tokens = self.prompt_tokens = self.cached_tokens = self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.time_to_first_token, self.latency = Histogram(_SECONDS), Histogram(_SECONDS)
        self.request_prompt_tokens, self.request_generation_tokens = Histogram(_TOKENS), Histogram(_TOKENS)
        self.stopped = asyncio.Event()
        self._queue: deque[asyncio.Future[None]] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._step_due = 0.0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def admit(self) -> None:
        """Wait for a slot; a request cancelled while it waits leaves the queue. EngineStopped on a restart."""
        if self.running < self.max_num_seqs:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release()
            elif turn in self._queue:
                self._queue.remove(turn)
            raise

    def release(self) -> None:
        """Give the slot to whoever waits longest."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1

    def stop(self) -> None:
        """End every request here, waiting, running or hanging, as a restart does."""
        self.stopped.set()
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_exception(EngineStopped)

    async def step(self, duration_seconds: float) -> None:
        """Wait for the step that all running requests share."""
        if self.stopped.is_set():
            raise EngineStopped
        if duration_seconds <= 0.0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        if not self._waiters:
            # From the last step's due time while busy, so that timer lateness does not slow the pace down.
            idle = loop.time() - self._step_due >= duration_seconds
            self._step_due = (loop.time() if idle else self._step_due) + duration_seconds
            loop.call_at(self._step_due, self._end_step)
        waiter = loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _end_step(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Generation:
    """One request on an engine, from its slot to its last token."""

    def __init__(
        self, engine: Engine, prompt_tokens: int, output: list[int], steps: Iterator[Step], clock: Callable[[], float]
    ) -> None:
        self.engine, self.prompt_tokens, self.output = engine, prompt_tokens, output
        self._steps, self._clock = steps, clock
        self.arrived_seconds = clock()
        self.admitted_seconds = self.first_token_seconds = self.last_token_seconds = self.arrived_seconds
        self.sent_tokens = 0
        self.accepted: list[int] = []
        self.drafted: list[int] = []

    def admitted(self, cached_tokens: int) -> None:
        self.admitted_seconds = self._clock()
        self.engine.prompt_tokens += self.prompt_tokens
        self.engine.cached_tokens += cached_tokens
        self.engine.tokens_held += self.prompt_tokens

    def advance(self) -> bool:
        """Take one engine step and count it; True when the answer is complete. The first step is the prefill."""
        tokens = 1
        if self.sent_tokens:
            drafted, accepted = next(self._steps)
            if drafted:
                self.accepted.append(accepted)
                self.drafted.append(drafted)
                self.engine.step_histogram[accepted] += 1
                self.engine.draft_tokens += drafted
                tokens += accepted
        remaining = len(self.output) - self.sent_tokens
        tokens = min(tokens, remaining)
        if not self.sent_tokens:
            self.first_token_seconds = self._clock()
        self.sent_tokens += tokens
        self.engine.generation_tokens += tokens
        self.engine.tokens_held += tokens
        return tokens == remaining

    def finish(self, reason: str) -> None:
        """Count the request once; its slot is the caller's to release."""
        engine = self.engine
        self.last_token_seconds = self._clock()
        engine.tokens_held -= self.prompt_tokens + self.sent_tokens
        engine.finished[reason] += 1
        engine.time_to_first_token.observe(self.first_token_seconds - self.arrived_seconds)
        engine.latency.observe(self.last_token_seconds - self.arrived_seconds)
        engine.request_prompt_tokens.observe(self.prompt_tokens)
        engine.request_generation_tokens.observe(self.sent_tokens)

    def counts(self, *, detailed: bool) -> dict[str, object]:
        """The per-request counts as vLLM reports them; means are 1.0 and 0.0 where no step had a draft."""
        steps, accepted, drafted = len(self.accepted), sum(self.accepted), sum(self.drafted)
        histogram = [self.accepted.count(j) for j in range(self.engine.k + 1)]
        document: dict[str, object] = {
            "mean_acceptance_length": 1.0 + (accepted / steps if steps else 0.0),
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": histogram,
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": self.engine.k,
        }
        if detailed and steps:
            document |= {"per_step_accepted": self.accepted, "per_step_drafted": self.drafted}
        return document

    def timings(self) -> dict[str, object]:
        """Per-request timings in milliseconds, as vLLM reports them: the first token counts from admission."""
        generation_seconds = self.last_token_seconds - self.first_token_seconds
        total_seconds = self.last_token_seconds - self.admitted_seconds
        return {
            "time_to_first_token_ms": (self.first_token_seconds - self.admitted_seconds) * 1e3,
            "generation_time_ms": generation_seconds * 1e3,
            "queue_time_ms": (self.admitted_seconds - self.arrived_seconds) * 1e3,
            **({"mean_itl_ms": generation_seconds * 1e3 / (self.sent_tokens - 1)} if self.sent_tokens > 1 else {}),
            "tokens_per_second": self.sent_tokens / total_seconds if total_seconds > 0 else 0.0,
        }
