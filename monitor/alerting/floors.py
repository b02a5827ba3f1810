"""What an absolute rule says: a dead drafter, or speculation that does not break even. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import METRIC_NAMES
from monitor.alerting.layout import labelled
from monitor.core.break_even import BREAK_EVEN
from monitor.core.floors import FIRST_POSITION_SURVIVAL
from monitor.core.format import by_source, count, figure, numbered

if TYPE_CHECKING:
    from collections.abc import Mapping

DEAD = "the drafter proposes nothing the target accepts"
LOSING = "speculation is losing here"


def is_floor(verdict: Mapping[str, Any]) -> bool:
    """Whether an absolute rule said it."""
    return verdict.get("below") is not None


def below_floor(verdict: Mapping[str, Any], cost_per_day: float | None = None) -> str:
    """For a first line; `cost_per_day` is in the currency of the route's GPU price, where it has one."""
    if verdict.get("break_even") is None:
        return f"{METRIC_NAMES[verdict['metric']]} {_value(verdict)}: {DEAD}"
    cost = "" if cost_per_day is None else f", at {cost_per_day:.2f} a day for each server"
    return f"{LOSING}{cost}: {METRIC_NAMES[verdict['metric']]} {_value(verdict)}, {_side(verdict)}"


def back_above_floor(verdict: Mapping[str, Any]) -> str:
    """The figure of a domain that is well again."""
    return _value(verdict) if verdict.get("break_even") is None else f"{_value(verdict)}, {_side(verdict)}"


def known_below(domain: Mapping[str, Any]) -> str:
    """In a few words, of a domain of an incident that has no fall from a baseline on record."""
    return DEAD if domain.get("metric") in (None, FIRST_POSITION_SURVIVAL) else f"{LOSING}, below its break-even"


def floor_lines(document: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """What it was measured by, and the rule."""
    made_of = f"{numbered('run', verdict['run_ids'])} of {count(verdict['prompts'], 'prompt')}"
    over = f"over {made_of}, source {document['source']}"
    modelled = verdict.get("break_even")
    if modelled is None:
        told, floor = f"{verdict['value']:.1%} of steps had their first draft token accepted, {over}", None
    else:
        told = (
            f"{figure(verdict['metric'], verdict['value'])} {METRIC_NAMES[verdict['metric']]} {over}; break-even "
            f"{verdict['below']:.2f}, at least {modelled['low']:.2f}, modelled by the step times of sweep "
            f"{modelled['sweep_id']} at {count(modelled['concurrency'], 'request')} at once"
        )
        floor = BREAK_EVEN
    ruled = floor or f"{verdict['below'] * 100:g}%"
    rule = (
        f"{document['rule']}: {verdict['metric']} below {ruled}, whatever the baseline; replica {document['replica']}"
    )
    return [*labelled("evidence", told), *labelled("rule", rule)]


def _value(verdict: Mapping[str, Any]) -> str:
    if verdict.get("break_even") is None:
        return f"{verdict['value']:.0%}{by_source(verdict['source'])}"
    return f"{figure(verdict['metric'], verdict['value'])}{by_source(verdict['source'])}"


def _side(verdict: Mapping[str, Any]) -> str:
    side = "below" if verdict["value"] < verdict["below"] else "not below"
    return f"{side} its break-even {verdict['below']:.2f} (modelled)"
