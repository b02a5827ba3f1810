"""A gate that the process which asks for it measures itself, as the command does: in its turn, and never lost.

1. It is kept, as queued, before anything is asked of a server: every gate of a route can be seen, and cancelled.
2. It claims both servers as a worker's gate does, and waits while another gate measures one of them; then for the
   probes that are being made there. Scheduled probes keep off from the claim on.
3. Its verdict ends it. What its process leaves unfinished, others end as interrupted once its lease is over for long.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from monitor.core.gate import GateReason
from monitor.service.gate_measuring import LOOK_EVERY_SECONDS, open_gate, servers_of, unless_ended
from monitor.service.queue_keeper import STALLED_AFTER_SECONDS
from monitor.store import gate_requests, queue
from monitor.store.gate_requests import Claim
from monitor.store.gates import get_gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monitor.core.gate_verdict import GateVerdict
    from monitor.probing.gate import GateStep
    from monitor.service.gating import Sides
    from monitor.service.promoting import Promoting
    from monitor.store.database import Database


class OwnGate:
    """Kept from its beginning, under `id`. `tell` hears in a sentence what it waits for. Raises StoreError."""

    def __init__(
        self,
        database: Database,
        sides: Sides,
        promoting: Promoting,
        now: Callable[[], datetime],
        tell: Callable[[str], object],
    ) -> None:
        self._database = database
        self._sides = sides
        self._promoting = promoting
        self._servers = servers_of(sides)
        self._limit = sides[2].thresholds.timeout_seconds
        self._now = now
        self._tell = tell
        with database.transaction() as connection:
            self.id = gate_requests.begin(connection, open_gate(sides, now()))

    async def measure(self, on_step: Callable[[GateStep], object]) -> GateVerdict | None:
        """None when it ended without: it was cancelled, or had no turn within its time-out. Raises StoreError."""
        if not await self._has_its_turn():
            return None
        on_run = self._promoting.candidate_runs.append
        return await unless_ended(self._database, self.id, self._sides, on_run, on_step, self._waits)

    def keep(self, verdict: GateVerdict | None) -> dict[str, Any]:
        """The document that stands: this verdict's, or that of what ended the gate before. Raises StoreError."""
        with self._database.transaction() as connection:
            stands = verdict is not None and self._promoting.finish(connection, self.id, verdict, self._now())
            kept = get_gate(connection, self.id)
        assert kept is not None, "gates are never removed"
        assert kept["verdict"] is not None, "it has ended"
        if verdict is not None and stands:
            return {**verdict.as_dict(), **{name: kept[name] for name in ("waivers", "promoted")}}
        return {name: value for name, value in kept.items() if name not in ("id", "status")}

    def give_up(self, reason: GateReason, why: str) -> None:
        """Ends it without a verdict of its own, and so never with a pass. Raises StoreError."""
        with self._database.transaction() as connection:
            gate_requests.give_up(connection, self.id, reason, why, self._now())

    async def _has_its_turn(self) -> bool:
        """Whether it may be measured now: nobody else asks its servers. False when it has ended."""
        deadline = time.monotonic() + self._limit
        return await self._no_longer(self._held, deadline) and await self._no_longer(self._probed, deadline)

    async def _no_longer(self, hindrance: Callable[[], str | None], deadline: float) -> bool:
        """Waits until nothing hinders it. False when it has ended, which it has at the deadline."""
        told = None
        while await asyncio.to_thread(self._lives):
            found = await asyncio.to_thread(hindrance)
            if found is None:
                return True
            if time.monotonic() >= deadline:
                text = f"not measured within {self._limit:g} s: {found}; ask again, or allow more time with --timeout"
                await asyncio.to_thread(self.give_up, GateReason.TIMED_OUT, text)
            elif found != told:
                self._waits(found)
                told = found
            await asyncio.sleep(min(LOOK_EVERY_SECONDS, max(0.0, deadline - time.monotonic())))
        return False

    def _waits(self, hindrance: str) -> None:
        self._tell(f"gate {self.id} waits: {hindrance}")

    def _lives(self) -> bool:
        with self._database.transaction() as connection:
            return gate_requests.renew(connection, self.id, self._now())

    def _held(self) -> str | None:
        """Which other gate has its servers; None once it has claimed them."""
        with self._database.transaction() as connection:
            if gate_requests.claim(connection, self.id, self._servers, self._now()) is not Claim.BUSY:
                return None
            return gate_requests.holder(connection, self._servers, self.id) or "another gate has just measured them"

    def _probed(self) -> str | None:
        """Which of its servers probes have not left yet."""
        with self._database.transaction() as connection:
            found = queue.probed_servers(connection, self._servers, STALLED_AFTER_SECONDS)
        return f"a probe is being made on {', '.join(found)}" if found else None
