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

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from monitor.core.promotion import Promotion
    from monitor.core.records import Identity

EQUAL = "the identities are equal as far as the servers show; overwritten weights would not show"


@dataclass(frozen=True)
class GateDomain:
    """How one domain ended. `values`: prompt → reference and candidate, geometric means over the runs compared."""

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

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of a domain of a gate (docs/json.md)."""
        return {
            "domain": self.domain,
            "verdict": self.reason.decision.value,
            "reason": self.reason.value,
            "text": self.text,
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
    """What was allowed. `weights`: of the domains in the mix."""

    metric: str
    max_drop: float
    min_prompts: int
    timeout_seconds: float
    weights: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape of what was allowed (docs/json.md)."""
        return {
            "metric": self.metric,
            "max_drop": self.max_drop,
            "min_prompts": self.min_prompts,
            "timeout_seconds": self.timeout_seconds,
            "weights": dict(self.weights),
            "alpha": ALPHA,
            "looks_after_pairs": list(LOOKS),
            "interval_level": LEVEL,
        }


@dataclass(frozen=True)
class GateVerdict:
    """The whole of it. `refusal`: why nothing was measured at all, where it was not. `promotion`: what a pass is to do.

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

    @property
    def mix(self) -> Look | None:
        return mixed_look({one.domain: one.look for one in self.domains if one.look}, self.thresholds.weights)

    @property
    def _mixed(self) -> tuple[GateReason, str] | None:
        mix, allowed = self.mix, self.thresholds.max_drop
        return None if mix is None else (mix.reason(allowed), look_text(mix, allowed))

    @property
    def ending(self) -> tuple[GateReason, str]:
        """Reason and sentence of the severest of all parts; the mix counts as one."""
        if self.refusal is not None:
            return self.refusal
        parts = [(one.reason, f"{one.domain}: {one.text}") for one in self.domains]
        if self._mixed is not None and len(self.domains) > 1:
            parts.append((self._mixed[0], f"mix of the domains: {self._mixed[1]}"))
        worst = min(parts, key=lambda part: SEVEREST_FIRST.index(part[0].decision), default=None)
        if worst is None:
            return GateReason.RUN_INVALID, "no domain was measured"
        alike = [text for reason, text in parts if reason.decision is worst[0].decision]
        if worst[0].decision is Decision.PASS:
            domains = count(len(self.domains), "domain")
            return worst[0], f"none of {domains} has lost {self.thresholds.max_drop:.0%} of {self._metric}"
        more = f" (and {count(len(alike) - 1, 'other')} like it)" if len(alike) > 1 else ""
        return worst[0], worst[1] + more

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
        reason, text = self.ending
        mixed = self._mixed
        sources = {one.source for one in self.domains if one.source}
        return {
            "verdict": reason.decision.value,
            "exit_code": self.exit_code,
            "reason": reason.value,
            "text": text,
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
                "verdict": None if mixed is None else mixed[0].decision.value,
                "reason": None if mixed is None else mixed[0].value,
                "text": None if mixed is None else mixed[1],
                "source": next(iter(sources)) if len(sources) == 1 else None,
                **_figures(self.mix),
            },
            "domains": [one.as_dict() for one in self.domains],
            "warnings": list(self.warnings),
            "waivers": [],
            "promoted": None if self.promotion is None else self.promotion.pending(),
            "judge_version": GATE_VERSION,
        }

    def _difference(self) -> str:
        """In words."""
        if self.candidate.identity is None or self.reference.identity is None:
            return "unknown: one side was not seen"
        return ", ".join(f"{name} {a} → {b}" for name, (a, b) in self.identity_changes.items()) or EQUAL


def look_text(look: Look, max_drop: float) -> str:
    """The change with its interval, beside what is allowed."""
    low, high = map(change, look.change_interval)
    return (
        f"{change(look.change)} ({LEVEL:.1%} interval {low} to {high}) after {count(look.pairs, 'pair')} over "
        f"{count(look.prompts, 'prompt')}, {change(-max_drop)} allowed"
    )


def _figures(look: Look | None) -> dict[str, Any]:
    if look is None:
        return dict.fromkeys(("pairs", "ratio", "change", "change_interval"))
    return {name: value for name, value in look.as_dict().items() if name not in ("prompts", "standard_error")}
