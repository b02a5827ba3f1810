"""A gate measured: a candidate and what it is held against, replayed in turn until the decision falls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from monitor.core.format import count
from monitor.core.gate import LOOKS, GateReason
from monitor.core.gate_twin import TwinDomain, is_pass
from monitor.core.gate_verdict import GateSide, GateVerdict, look_text
from monitor.core.records import Reason
from monitor.probing.clock import Clock, SystemClock
from monitor.probing.comparing import Comparing
from monitor.probing.gate_servers import GateServers, Server
from monitor.probing.gate_twin import BUSY_SECONDS, RUNS, BesideTwin
from monitor.probing.replay import StandAside, replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.core.gate import Look
    from monitor.core.gate_verdict import GateDomain
    from monitor.core.records import Run
    from monitor.probing.comparing import FindBaseline, GatePlan
    from monitor.prompts.sets import PromptSet

MORE_TIME = "allow more time with --timeout, or name fewer domains or prompts"
_OF_THE_SERVER = frozenset(
    {
        GateReason.UNREACHABLE,
        GateReason.OTHER_MODEL,
        GateReason.IDENTITY_CHANGED,
        GateReason.CANDIDATE_NO_SPECULATION,
        GateReason.REFERENCE_NO_SPECULATION,
        GateReason.TWIN_SPECULATES,
    }
)
"""Whatever domain saw it: the others would not fare better, and are not tried."""


@dataclass(frozen=True)
class GateStep:
    """How far a gate is: a look that was taken, or, with a reason, how a domain ended.

    `seconds_over`: by how much what is left is longer than the time-out allows.
    """

    domain: str
    look: Look | None
    reason: GateReason | None
    seconds_left: float
    seconds_over: float = 0.0


async def run_gate(
    candidate: Server,
    reference: Server | FindBaseline,
    plan: GatePlan,
    *,
    on_step: Callable[[GateStep], object] = lambda _: None,
    on_run: Callable[[Run], object] = lambda _: None,
    clock: Clock | None = None,
) -> GateVerdict:
    """Measures domain after domain and stops each as soon as it is decided, and all of it at the time-out.

    `on_run` is told of each run of the candidate. Whatever either side does wrong is the reason of the verdict, then no
    pass. Raises UsageError for a key or CA file that cannot be used.
    """
    gating = _Gating(candidate, reference, plan, on_step, on_run, clock or SystemClock())
    return await gating.verdict()


class _Gating:
    """A gate under way."""

    def __init__(
        self,
        candidate: Server,
        reference: Server | FindBaseline,
        plan: GatePlan,
        on_step: Callable[[GateStep], object],
        on_run: Callable[[Run], object],
        clock: Clock,
    ) -> None:
        against = reference if isinstance(reference, Server) else None
        twin = None if plan.twin is None else Server("twin", plan.twin, candidate.engine)
        self._servers = GateServers(candidate, against, twin, clock)
        self._find = None if isinstance(reference, Server) else reference
        self._plan = plan
        self._on_step = on_step
        self._on_run = on_run
        self._clock = clock
        self._began = clock.monotonic()
        self._runs = 0
        self._left = len(plan.prompt_sets)
        self._twin_left = 0 if plan.twin is None else len(plan.prompt_sets)
        self._ended: tuple[GateReason, str] | None = None
        self._warnings: dict[str, None] = {}

    async def verdict(self) -> GateVerdict:
        started_at = self._clock.now()
        refusal = await self._servers.refusal()
        domains = [] if refusal else [await self._domain(prompt_set) for prompt_set in self._plan.prompt_sets]
        plan, servers, seen = self._plan, self._servers, self._servers.seen
        found = GateVerdict(
            route=plan.route,
            against=plan.against,
            candidate=GateSide(servers.candidate.target.replica, seen.get("candidate")),
            reference=GateSide(servers.against.target.replica if servers.against else None, seen.get("reference")),
            thresholds=plan.thresholds,
            concurrency=plan.concurrency,
            sampling=plan.sampling.as_dict(),
            started_at=started_at,
            finished_at=self._clock.now(),
            domains=tuple(domains),
            refusal=refusal,
            warnings=tuple(self._warnings),
            promotion=plan.promotion,
            twin=plan.gate_twin(seen.get("twin")),
        )
        if found.twin is None or not is_pass(found.acceptance):
            return found
        beside = replace(found.twin, domains=await self._beside_twin())
        return replace(found, twin=beside, finished_at=self._clock.now(), warnings=tuple(self._warnings))

    async def _beside_twin(self) -> dict[str, TwinDomain]:
        """What acceptance has let pass, domain after domain; never later than the time-out."""
        servers = self._servers
        sides = servers.targets["candidate"], servers.targets["twin"]
        measuring = BesideTwin(self._plan, servers.candidate.engine, *sides, servers.seen, self._clock)
        found = {}
        for prompt_set in self._plan.prompt_sets:
            one = await self._timed(measuring, prompt_set) if self._ended is None else TwinDomain(*self._ended)
            found[prompt_set.domain] = one
            self._runs += RUNS
            self._twin_left -= 1
            self._tell(f"{prompt_set.domain} beside its plain twin", None, one.reason, 0)
        self._warnings |= measuring.warnings
        return found

    async def _timed(self, measuring: BesideTwin, prompt_set: PromptSet) -> TwinDomain:
        servers = self._servers
        try:
            async with asyncio.timeout(self._rest()):
                found = await measuring.measure(prompt_set)
                if is_pass((found.reason, found.text)) and (
                    other := await servers.no_longer(servers.candidate, servers.twin)
                ):
                    found = TwinDomain(*other, found.found)
        except TimeoutError:
            limit = self._plan.thresholds.timeout_seconds
            needed = f"about {self._seconds_left(0):.0f} s more would do"
            told = f"not measured beside its plain twin within {limit:g} s; {needed}; {MORE_TIME}"
            found = TwinDomain(GateReason.TIMED_OUT, told)
        if found.reason in (*_OF_THE_SERVER, GateReason.TIMED_OUT):
            self._ended = found.reason, found.text
        return found

    async def _domain(self, prompt_set: PromptSet) -> GateDomain:
        """How it ends; never later than the time-out."""
        comparing = Comparing(prompt_set, self._plan)
        if self._ended is not None:
            return comparing.ended(*self._ended)
        try:
            async with asyncio.timeout(self._rest()):
                ending = await self._compare(comparing)
                if is_pass(ending):
                    ending = await self._servers.no_longer(*self._servers.pair) or ending
        except TimeoutError:
            ending = self._ended = GateReason.TIMED_OUT, self._timed_out()
        if ending[0] in _OF_THE_SERVER:
            self._ended = ending
        self._left -= 1
        self._tell(prompt_set.domain, comparing.look, ending[0], 0)
        return comparing.ended(*ending)

    async def _compare(self, comparing: Comparing) -> tuple[GateReason, str]:
        thresholds, domain = self._plan.thresholds, comparing.prompt_set.domain
        if self._find is not None and await asyncio.to_thread(self._find, domain, comparing.expected()) is None:
            return GateReason.NO_BASELINE, f"no approved baseline; see 'specwatch baseline create {self._plan.route}'"
        for pair in range(1, LOOKS[-1] + 1):
            for server in self._servers.pair:
                run = await self._run(server, comparing.prompt_set)
                if problem := self._servers.problem(server, run):
                    return problem
                comparing.add(server.name, run)
            if problem := await self._not_comparable(comparing):
                return problem
            if pair not in LOOKS:
                continue
            look = comparing.take_look()
            reason = look.reason(thresholds.max_drop)
            if reason is not GateReason.UNDECIDED or pair == LOOKS[-1]:
                return reason, look_text(look, thresholds.max_drop)
            self._tell(domain, look, None, 1)
        raise AssertionError("the last pair decides")

    async def _run(self, server: Server, prompt_set: PromptSet) -> Run:
        """A server that queues is waited for, as long as there is time."""
        plan = self._plan
        while True:
            found = await replay(
                self._servers.targets[server.name],
                server.engine,
                prompt_set,
                route=plan.route or "",
                sampling=plan.sampling,
                concurrency=plan.concurrency,
                source=plan.source,
                max_contamination_ratio=plan.max_contamination_ratio,
                declared_identity=server.declared,
                max_waiting=plan.max_waiting,
                min_prompts=plan.thresholds.min_prompts,
                reason=Reason.GATE,
                limit=plan.limit,
                clock=self._clock,
            )
            if not isinstance(found, StandAside):
                self._runs += 1
                self._warnings.update(dict.fromkeys(f"{server.name}: {warning}" for warning in found.warnings))
                if server is self._servers.candidate:
                    self._on_run(found)
                return found
            await asyncio.sleep(BUSY_SECONDS)

    async def _not_comparable(self, comparing: Comparing) -> tuple[GateReason, str] | None:
        """Sets the reference, too."""
        if self._find is None:
            if differences := "; ".join(comparing.differences()):
                return GateReason.NOT_COMPARABLE, f"{differences}; --source stream counts alike on both"
            comparing.pair_up()
        else:
            own = comparing.comparability["candidate"]
            known = await asyncio.to_thread(self._find, comparing.prompt_set.domain, own)
            assert known is not None, "baselines are never removed"
            self._servers.seen.setdefault("reference", known.identity)
            if differences := "; ".join(comparing.hold_against(known.reference)):
                own_set = known.reference.comparability.prompt_set_hash == comparing.prompt_set.content_hash
                reason = GateReason.NOT_COMPARABLE if own_set else GateReason.PROMPT_SET_MISMATCH
                return reason, f"baseline {known.reference.id}: {differences}"
        shared, needed = comparing.shared(), self._plan.thresholds.min_prompts
        if shared >= needed:
            return None
        metric = self._plan.thresholds.metric
        return GateReason.TOO_FEW_PROMPTS, f"{count(shared, 'prompt')} with {metric} on both sides, {needed} are needed"

    def _tell(self, domain: str, look: Look | None, reason: GateReason | None, pairs: int) -> None:
        """`pairs`: the fewest that this domain still needs."""
        left = self._seconds_left(pairs)
        over = 0.0 if self._ended else max(0.0, left - self._rest())
        self._on_step(GateStep(domain, look, reason, left, over))

    def _rest(self) -> float:
        """Seconds until the time-out."""
        return max(0.0, self._plan.thresholds.timeout_seconds - (self._clock.monotonic() - self._began))

    def _seconds_left(self, pairs: int) -> float:
        """As long as the runs so far took, for `pairs` more here and for the fewest that later domains need."""
        if not self._runs:
            return 0.0
        each = (self._clock.monotonic() - self._began) / self._runs
        later = self._left - (1 if pairs else 0)
        return each * (len(self._servers.pair) * (pairs + LOOKS[0] * later) + RUNS * self._twin_left)

    def _timed_out(self) -> str:
        done, all_of_them = len(self._plan.prompt_sets) - self._left, len(self._plan.prompt_sets)
        needed = (
            f"; about {self._seconds_left(1):.0f} s more would do" if self._runs else "; not one run was over by then"
        )
        limit = self._plan.thresholds.timeout_seconds
        return f"not decided within {limit:g} s, after {done} of {count(all_of_them, 'domain')}{needed}; {MORE_TIME}"
