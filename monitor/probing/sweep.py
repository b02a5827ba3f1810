"""A sweep under way: the same prompts at one concurrency after another, on a plain and on speculative servers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitor.core.sweep import Point, Sweep, point
from monitor.engines.failures import GONE
from monitor.errors import TargetError
from monitor.probing.outcome import LATE, LATE_SECONDS
from monitor.probing.replay import StandAside, replay
from monitor.prompts.sets import PromptSet, content_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monitor.core.records import Identity, Run, Sampling
    from monitor.core.sweep import Repeat
    from monitor.engines.base import Engine
    from monitor.probing.outcome import SourceWish
    from monitor.probing.target import Target
    from monitor.prompts.sets import Prompt

BUSY = "busy"
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 48, 64, 128)


@dataclass(frozen=True)
class Plan:
    """What every server of a sweep is asked.

    At concurrency c one pass sends c prompts to warm up, then the measured ones (`prompts`, or c if that is more), and
    then c more that hold the load up until the last measured one is done; only those in between count. No pass begins
    at a server where more than `max_waiting` requests wait (None: whatever waits there).
    """

    prompts: tuple[Prompt, ...]
    sampling: Sampling
    concurrencies: tuple[int, ...] = CONCURRENCIES
    measured: int = 24
    repeats: int = 3
    source: SourceWish = "auto"
    gpus: int | None = None
    max_waiting: int | None = None

    @property
    def prompt_set_hash(self) -> str:
        return content_hash(self.prompts)

    def measured_at(self, concurrency: int) -> int:
        """How many prompts count in a pass."""
        return min(len(self.prompts), max(self.measured, concurrency))

    def sent_at(self, concurrency: int) -> int:
        """How many prompts a pass sends."""
        return self.measured_at(concurrency) + 2 * concurrency

    def sent_to_each(self) -> int:
        """How many prompts one server is sent in all."""
        return self.repeats * sum(self.sent_at(concurrency) for concurrency in self.concurrencies)

    def counted(self, measured: Measured, concurrency: int) -> list[Repeat]:
        """The samples of each pass that count: those sent while the load held."""
        kept = slice(concurrency, concurrency + self.measured_at(concurrency))
        return [run.samples[kept] for run in measured.passes[concurrency]]

    def prompts_of_a_pass(self, concurrency: int) -> tuple[Prompt, ...]:
        """Measured prompts come after `concurrency` others; where there are too few others, prompts come twice."""
        measured = self.prompts[: self.measured_at(concurrency)]
        others = itertools.cycle(self.prompts[len(measured) :] or self.prompts)
        before = tuple(itertools.islice(others, concurrency))
        return before + measured + tuple(itertools.islice(others, concurrency))


@dataclass(frozen=True)
class Contender:
    """One server of a sweep; `label` names it in tables."""

    label: str
    target: Target
    plain: bool = False

    @property
    def url(self) -> str:
        return self.target.replica


class Measured:
    """What was measured so far of one contender: its passes by concurrency."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.passes: dict[int, list[Run]] = {}

    async def measure(
        self, engine: Engine, plan: Plan, concurrency: int, on_sample: Callable[[object], None] | None = None
    ) -> None:
        """One pass more.

        Raises TargetError when the server is gone, or speculates and should not, or the reverse; `busy` when it queues.
        """
        prompts = plan.prompts_of_a_pass(concurrency)
        run = await replay(
            self.contender.target,
            engine,
            PromptSet("sweep", prompts, content_hash(prompts)),
            route="",
            sampling=plan.sampling,
            concurrency=concurrency,
            source="auto" if self.contender.plain else plan.source,
            plain=self.contender.plain,
            keep_concurrency=True,
            max_waiting=plan.max_waiting,
            on_sample=on_sample,
        )
        if isinstance(run, StandAside):
            raise TargetError(BUSY, f"{self.contender.label}: {run.waiting:.0f} requests wait at {self.contender.url}")
        if run.invalid_reason in GONE | {"no_speculation", "speculates"}:
            raise TargetError(run.invalid_reason or "", f"{self.contender.label}: {run.invalid_detail}")
        self.passes.setdefault(concurrency, []).append(run)

    def gave_at(self, concurrency: int) -> bool:
        """Whether any of its samples there is valid."""
        return any(sample.valid for run in self.passes[concurrency] for sample in run.samples)

    def identity(self) -> Identity:
        """Of the first pass. Raises ValueError before there is one."""
        return next(run.identity for runs in self.passes.values() for run in runs)

    def started_at(self) -> str:
        return min(run.started_at for runs in self.passes.values() for run in runs).isoformat()

    def finished_at(self) -> str:
        return max(run.finished_at for runs in self.passes.values() for run in runs).isoformat()


async def interleaved(
    engine: Engine,
    plan: Plan,
    contenders: Sequence[Contender],
    on_sample: Callable[[object], None] | None = None,
    on_point: Callable[[int, bool], None] | None = None,
) -> list[Measured]:
    """Measures all contenders side by side: at each concurrency, pass by pass, each time another one first.

    `on_point` is told of each concurrency that is done, and whether every contender gave anything valid there.
    """
    found = [Measured(contender) for contender in contenders]
    for concurrency in plan.concurrencies:
        for repeat in range(plan.repeats):
            turn = repeat % len(found)
            for measured in found[turn:] + found[:turn]:
                await measured.measure(engine, plan, concurrency, on_sample)
        if on_point is not None:
            on_point(concurrency, all(measured.gave_at(concurrency) for measured in found))
    return found


async def alone(
    engine: Engine,
    plan: Plan,
    contender: Contender,
    on_sample: Callable[[object], None] | None = None,
    on_point: Callable[[int, bool], None] | None = None,
) -> Measured:
    """Measures one contender at every concurrency, for servers that cannot run at the same time."""
    (found,) = await interleaved(engine, plan, [contender], on_sample, on_point)
    return found


def compared(plan: Plan, plain: Measured, speculative: Measured, *, interleaved: bool) -> Sweep:
    """The curve of one speculative server against the plain one."""
    return Sweep(
        label=speculative.contender.label,
        model=speculative.identity().model,
        plain_identity=plain.identity().as_dict(),
        speculative_identity=speculative.identity().as_dict(),
        plain_replica=plain.contender.url,
        speculative_replica=speculative.contender.url,
        sampling=plan.sampling.as_dict(),
        prompt_set_hash=plan.prompt_set_hash,
        interleaved=interleaved,
        gpus=plan.gpus,
        started_at=min(plain.started_at(), speculative.started_at()),
        finished_at=max(plain.finished_at(), speculative.finished_at()),
        points=tuple(_point(plan, concurrency, plain, speculative) for concurrency in plan.concurrencies),
    )


def _point(plan: Plan, concurrency: int, plain: Measured, speculative: Measured) -> Point:
    return point(
        concurrency,
        plan.counted(plain, concurrency),
        plan.counted(speculative, concurrency),
        plan.gpus,
        warnings_of((plain, speculative), concurrency),
    )


def warnings_of(sides: Sequence[Measured], concurrency: int) -> tuple[str, ...]:
    """What a reader of the times at this concurrency must know, each said once."""
    runs = (run for measured in sides for run in measured.passes[concurrency])
    return tuple(dict.fromkeys(warning for run in runs for warning in _warnings(run)))


def _warnings(run: Run) -> list[str]:
    """What a reader of this pass's times must know, without the size of it, so that passes say it once."""
    found = []
    if run.regime.running_before:
        found.append(f"{run.replica}: other requests were running already")
    if run.regime.waiting_max:
        found.append(f"{run.replica}: requests queued, so fewer ran at once than were sent")
    if run.regime.preemptions:
        found.append(f"{run.replica}: requests were preempted for lack of KV cache")
    late = max((sample.loop_lag_seconds for sample in run.samples), default=0.0)
    if late > LATE_SECONDS:
        found.append(LATE)
    return found
