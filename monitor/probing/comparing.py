"""One domain of a gate under way: the values of both sides so far, whether they may be compared, and its looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from monitor.core.figures import aggregate, metric_values
from monitor.core.gate import paired_reference, shared_prompts, take_look
from monitor.core.gate_twin import LEAST_SPEEDUP, GateTwin
from monitor.core.gate_verdict import GateDomain, GateThresholds
from monitor.core.judge import Comparability, Reference
from monitor.core.statistics import BaselineValues, baseline_values
from monitor.engines.counts import MAX_CONTAMINATION_RATIO
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from monitor.core.gate import GateReason, Look
    from monitor.core.promotion import Promotion
    from monitor.core.records import Identity, Run, Sampling
    from monitor.probing.outcome import SourceWish
    from monitor.probing.target import Target
    from monitor.prompts.sets import PromptSet


@dataclass(frozen=True)
class KnownBaseline:
    """What a candidate is held against where it is no server: the approved baseline of a domain and its identity."""

    reference: Reference
    identity: Identity


FindBaseline: TypeAlias = Callable[[str, Comparability], KnownBaseline | None]
"""Of a domain the approved baseline comparable with that, else any approved one; None where none is approved."""


@dataclass(frozen=True)
class GatePlan:
    """What is asked of both sides, and what is allowed. `limit`: prompts of each domain (None: all).

    `twin`: the candidate's own plain twin, where it is measured beside one.
    """

    prompt_sets: tuple[PromptSet, ...]
    thresholds: GateThresholds
    sampling: Sampling
    concurrency: int
    against: str
    route: str | None = None
    source: SourceWish = "auto"
    max_contamination_ratio: float = MAX_CONTAMINATION_RATIO
    max_waiting: int | None = None
    limit: int | None = None
    promotion: Promotion | None = None
    twin: Target | None = None

    def gate_twin(self, identity: Identity | None = None) -> GateTwin | None:
        """What the candidate must show beside its plain twin; None where it is not measured beside one."""
        allowed = self.thresholds
        if self.twin is None or allowed.min_speedup is None:
            return None
        return GateTwin(
            self.twin.replica, allowed.min_speedup, allowed.lossless, allowed.min_prompts, allowed.weights, identity
        )


class GateAsked(Protocol):
    """What a gate is asked, wherever it comes from: the options of the command, the body of a request."""

    @property
    def candidate(self) -> str: ...
    @property
    def candidate_model(self) -> str | None: ...
    @property
    def against(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def max_drop(self) -> float: ...
    @property
    def domains(self) -> Sequence[str] | None: ...
    @property
    def prompts(self) -> int | None: ...
    @property
    def min_prompts(self) -> int: ...
    @property
    def timeout(self) -> timedelta: ...
    @property
    def promotion(self) -> Promotion | None: ...
    @property
    def plain(self) -> str | None: ...
    @property
    def min_speedup(self) -> float | None: ...
    @property
    def require_lossless(self) -> float | str | None: ...


def thresholds_of(asked: GateAsked, sets: Sequence[PromptSet], mix: Mapping[str, float]) -> GateThresholds:
    """The mix is that of the route as far as its domains are compared; where it is empty all weigh the same.

    Raises UsageError for a set that is too small.
    """
    for one in sets:
        if len(one.prompts) < asked.min_prompts:
            raise UsageError(f"{one.domain} has {len(one.prompts)} prompts, {asked.min_prompts} must be valid")
    weights = {one.domain: mix[one.domain] if mix else 1.0 for one in sets if not mix or one.domain in mix}
    total = sum(weights.values())
    shares = {domain: weight / total for domain, weight in weights.items()}
    return GateThresholds(
        asked.metric,
        asked.max_drop,
        asked.min_prompts,
        asked.timeout.total_seconds(),
        shares,
        (asked.min_speedup or LEAST_SPEEDUP) if asks_for_twin(asked) else None,
        asked.require_lossless,
    )


def asks_for_twin(asked: GateAsked) -> bool:
    """Whether the candidate is to be measured beside its plain twin, named or the route's."""
    return (asked.plain, asked.min_speedup, asked.require_lossless) != (None, None, None)


class Comparing:
    """One domain under way."""

    def __init__(self, prompt_set: PromptSet, plan: GatePlan) -> None:
        self.prompt_set = prompt_set
        self.values: dict[str, list[dict[str, float]]] = {}
        self.comparability: dict[str, Comparability] = {}
        self.reference: BaselineValues | None = None
        self.baseline_id: int | None = None
        self._plan = plan
        self._looks: list[Look] = []

    @property
    def look(self) -> Look | None:
        return self._looks[-1] if self._looks else None

    def expected(self) -> Comparability:
        """As far as it is known before a run."""
        return Comparability(
            self.prompt_set.content_hash, "", None, self._plan.concurrency, self._plan.sampling.as_dict()
        )

    def add(self, server: str, run: Run) -> None:
        figures = aggregate(run.domain, run.samples)
        source = "none" if figures.source is None else figures.source.value
        self.values.setdefault(server, []).append(metric_values(run.samples, self._plan.thresholds.metric))
        self.comparability[server] = replace(self.expected(), source=source, k=figures.k, concurrency=run.concurrency)

    def differences(self) -> Iterator[str]:
        """Between the two servers' last runs. K is no such thing: acceptance is compared across it, and it is told."""
        ours, theirs = self.comparability["candidate"], self.comparability["reference"]
        for name in ("source", "concurrency"):
            if getattr(ours, name) != getattr(theirs, name):
                yield f"{name} {getattr(ours, name)} of the candidate, {getattr(theirs, name)} of the reference"

    def pair_up(self) -> None:
        """The reference is what its server's runs so far show."""
        self.reference = paired_reference(self.values["reference"])

    def hold_against(self, baseline: Reference) -> list[str]:
        """From now on; why it cannot be, else."""
        self.baseline_id = baseline.id
        self.reference = BaselineValues(dict(baseline.values), {}, baseline.run_sigma, baseline.runs)
        return baseline.comparability.differences(self.comparability["candidate"])

    def shared(self) -> int:
        assert self.reference is not None
        return shared_prompts(self.values["candidate"], self.reference)

    def take_look(self) -> Look:
        assert self.reference is not None
        self._looks.append(take_look(self.values["candidate"], self.reference))
        return self._looks[-1]

    def ended(self, reason: GateReason, text: str) -> GateDomain:
        candidate = self.comparability.get("candidate")
        return GateDomain(
            domain=self.prompt_set.domain,
            reason=reason,
            text=text,
            prompts_total=len(self.prompt_set.prompts[: self._plan.limit]),
            prompt_set_hash=self.prompt_set.content_hash,
            source=None if candidate is None else candidate.source,
            baseline_id=self.baseline_id,
            looks=tuple(self._looks),
            values=self._compared(),
        )

    def _compared(self) -> dict[str, tuple[float, float]]:
        if self.reference is None:
            return {}
        now = baseline_values(self.values["candidate"]).values
        return {
            question: (before, now[question]) for question, before in self.reference.values.items() if question in now
        }
