"""What the incident of a route that is not measured says. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import METRIC_NAMES, RUNBOOK, head, headline, next_lines, with_text
from monitor.alerting.domains import Told, named, ranked
from monitor.alerting.floors import back_above_floor, is_floor
from monitor.alerting.layout import clock, duration, labelled, listed, verbatim
from monitor.alerting.text import fallen
from monitor.config.units import format_duration
from monitor.core.format import count
from monitor.core.incidents import Transition
from monitor.core.stale import RULE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime, timedelta

    from monitor.core.stale import Around, Measured, Reading

NOTHING_RAN = "no run was made"
UNKNOWN = "since then a drop of acceptance goes unnoticed; whether the route serves its users is not judged here"


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
    around: Around,
    route_domains: Collection[str],
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
            route_domains=route_domains,
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
    told = (
        f"{severity.upper()} {route} · {named(document['domains'], route_domains)}: not measured for {for_}, no valid "
        f"run since {clock(since.isoformat())}: {document['reason']}"
    )
    document["summary"] = headline(document, told)
    last_runs = [measured.last_run_id for _, measured in stale.values() if measured.last_run_id is not None]
    steps = [
        f"specwatch runs --route {route}",
        *([f"specwatch run show {max(last_runs)}"] if last_runs else []),
        f"specwatch run now {route}",
    ]
    lines = [
        *labelled("impact", UNKNOWN),
        *ranked("measured", [_standing(name, *stale[name]) for name in sorted(stale, key=lambda name: stale[name][0])]),
        *_invalid_lines(stale),
        *listed("servers", [*map(_reading, around.readings)] or ["no reading of their metrics page in the last 30m"]),
        *labelled("workers", _workers(around)),
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
    current: Mapping[str, Mapping[str, Any]],
    route_domains: Collection[str],
    since: str,
    opened_at: datetime,
    now: datetime,
    external_url: str | None,
) -> dict[str, Any]:
    """The document of the end: the last domain has a valid run again, which by itself says nothing of how well it is.

    `current`: domain → the verdict that says most of its newest judged run, with that `run_id`; those that nobody
    judged are left out. `since`: when the first of them had its last valid run.
    """
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
            route_domains=route_domains,
        ),
        "kind": RULE,
        "rule": RULE,
        "domain": domain,
        "domains": [],
        "replica": replica,
        "reason": f"run {run_id} is valid",
        "since": since,
        "current": {name: dict(current[name]) for name in sorted(current)},
    }
    names = sorted(involved)
    without = duration(since, now.isoformat())
    judged = sorted((name for name in names if _is_judged(current.get(name))), key=lambda name: _fall(current[name]))
    told = f"RESOLVED {route} · {named(names, route_domains)}: measured again after {without} without a valid run; "
    document["summary"] = headline(document, told + _standing_now(judged, names, current))
    shown = [*judged, *(name for name in names if name not in judged)]
    steps = [f"specwatch run show {current[judged[0]]['run_id'] if judged else run_id}"]
    lines = [
        *ranked("now", [_judged(name, current.get(name)) for name in shown]),
        *next_lines(document, [*steps, f"specwatch history {route} --since 24h"]),
    ]
    return with_text(document, lines)


def _standing_now(judged: list[str], names: list[str], current: Mapping[str, Mapping[str, Any]]) -> str:
    """How the worst of them is, and whether that is being looked into: that it is measured is not that it is well."""
    if not judged:
        return f"whether it is well is not judged: {_why_not(current.get(names[0]))}"
    which = f"{judged[0]}, the worst, " if len(names) > 1 else ""
    return f"{which}{_now(current[judged[0]])}{_followed_up(current[judged[0]])}"


def _is_judged(verdict: Mapping[str, Any] | None) -> bool:
    return verdict is not None and (is_floor(verdict) or verdict["change"] is not None)


def _fall(verdict: Mapping[str, Any]) -> float:
    """As a fraction; of a figure below its floor, which has no baseline, more than any other, and none above it."""
    if is_floor(verdict):
        return -1.0 if verdict["value"] < verdict["below"] else 0.0
    return float(verdict["change"])


def _now(verdict: Mapping[str, Any]) -> str:
    if is_floor(verdict) and verdict["value"] >= verdict["below"]:
        return f"{METRIC_NAMES[verdict['metric']]} {back_above_floor(verdict)}"
    return fallen(verdict)


def _followed_up(verdict: Mapping[str, Any]) -> str:
    return (
        "; confirmation runs are on their way: if it holds, that is told next"
        if verdict["outcome"] == "tripped"
        else ""
    )


def _judged(name: str, verdict: Mapping[str, Any] | None) -> Told:
    if verdict is None or not _is_judged(verdict):
        return Told(name, f": not judged: {_why_not(verdict)}")
    return Told(name, f": {_now(verdict)}, run {verdict['run_id']}", verdict["change"])


def _why_not(verdict: Mapping[str, Any] | None) -> str:
    return "no rule applies" if verdict is None else str(verdict.get("reason") or "no baseline")


def _standing(name: str, since: datetime, measured: Measured) -> Told:
    if measured.last_valid_run_id is not None:
        return Told(name, f": last valid run {measured.last_valid_run_id}, at {clock(since.isoformat())}")
    return Told(name, f": never, since {clock(since.isoformat())}")


def _reading(reading: Reading) -> str:
    """Whether the server answers at all, by the passive reading of its metrics page."""
    looks = reading.reads + reading.failures
    at = clock(reading.ended_at.isoformat())
    failed = f"; the last failure: {reading.last_failure}" if reading.last_failure else ""
    return f"{reading.replica} answered {reading.reads} of {looks} readings of its metrics page until {at}{failed}"


def _workers(around: Around) -> str:
    waiting = f"{count(around.waiting, 'probe')} of this route due and not begun"
    if not around.worker_lives:
        return f"none lives: is 'specwatch serve' or 'specwatch worker' running? {waiting}"
    if around.waiting:
        return f"at least one lives, {waiting}: does one probe take longer than the period?"
    return f"at least one lives, {waiting}"


def _invalid_lines(stale: Mapping[str, tuple[datetime, Measured]]) -> list[str]:
    """How often which reason, over all domains, and what the newest run said."""
    total: dict[str, int] = {}
    for _, measured in stale.values():
        for reason, number in measured.invalid.items():
            total[reason] = total.get(reason, 0) + number
    if not total:
        return labelled("why", NOTHING_RAN)
    counts = ", ".join(f"{number} × {reason}" for reason, number in total.items())
    newest = max((measured for _, measured in stale.values()), key=lambda measured: measured.last_run_id or 0)
    detail = " ".join((newest.last_detail or "").split())
    return labelled("why", f"{counts}; run {newest.last_run_id}" + (f": {detail}" if detail else ""))
