"""A speedup measured: one domain on a replica and on its plain twin, pass by pass in turn."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from monitor.core.outputs import Outputs, agreement
from monitor.core.speedup import Speedup
from monitor.core.sweep import point
from monitor.errors import TargetError
from monitor.probing.clock import SystemClock
from monitor.probing.outcome import IDENTITY_CHANGED, LATE_SECONDS
from monitor.probing.sweep import Contender, Measured, Plan, interleaved, warnings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.core.records import Sample
    from monitor.core.sweep import Point, Repeat
    from monitor.engines.base import Engine
    from monitor.probing.clock import Clock
    from monitor.probing.target import Target
    from monitor.prompts.sets import PromptSet

PASSES = 3
"""Of each side: the fewest whose spread gives a useful interval, and two pairs of the twin beside itself."""


async def measure_speedup(
    engine: Engine,
    prompt_set: PromptSet,
    plan: Plan,
    replica: Target,
    twin: Target,
    *,
    route: str,
    clock: Clock | None = None,
) -> Speedup:
    """Measures at the only concurrency of `plan`; whatever a server does wrong is the reason why it is invalid.

    `busy` when either queues, `speculates` for a twin with speculation, IDENTITY_CHANGED for a side that was several;
    answers read while this machine was late do not count, and are `late_client` when too few are left.
    """
    clock = clock or SystemClock()
    (concurrency,) = plan.concurrencies
    started_at = clock.now()
    fault: TargetError | None = None
    sides: list[Measured] = []
    try:
        found = await interleaved(engine, plan, [Contender("twin", twin, plain=True), Contender("replica", replica)])
        _require_one_identity(found)
        sides = found
    except TargetError as error:
        fault = error
    speedup = Speedup(
        route=route,
        domain=prompt_set.domain,
        replica=replica.replica,
        plain_twin=twin.replica,
        prompt_set_hash=prompt_set.content_hash,
        concurrency=concurrency,
        sampling=plan.sampling.as_dict(),
        started_at=started_at,
        finished_at=clock.now(),
        invalid_reason=None if fault is None else fault.reason,
        invalid_detail=None if fault is None else str(fault),
    )
    return replace(speedup, **_figures(plan, concurrency, sides)) if sides else speedup


def _require_one_identity(sides: Sequence[Measured]) -> None:
    """Raises TargetError where a side was another in one pass than in its first, or within one."""
    for side in sides:
        for run in (run for runs in side.passes.values() for run in runs):
            changed = run.identity.changes_from(side.identity())
            if run.invalid_reason != IDENTITY_CHANGED and not changed:
                continue
            told = ", ".join(f"{name} {before} → {now}" for name, (before, now) in changed.items())
            detail = told or run.invalid_detail
            raise TargetError(IDENTITY_CHANGED, f"{side.contender.label}: changed while it was measured: {detail}")


def _figures(plan: Plan, concurrency: int, sides: Sequence[Measured]) -> dict[str, Any]:
    plain, speculative = (plan.counted(side, concurrency) for side in sides)
    measured = _point(plan, concurrency, sides, plain, speculative)
    return {
        "plain_identity": sides[0].identity().as_dict(),
        "speculative_identity": sides[1].identity().as_dict(),
        "point": measured,
        "outputs": _outputs(plain, speculative) if plan.sampling.temperature == 0 else None,
        "invalid_reason": measured.invalid_reason,
        "invalid_detail": measured.invalid_detail,
    }


def _point(
    plan: Plan, concurrency: int, sides: Sequence[Measured], plain: Sequence[Repeat], speculative: Sequence[Repeat]
) -> Point:
    timed = [[tuple(map(_timed, repeat)) for repeat in repeats] for repeats in (plain, speculative)]
    return point(concurrency, timed[0], timed[1], plan.gpus, warnings_of(sides, concurrency))


def _timed(sample: Sample) -> Sample:
    """Invalid when this machine read it late: its times include our own delay."""
    if not sample.valid or sample.loop_lag_seconds <= LATE_SECONDS:
        return sample
    detail = f"this machine was late by {sample.loop_lag_seconds * 1000:.0f} ms"
    return replace(sample, invalid_reason="late_client", invalid_detail=detail)


def _outputs(plain: Sequence[Repeat], speculative: Sequence[Repeat]) -> Outputs | None:
    """None when no answer has a hash."""
    found = Outputs(agreement(zip(plain, speculative, strict=True)), agreement(pairwise(plain)))
    return found if found.replica_and_twin.compared else None
