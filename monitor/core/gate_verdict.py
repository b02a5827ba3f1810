"""The verdict of a gate: of each domain, of their mix, of the whole; one document for command, row and API. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from monitor.core.format import change, count
from monitor.core.gate import (
    ALPHA,
    EXIT_CODES,
    GATE_VERSION,
    LEVEL,
    LOOKS,
    SEVEREST_FIRST,
    Decision,
    GateReason,
    Look,
    mixed_look,
)
from monitor.core.gate_twin import both, is_pass, verdict_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.gate_twin import GateTwin, TwinDomain
    from monitor.core.promotion import Promotion
    from monitor.core.records import Identity

EQUAL = "nothing that the servers show; overwritten weights would not show"


@dataclass(frozen=True)
class GateDomain:
    """How one domain ended. `values`: prompt → reference and candidate, geometric means over the runs compared.

    `reason` and `text` are of acceptance.
    """

    domain: str
    reason: GateReason
    text: str
    prompts_total: int
    prompt_set_hash: str
    source: str | None = None
    baseline_id: int | None = None
    looks: tuple[Look, ...] = ()
    values: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def look(self) -> Look | None:
        return self.looks[-1] if self.looks else None

    def as_dict(self, beside: TwinDomain | None = None) -> dict[str, Any]:
        """The JSON shape of a domain of a gate (docs/json.md). `beside`: its plain twin, where that was measured."""
        return {
            "domain": self.domain,
            **verdict_of(both((self.reason, self.text), beside)),
            "source": self.source,
            **_figures(self.look),
            "prompts_valid": len(self.values),
            "prompts_total": self.prompts_total,
            "prompt_set_hash": self.prompt_set_hash,
            "baseline_id": self.baseline_id,
            "looks": [look.as_dict() for look in self.looks],
            "per_prompt": [
                {"question_id": question, "reference": before, "candidate": now, "change": now / before - 1}
                for question, (before, now) in sorted(self.values.items(), key=lambda one: one[1][1] / one[1][0])
            ],
            "twin": None if beside is None else beside.as_dict(),
        }


@dataclass(frozen=True)
class GateSide:
    """What was compared: a replica or, for the reference, a baseline (then there is none), and what was running."""

    replica: str | None
    identity: Identity | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "replica": self.replica,
            "identity": None if self.identity is None else self.identity.as_dict(),
        }


@dataclass(frozen=True)
class GateThresholds:
    """What was allowed. `weights`: of the domains in the mix.

    `min_speedup`: over the plain twin; None without one. `lossless`: the share of greedy outputs that must be the
    twin's, or AS_THE_TWIN; None: whatever they are.
    """

    metric: str
    max_drop: float
    min_prompts: int
    timeout_seconds: float
    weights: Mapping[str, float]
    min_speedup: float | None = None
    lossless: float | str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of what was allowed (docs/json.md)."""
        return {
            "metric": self.metric,
            "max_drop": self.max_drop,
            "min_prompts": self.min_prompts,
            "timeout_seconds": self.timeout_seconds,
            "weights": dict(self.weights),
            "min_speedup": self.min_speedup,
            "require_lossless": self.lossless,
            "alpha": ALPHA,
            "looks_after_pairs": list(LOOKS),
            "interval_level": LEVEL,
        }


@dataclass(frozen=True)
class GateVerdict:
    """The whole of it. `refusal`: why nothing was measured at all, where it was not. `promotion`: what a pass is to do.

    `twin`: the candidate's own plain twin, where it is measured beside one.

    `against`: `production`, `baseline` or `url`. A gate without domains, or with one that was not measured, is no pass.
    """

    route: str | None
    against: str
    candidate: GateSide
    reference: GateSide
    thresholds: GateThresholds
    concurrency: int
    sampling: Mapping[str, Any]
    started_at: datetime
    finished_at: datetime
    domains: tuple[GateDomain, ...] = ()
    refusal: tuple[GateReason, str] | None = None
    warnings: tuple[str, ...] = ()
    promotion: Promotion | None = None
    twin: GateTwin | None = None

    @property
    def mix(self) -> Look | None:
        return mixed_look({one.domain: one.look for one in self.domains if one.look}, self.thresholds.weights)

    @property
    def _mixed(self) -> tuple[GateReason, str] | None:
        mix, allowed = self.mix, self.thresholds.max_drop
        return None if mix is None else (mix.reason(allowed), look_text(mix, allowed))

    @property
    def acceptance(self) -> tuple[GateReason, str]:
        """Reason and sentence of the severest part of acceptance alone; the mix counts as one."""
        if self.refusal is not None:
            return self.refusal
        parts = [(one.reason, f"{one.domain}: {one.text}") for one in self.domains]
        if self._mixed is not None and len(self.domains) > 1:
            parts.append((self._mixed[0], f"mix of the domains: {self._mixed[1]}"))
        if not parts:
            return GateReason.RUN_INVALID, "no domain was measured"
        allowed = f"{self.thresholds.max_drop * 100:g}% of {self._metric}"
        names = [one.domain for one in self.domains]
        passed = f"{names[0]} has not lost" if len(names) == 1 else f"none of {len(names)} domains has lost"
        passed += f" {allowed}"
        return _severest(parts, passed)

    @property
    def ending(self) -> tuple[GateReason, str]:
        """Reason and sentence of the severest of all parts. The plain twin is asked of what has passed otherwise."""
        own = self.acceptance
        if self.twin is None or not is_pass(own):
            return own
        parts = self.twin.parts([one.domain for one in self.domains])
        return _severest(parts, f"{own[1]}, and each is at least {self.twin.min_speedup:g} × as fast as its plain twin")

    @property
    def _metric(self) -> str:
        return self.thresholds.metric.replace("_", " ")

    @property
    def decision(self) -> Decision:
        return self.ending[0].decision

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.decision]

    @property
    def identity_changes(self) -> dict[str, list[Any]]:
        """Field → of the reference and of the candidate, where both are known and differ."""
        before, now = self.reference.identity, self.candidate.identity
        if before is None or now is None:
            return {}
        return {name: list(pair) for name, pair in now.changes_from(before).items()}

    def as_dict(self) -> dict[str, Any]:
        """The one JSON shape of a gate's verdict, for command, row and API (docs/json.md)."""
        mixed = self._mixed
        beside = {} if self.twin is None else self.twin.domains
        sources = {one.source for one in self.domains if one.source}
        return {
            **verdict_of(self.ending),
            "exit_code": self.exit_code,
            "route": self.route,
            "against": self.against,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "candidate": self.candidate.as_dict(),
            "reference": self.reference.as_dict(),
            "identity_changes": self.identity_changes,
            "difference": self._difference(),
            "thresholds": self.thresholds.as_dict(),
            "concurrency": self.concurrency,
            "sampling": dict(self.sampling),
            "prompts_valid": sum(len(one.values) for one in self.domains),
            "prompts_total": sum(one.prompts_total for one in self.domains),
            "mix": {
                **verdict_of(None if mixed is None else both(mixed, None if self.twin is None else self.twin.mix)),
                "source": next(iter(sources)) if len(sources) == 1 else None,
                **_figures(self.mix),
            },
            "domains": [one.as_dict(beside.get(one.domain)) for one in self.domains],
            "twin": None if self.twin is None else self.twin.as_dict(),
            "warnings": list(self.warnings),
            "waivers": [],
            "promoted": None if self.promotion is None else self.promotion.pending(),
            "judge_version": GATE_VERSION,
        }

    def _difference(self) -> str:
        """In words."""
        sides = {"candidate": self.candidate.identity, "reference": self.reference.identity}
        unseen = [side for side, identity in sides.items() if identity is None]
        if unseen:
            return f"unknown: {' and '.join(unseen)} {'was' if len(unseen) == 1 else 'were'} not seen"
        return ", ".join(f"{name} {a} → {b}" for name, (a, b) in self.identity_changes.items()) or EQUAL


def _severest(parts: Sequence[tuple[GateReason, str]], passed: str) -> tuple[GateReason, str]:
    """The first of the severest, and how many are like it; `passed` is said where all have passed."""
    reason, text = min(parts, key=lambda part: SEVEREST_FIRST.index(part[0].decision))
    if reason.decision is Decision.PASS:
        return reason, passed
    others = sum(other.decision is reason.decision for other, _ in parts) - 1
    return reason, text + (f" (and {count(others, 'other')} like it)" if others else "")


def look_text(look: Look, max_drop: float) -> str:
    """The change with its interval, beside what is allowed."""
    low, high = map(change, look.change_interval)
    return (
        f"{change(look.change)} ({LEVEL * 100:g} % interval {low} to {high}) after {count(look.pairs, 'pair')} over "
        f"{count(look.prompts, 'prompt')}, {change(-max_drop)} allowed"
    )


def _figures(look: Look | None) -> dict[str, Any]:
    if look is None:
        return dict.fromkeys(("pairs", "ratio", "change", "change_interval"))
    return {name: value for name, value in look.as_dict().items() if name not in ("prompts", "standard_error")}
