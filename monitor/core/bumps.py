"""What an announcement says, which changes fit it, and how a route stands after one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monitor.core import judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.records import Identity

WINDOW = timedelta(hours=2)
"""A change noticed so long after an announcement may be the announced one; and a bump's verdict is told by then,
whatever has not been probed: two rounds of the slowest schedule that keeps the promise of an hour."""
NOTE = "note"
"""In place of an incident's transition, of a message that neither opens nor resolves anything."""
METRIC = "acceptance_length"
TELLING = 0.10
"""A domain is unchanged where the interval has zero in it and ends short of this on both sides: the smallest drop that
is worth a warning could not hide there. A wider one cannot tell."""
UNCLEAR = "the interval is too wide to tell"
SHOWN_IN = {"model": ("model", "root", "target"), "drafter": ("drafter",), "engine_version": ("version",)}
"""Field of an announcement → fields of an identity that name the same thing, each in its own words."""
COMES_WITH = {
    "model": ("max_model_len", "quantization", "tensor_parallel", "fingerprint"),
    "drafter": ("method", "k", "fingerprint"),
    "engine_version": ("engine", "fingerprint"),
}
"""Field of an announcement → what else of an identity moves with it."""


@dataclass(frozen=True)
class Announced:
    """What a route is said to run from now on; None where nothing is said of it.

    `candidate`: what was running where a gate passed that is promoted.
    """

    model: str | None = None
    drafter: str | None = None
    engine_version: str | None = None
    candidate: Identity | None = None

    def named(self) -> dict[str, str]:
        """Field → value, of those that are said."""
        return {name: value for name in SHOWN_IN if (value := getattr(self, name)) is not None}

    def fits(self, changes: Mapping[str, Sequence[Any]], earlier: Sequence[Mapping[str, Sequence[Any]]] = ()) -> bool:
        """Whether a change (field of the identity → before, now) is what was announced.

        Every field that changed is named by the announcement, with the value that is there now, or comes with one that
        is; an announcement that names nothing fits any. That of a candidate fits a change to what the candidate showed,
        as far as it showed it. `earlier`: the changes that it announced already. After them it fits only one to a value
        that it names, or to what an earlier one went to, as on the next replica.
        """
        named = self.named()
        known = self._known()
        if any(changes[field][1] != value for field, value in known.items() if field in changes):
            return False
        reached = bool(changes.keys() & known.keys())
        for name, value in named.items():
            seen = [changes[field][1] for field in SHOWN_IN[name] if field in changes]
            if seen and not any(_same(value, now) for now in seen):
                return False
            reached = reached or bool(seen)
        moving = {field for name in named for field in (*SHOWN_IN[name], *COMES_WITH[name])}
        if named and self.candidate is None and not changes.keys() <= moving:
            return False
        return reached or not earlier or any(_to_the_same(changes, one) for one in earlier)

    def unlike(self, identity: Identity) -> list[str]:
        """A sentence for each announced value that the server shows another of; what it does not show is left out."""
        found = []
        for name, value in self.named().items():
            seen = [shown for field in SHOWN_IN[name] if (shown := getattr(identity, field)) is not None]
            if seen and not any(_same(value, shown) for shown in seen):
                found.append(_unlike(name, value, seen[0]))
        for name, value in self._known().items():
            shown = getattr(identity, name)
            if shown is not None and shown != value:
                found.append(_unlike(name, value, shown))
        return found

    def _known(self) -> dict[str, Any]:
        """What the candidate showed of itself, but for what is named, and the name that it was served by."""
        if self.candidate is None:
            return {}
        other = {
            "model",
            "declared",
            *self.candidate.declared,
            *(field for name in self.named() for field in SHOWN_IN[name]),
        }
        return {
            name: value for name, value in self.candidate.as_dict().items() if name not in other and value is not None
        }


def _unlike(name: str, announced: object, shown: object) -> str:
    return f"{name.replace('_', ' ')} {announced} was announced, the server says {shown}"


def _to_the_same(changes: Mapping[str, Sequence[Any]], earlier: Mapping[str, Sequence[Any]]) -> bool:
    shared = changes.keys() & earlier.keys()
    return bool(shared) and all(changes[name][1] == earlier[name][1] for name in shared)


def _same(announced: str, shown: object) -> bool:
    """Also where one is the path or the organisation's name of the other: `org/model` and `model`."""
    one, other = announced.rstrip("/"), str(shown).rstrip("/")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


@dataclass(frozen=True)
class DomainAfter:
    """One domain after a bump against its pinned baseline; `reason` says why it is open whether it changed.

    `change` is a fraction (−0.22 is 22 percent lower) with its 95 % interval; values are geometric means over prompts.
    """

    domain: str
    reason: str | None = None
    change: float | None = None
    change_interval: tuple[float, float] | None = None
    value: float | None = None
    baseline_value: float | None = None
    baseline_id: int | None = None
    prompts: int | None = None
    source: str | None = None
    run_ids: tuple[int, ...] = ()

    @property
    def changed(self) -> bool | None:
        """Whether the interval leaves out "no change"; None where that cannot be told."""
        if self.change_interval is None:
            return None
        low, high = self.change_interval
        if not low <= 0 <= high:
            return True
        return False if _reach(self) < TELLING else None

    def as_dict(self) -> dict[str, Any]:
        interval = self.change_interval
        return {
            "domain": self.domain,
            "reason": UNCLEAR if interval is not None and self.changed is None else self.reason,
            "changed": self.changed,
            "change": self.change,
            "change_interval": None if interval is None else list(interval),
            "value": self.value,
            "baseline_value": self.baseline_value,
            "baseline_id": self.baseline_id,
            "prompts": self.prompts,
            "source": self.source,
            "run_ids": list(self.run_ids),
        }


def least_sure(domains: Sequence[DomainAfter]) -> DomainAfter | None:
    """Of the unchanged ones that whose interval reaches furthest from "no change": all of them hold within it."""
    level = [domain for domain in domains if domain.changed is False]
    return max(level, key=_reach, default=None)


def _reach(domain: DomainAfter) -> float:
    assert domain.change_interval is not None, "a domain without an interval is not known to be unchanged"
    low, high = domain.change_interval
    return max(-low, high)


def domain_after(domain: str, candidates: Sequence[judge.Candidate], reference: judge.Reference | None) -> DomainAfter:
    """The valid runs after the change, one of each replica, pooled against the baseline, prompt by prompt."""
    run_ids = tuple(candidate.id for candidate in candidates)
    if reference is None:
        return DomainAfter(domain, "no approved baseline", run_ids=run_ids)
    # No line is drawn here: the estimate is told whatever any rule would say of it.
    verdict = judge.judge_resolution(candidates, reference, judge.Line(METRIC, drop=0.15))
    if verdict.estimate is None:
        return DomainAfter(domain, verdict.reason, baseline_id=reference.id, run_ids=run_ids)
    return DomainAfter(
        domain,
        change=verdict.estimate.change,
        change_interval=verdict.estimate.change_interval,
        value=verdict.value,
        baseline_value=verdict.baseline_value,
        baseline_id=reference.id,
        prompts=verdict.estimate.n,
        source=verdict.source,
        run_ids=run_ids,
    )
