"""How a message names domains: all of a few; of many the worst, and how many more and how far. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from monitor.alerting.layout import labelled, listed
from monitor.core.format import change

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NAMED_AT_MOST = 4
"""Domains named one by one: a phone shows as many, and `specwatch incidents` has them all."""


class Told(NamedTuple):
    """One domain: its name, what is said of it, and its change as a fraction, where one is known."""

    name: str
    text: str
    change: float | None = None


def named(names: Collection[str], of: Collection[str] = ()) -> str:
    """`math, qa`; of more than a few how many, of the domains that the route has: `all 11 domains`."""
    if len(names) <= NAMED_AT_MOST:
        return ", ".join(names)
    if set(names) == set(of):
        return f"all {len(names)} domains"
    return f"{len(names)} of {len(of)} domains" if set(names) < set(of) else f"{len(names)} domains"


def ranked(label: str, domains: Sequence[Told]) -> list[str]:
    """A line for each, in the given order; of many for the first of them, and one that sums up the others."""
    if len(domains) <= NAMED_AT_MOST:
        return listed(label, [f"{one.name}{one.text}" for one in domains])
    first, others = domains[: NAMED_AT_MOST - 1], domains[NAMED_AT_MOST - 1 :]
    names = ", ".join(one.name for one in others)
    more = f"and {len(others)} more{_between([one.change for one in others])}: {names}"
    return listed(label, [*(f"{one.name}{one.text}" for one in first), more])


def others(changes: Mapping[str, float], unmeasured: Sequence[str], since: str) -> list[str]:
    """How the domains stand that a message is not about; `since` says what the unmeasured ones wait for."""
    parts = [f"{name} {change(value)}" for name, value in changes.items()]
    if len(parts) > NAMED_AT_MOST:
        between = _between([*changes.values()])
        lowest = "" if "each" in between else f", the lowest {min(changes, key=lambda name: changes[name])}"
        parts = [f"{len(parts)} domains{between}{lowest}"]
    if unmeasured:
        parts.append(f"{since}: {named(unmeasured)}")
    return labelled("others", ", ".join(parts)) if parts else []


def _between(changes: Sequence[float | None]) -> str:
    """`, -28.8% to -21.3%`, or `, each 0.0%`; nothing where one is not known."""
    known = sorted(one for one in changes if one is not None)
    if len(known) < len(changes):
        return ""
    low, high = change(known[0]), change(known[-1])
    return f", each {low}" if low == high else f", {low} to {high}"
