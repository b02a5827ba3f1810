"""What the incident of a route that is not measured says. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import RUNBOOK, head, headline, next_lines, with_text
from monitor.alerting.domains import Told, named, ranked
from monitor.alerting.layout import clock, duration, labelled, listed, verbatim
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
        *([f"specwatch run now {route}"] if around.worker_lives else []),
        *(f"curl -sS -m 5 {one.replica}/health" for one in around.readings if one.failures and " " not in one.replica),
    ]
    lines = [
        *labelled("impact", UNKNOWN),
        *ranked("measured", [_standing(name, *stale[name]) for name in sorted(stale, key=lambda name: stale[name][0])]),
        *_invalid_lines(stale),
        *listed(
            "servers",
            [*map(_reading, around.readings)]
            or ["whether they answer is not known: no reading of their metrics page since then is stored yet"],
        ),
        *labelled("workers", _workers(around)),
        *labelled("rule", f"{RULE}: {count(periods, 'period')} of {format_duration(every)} without a valid run"),
        *next_lines(document, steps),
        *verbatim("runbook", [runbook_url or RUNBOOK]),
    ]
    return with_text(document, lines)


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
        return f"none lives, {waiting}: start 'specwatch serve' or 'specwatch worker'"
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
        return []
    counts = ", ".join(f"{number} × {reason}" for reason, number in total.items())
    newest = max((measured for _, measured in stale.values()), key=lambda measured: measured.last_run_id or 0)
    detail = " ".join((newest.last_detail or "").split())
    return labelled("why", f"{counts}; run {newest.last_run_id}" + (f": {detail}" if detail else ""))
