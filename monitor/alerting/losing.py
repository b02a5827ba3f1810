"""What an incident of measured speedup says: speculation loses here, or has lost some of what it gained. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, head, headline, next_lines, with_text
from monitor.alerting.layout import clock, duration, labelled, verbatim
from monitor.core.format import change, count, interval
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.judge import Verdict
    from monitor.core.speedup import Speedup

KIND = "speedup"


def speedup_event(
    *,
    incident_id: int,
    transition: Transition,
    labels: Mapping[str, str],
    severity: str,
    raised_from: str | None,
    rule: str,
    verdict: Verdict,
    measured: Speedup,
    cost_per_day: float | None,
    since: datetime,
    opened_at: datetime,
    now: datetime,
    broken_domains: Sequence[str],
    involved: Mapping[str, Mapping[str, Any]],
    external_url: str | None,
    runbook_url: str | None,
) -> dict[str, Any]:
    """The document of one transition. `cost_per_day`: in the currency of the route's GPU price, where it has one."""
    resolved = transition is Transition.RESOLVED
    document: dict[str, Any] = {
        **head(
            incident_id=incident_id,
            transition=transition,
            route=measured.route,
            labels=labels,
            severity=severity,
            involved=involved,
            opened_at=opened_at,
            now=now,
            external_url=external_url,
        ),
        "kind": KIND,
        "raised_from": raised_from,
        "domain": measured.domain,
        "domains": sorted(broken_domains),
        "rule": rule,
        "verdict": verdict.as_dict(),
        "reason": None,
        "replica": measured.replica,
        "source": verdict.source,
        "since": since.isoformat(),
        "joined": {} if resolved else {measured.domain: since.isoformat()},
        "cost_per_day": cost_per_day,
        "runbook_url": None if resolved else runbook_url,
    }
    document["summary"] = headline(document, _resolution(document) if resolved else _alarm(document))
    lines = [*_evidence(document, measured), *_next(document)]
    if not resolved:
        lines += verbatim("runbook", [runbook_url or RUNBOOK])
    return with_text(document, lines)


def _alarm(document: Mapping[str, Any]) -> str:
    verdict = document["verdict"]
    also = ", NOW ALSO" if document["transition"] == Transition.UPDATED.value else ""
    head = f"{document['severity'].upper()}{also} {document['route']} · {document['domain']}"
    cost = "" if document["cost_per_day"] is None else f", at {document['cost_per_day']:.2f} a day for each server"
    told = _held(verdict) if verdict["below"] is None else f"speculation is losing here{cost}: {_held(verdict)}"
    return f"{head}: {told}, since {clock(document['since'])}"


def _resolution(document: Mapping[str, Any]) -> str:
    head = f"RESOLVED {document['route']} · {', '.join(document['involved'])}"
    lasted = duration(document["opened_at"], document["happened_at"])
    return f"{head}: {_held(document['verdict'])}, after {lasted}"


def _held(verdict: Mapping[str, Any]) -> str:
    """Measured speedup 0.91 [0.88, 0.94], and against what."""
    told = f"measured speedup {verdict['value']:.2f} {interval(*verdict['value_interval'])}"
    if verdict["change"] is None:
        return told
    return f"{told}, {change(verdict['change'], 0)} from its reference {verdict['baseline_value']:.2f}"


def _evidence(document: Mapping[str, Any], measured: Speedup) -> list[str]:
    verdict = document["verdict"]
    ids = ", ".join(map(str, verdict["speedup_ids"]))
    ruled = f"below {verdict['below']:g}" if verdict["drop"] is None else f"down {verdict['drop'] * 100:g}%"
    return [
        *labelled(
            "evidence",
            f"time per token of the plain twin over that of the replica, {count(verdict['prompts'], 'prompt')} at "
            f"concurrency {measured.concurrency}; {count(len(verdict['speedup_ids']), 'measurement')} ({ids})",
        ),
        *labelled(
            "rule",
            f"{document['rule']}: speedup {ruled}; replica {measured.replica}, plain twin {measured.plain_twin}",
        ),
    ]


def _next(document: Mapping[str, Any]) -> list[str]:
    route = document["route"]
    steps = [f"specwatch speedup {route}"]
    if document["transition"] != Transition.RESOLVED.value:
        steps += [f"specwatch advise {route}", "switch speculation off at this load, or draft fewer tokens"]
    return next_lines(document, steps)
