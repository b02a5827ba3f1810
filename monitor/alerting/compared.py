"""What a verdict on a bump was held against: which baselines, of when, of what; and how close unchanged is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.layout import clock
from monitor.core.format import change, count, identity_text, numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def unchanged_text(within: Mapping[str, Any]) -> str:
    """Within what all the unchanged domains are: the interval of the one that is known least closely."""
    low, high = map(change, within["change_interval"])
    return f" (95 % interval {low} to {high} at the widest, of {within['domain']})"


def compared_text(baselines: Sequence[Mapping[str, Any]]) -> str:
    """In a few words: baselines 1-4 of 2026-12-03 (vllm-0.32.0-63096f17, K 4)."""
    days = sorted({baseline["finished_at"][:10] for baseline in baselines})
    identities = {identity_text(baseline["identity"]) for baseline in baselines}
    what = identities.pop() if len(identities) == 1 else count(len(identities), "identity", "identities")
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{_numbered(baselines)} of {when} ({what})"


def compared_lines(baselines: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for all baselines of the same identity: which, and when the last run of them ended."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for baseline in baselines:
        alike.setdefault(identity_text(baseline["identity"]), []).append(baseline)
    return [f"{_numbered(group)}, measured until {_until(group)} on {what}" for what, group in alike.items()]


def _numbered(baselines: Sequence[Mapping[str, Any]]) -> str:
    return numbered("baseline", sorted(baseline["id"] for baseline in baselines))


def _until(baselines: Sequence[Mapping[str, Any]]) -> str:
    return clock(max(baseline["finished_at"] for baseline in baselines))
