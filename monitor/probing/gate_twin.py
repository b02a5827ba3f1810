"""The candidate of a gate measured beside its own plain twin, domain by domain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monitor.core.format import count
from monitor.core.gate import GateReason
from monitor.core.gate_twin import TwinDomain, speedup_ending
from monitor.core.records import Identity
from monitor.probing.gate_reasons import reason_of
from monitor.probing.speedup import PASSES, measure_speedup
from monitor.probing.sweep import BUSY, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.speedup import Speedup
    from monitor.engines.base import Engine
    from monitor.probing.clock import Clock
    from monitor.probing.comparing import GatePlan
    from monitor.probing.target import Target
    from monitor.prompts.sets import PromptSet

BUSY_SECONDS = 5.0
"""Until a server that queues is asked again."""
RUNS = 2 * PASSES
"""About so many runs long is the measurement of a domain."""


class BesideTwin:
    """`seen`: the identities that `candidate` and `twin` have shown; `warnings` fills as it is measured."""

    def __init__(
        self,
        plan: GatePlan,
        engine: Engine,
        candidate: Target,
        twin: Target,
        seen: Mapping[str, Identity],
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._candidate = candidate
        self._twin = twin
        self._seen = dict(seen)
        self._clock = clock
        self.warnings: dict[str, None] = {}

    async def measure(self, prompt_set: PromptSet) -> TwinDomain:
        """Waits while either queues. Whatever either does wrong is the reason, and then no pass."""
        while True:
            found = await self._measured(prompt_set)
            if found.invalid_reason != BUSY:
                break
            await asyncio.sleep(BUSY_SECONDS)
        if found.point is not None:
            self.warnings |= dict.fromkeys(f"beside the plain twin: {warning}" for warning in found.point.warnings)
        if found.invalid_reason is not None:
            reason = reason_of(found.invalid_reason, "candidate", GateReason.SPEEDUP_INVALID)
            told = f"{found.invalid_reason}: {found.invalid_detail}"
            return TwinDomain(reason, f"no speedup beside the plain twin: {told}", found)
        if told := self._changed(found):
            return TwinDomain(GateReason.IDENTITY_CHANGED, f"changed during the gate: {told}", found)
        assert found.point is not None
        assert found.point.speedup is not None, "of a valid measurement there is one"
        speedup, allowed = found.point.speedup, self._plan.thresholds
        if speedup.n < allowed.min_prompts:
            told = f"{count(speedup.n, 'prompt')} with a speedup, {allowed.min_prompts} are needed"
            return TwinDomain(GateReason.TOO_FEW_PROMPTS, told, found)
        assert allowed.min_speedup is not None, "a gate with a twin has one"
        return TwinDomain(*speedup_ending(speedup, allowed.min_speedup), found)

    async def _measured(self, prompt_set: PromptSet) -> Speedup:
        asked = self._plan
        prompts = prompt_set.prompts[: asked.limit]
        plan = Plan(
            prompts,
            asked.sampling,
            (asked.concurrency,),
            measured=len(prompts),
            repeats=PASSES,
            source=asked.source,
            max_waiting=asked.max_waiting,
        )
        sides = self._candidate, self._twin
        return await measure_speedup(self._engine, prompt_set, plan, *sides, route=asked.route or "", clock=self._clock)

    def _changed(self, found: Speedup) -> str:
        """In words, what either shows now and did not show before."""
        shown = {"candidate": found.speculative_identity, "twin": found.plain_identity}
        return ", ".join(
            f"{name} of the {server} {before} → {now}"
            for server, identity in shown.items()
            if identity is not None
            for name, (before, now) in Identity.from_dict(identity).changes_from(self._seen[server]).items()
        )
