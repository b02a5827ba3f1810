"""What the incident of a route that is not measured says. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, head, next_lines, with_text
from monitor.alerting.layout import clock, duration, labelled, verbatim
from monitor.alerting.text import named
from monitor.config.units import format_duration
from monitor.core.format import count
from monitor.core.incidents import Transition
from monitor.core.stale import RULE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from monitor.core.stale import Measured

NOTHING_RAN = "no run was made: is a worker running, and does one probe take longer than the period?"


def stale_event(
    *,
    incident_id: int,
    route: str,
    labels: Mapping[str, str],
    severity: str,
    stale: Mapping[str, tuple[datetime, Measured]],
    involved: Mapping[str, Mapping[str, Any]],
    every: timedelta,
    periods: int,
    opened_at: datetime,
    now: datetime,
    external_url: str | None,
    runbook_url: str | None,
) -> dict[str, Any]:
    """The document of the opening. `stale`: domain → since when it has no valid run, and what is known of its runs."""
    since = min(at for at, _ in stale.values())
    reasons = dict.fromkeys(reason for _, measured in stale.values() for reason in measured.invalid)
    document = {
        **head(
            incident_id=incident_id,
            transition=Transition.OPENED,
            route=route,
            labels=labels,
            severity=severity,
            involved=involved,
            opened_at=opened_at,
            now=now,
            external_url=external_url,
        ),
        "kind": RULE,
        "rule": RULE,
        "domain": ", ".join(sorted(stale)),
        "domains": sorted(stale),
        "reason": ", ".join(reasons) or NOTHING_RAN,
        "since": since.isoformat(),
        "runbook_url": runbook_url,
    }
    for_ = duration(since.isoformat(), now.isoformat())
    document["summary"] = (
        f"{severity.upper()} {route} · {named(document['domains'])}: no valid run for {for_}, "
        f"since {clock(since.isoformat())}: {', '.join(reasons) or 'no run was made'}"
    )
    last_runs = [measured.last_run_id for _, measured in stale.values() if measured.last_run_id is not None]
    steps = [
        f"specwatch runs --route {route}",
        *([f"specwatch run show {max(last_runs)}"] if last_runs else []),
        f"specwatch run now {route}",
    ]
    lines = [
        *verbatim("measured", [_standing(name, *stale[name]) for name in sorted(stale)]),
        *_invalid_lines(stale),
        *labelled("rule", f"{RULE}: {count(periods, 'period')} of {format_duration(every)} without a valid run"),
        *next_lines(document, steps),
        *verbatim("runbook", [runbook_url or RUNBOOK]),
    ]
    return with_text(document, lines)


def measured_event(
    *,
    incident_id: int,
    route: str,
    labels: Mapping[str, str],
    severity: str,
    domain: str,
    run_id: int,
    replica: str,
    involved: Mapping[str, Mapping[str, Any]],
    opened_at: datetime,
    now: datetime,
    external_url: str | None,
) -> dict[str, Any]:
    """The document of the end: the last domain has a valid run again, which says nothing of how well it is."""
    document = {
        **head(
            incident_id=incident_id,
            transition=Transition.RESOLVED,
            route=route,
            labels=labels,
            severity=severity,
            involved=involved,
            opened_at=opened_at,
            now=now,
            external_url=external_url,
        ),
        "kind": RULE,
        "rule": RULE,
        "domain": domain,
        "domains": [],
        "replica": replica,
        "reason": f"run {run_id} is valid",
    }
    lasted = duration(opened_at.isoformat(), now.isoformat())
    last = f" of {domain}, the last," if len(involved) > 1 else ""
    document["summary"] = (
        f"RESOLVED {route} · {named(sorted(involved))}: measured again, run {run_id}{last} is valid, after {lasted}"
    )
    return with_text(document, next_lines(document, [f"specwatch run show {run_id}"]))


def _standing(name: str, since: datetime, measured: Measured) -> str:
    if measured.last_valid_run_id is not None:
        return f"{name}: last valid run {measured.last_valid_run_id}, at {clock(since.isoformat())}"
    return f"{name}: never, since {clock(since.isoformat())}"


def _invalid_lines(stale: Mapping[str, tuple[datetime, Measured]]) -> list[str]:
    """How often which reason, over all domains, and what the newest run said."""
    total: dict[str, int] = {}
    for _, measured in stale.values():
        for reason, number in measured.invalid.items():
            total[reason] = total.get(reason, 0) + number
    if not total:
        return labelled("invalid", NOTHING_RAN)
    counts = ", ".join(f"{number} × {reason}" for reason, number in total.items())
    newest = max((measured for _, measured in stale.values()), key=lambda measured: measured.last_run_id or 0)
    detail = " ".join((newest.last_detail or "").split())
    return labelled("invalid", f"{counts}; run {newest.last_run_id}" + (f": {detail}" if detail else ""))
