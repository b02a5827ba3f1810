"""A kept gate while it is measured: it says every few seconds that it is, and stops once somebody has ended it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from monitor.core.address import url_and_rank
from monitor.core.gate import GateReason
from monitor.core.gate_verdict import GateSide, GateVerdict
from monitor.errors import StoreError
from monitor.probing.clock import SystemClock
from monitor.probing.gate import run_gate
from monitor.probing.gate_servers import Server
from monitor.store import gate_requests, slots

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monitor.core.records import Run
    from monitor.probing.gate import GateStep
    from monitor.service.gating import Sides
    from monitor.store.database import Database

LOOK_EVERY_SECONDS = 2.0
"""Between two looks at whether it was ended; each says too that it is still measured."""


def servers_of(sides: Sides) -> list[str]:
    """The servers that it asks, which others keep off meanwhile."""
    candidate, reference, plan = sides
    targets = [side.target for side in (candidate, reference) if isinstance(side, Server)]
    return [url_and_rank(target.base_url)[0] for target in (*targets, *([plan.twin] if plan.twin else []))]


def open_gate(sides: Sides, now: datetime) -> dict[str, Any]:
    """What is known of the gate before it is measured, in the shape of its verdict."""
    return _unmeasured(sides, now).as_dict()


def _unmeasured(sides: Sides, now: datetime, why: tuple[GateReason, str] | None = None) -> GateVerdict:
    candidate, reference, plan = sides
    return GateVerdict(
        route=plan.route,
        against=plan.against,
        candidate=GateSide(candidate.target.replica, None),
        reference=GateSide(reference.target.replica if isinstance(reference, Server) else None, None),
        thresholds=plan.thresholds,
        concurrency=plan.concurrency,
        sampling=plan.sampling.as_dict(),
        started_at=now,
        finished_at=now,
        refusal=why,
        promotion=plan.promotion,
        twin=plan.gate_twin(),
    )


async def unless_ended(
    database: Database,
    gate_id: int,
    sides: Sides,
    on_run: Callable[[Run], object],
    on_step: Callable[[GateStep], object] = lambda _: None,
    on_wait: Callable[[str], object] = lambda _: None,
) -> GateVerdict | None:
    """The verdict; None when the gate was ended meanwhile: then the servers are left alone within seconds.

    `on_run` is told of each run of the candidate, `on_wait` what is waited for.
    """
    measuring = asyncio.create_task(_measured(database, sides, on_step, on_run, on_wait))
    watching = asyncio.create_task(_until_ended(database, gate_id))
    try:
        await asyncio.wait({measuring, watching}, return_when=asyncio.FIRST_COMPLETED)
        return measuring.result() if measuring.done() else watching.result()
    finally:
        measuring.cancel()
        watching.cancel()
        await asyncio.gather(measuring, watching, return_exceptions=True)


async def _measured(
    database: Database,
    sides: Sides,
    on_step: Callable[[GateStep], object],
    on_run: Callable[[Run], object],
    on_wait: Callable[[str], object],
) -> GateVerdict:
    """Once nobody else measures beside its plain twin, nor begins to; undecided where that takes its time-out."""
    twin, limit = sides[2].twin, sides[2].thresholds.timeout_seconds
    if twin is None:
        return await run_gate(*sides, on_step=on_step, on_run=on_run)
    told, deadline = f"others measure beside the plain twin {twin.replica}", time.monotonic() + limit
    waits = False
    while True:
        async with slots.measuring(database.conninfo(), twin.base_url) as ours:
            if ours:
                return await run_gate(*sides, on_step=on_step, on_run=on_run)
        if not waits:
            on_wait(told)
            waits = True
        if time.monotonic() >= deadline:
            text = f"not measured within {limit:g} s: {told}; ask again, or allow more time with --timeout"
            return _unmeasured(sides, SystemClock().now(), (GateReason.TIMED_OUT, text))
        await asyncio.sleep(min(LOOK_EVERY_SECONDS, max(0.0, deadline - time.monotonic())))


async def _until_ended(database: Database, gate_id: int) -> None:
    """Returns once it is."""
    while True:
        await asyncio.sleep(LOOK_EVERY_SECONDS)
        with suppress(StoreError):  # nobody could have ended it there; the next look tells
            if not await asyncio.to_thread(_renew, database, gate_id):
                return


def _renew(database: Database, gate_id: int) -> bool:
    with database.transaction() as connection:
        return gate_requests.renew(connection, gate_id, SystemClock().now())
