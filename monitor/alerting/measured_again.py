"""What the end of the incident of a route that was not measured says: how it stands now, well or not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import METRIC_NAMES, alerted, head, headline, next_lines, with_text
from monitor.alerting.domains import Told, named, ranked
from monitor.alerting.floors import back_above_floor, is_floor
from monitor.alerting.layout import clock
from monitor.alerting.text import fallen
from monitor.core.incidents import Transition
from monitor.core.stale import RULE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime


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
    incident: Mapping[str, Any] | None,
    confirming: Collection[str],
    route_domains: Collection[str],
    since: str,
    opened_at: datetime,
    now: datetime,
    external_url: str | None,
) -> dict[str, Any]:
    """The document of the end: the last domain has a valid run again, which by itself says nothing of how well it is.

    `current`: domain → the verdict that says most of its newest judged run, with that `run_id`; those that nobody
    judged are left out. `incident`: the route's open one of acceptance, with its `id` and `severity`. `confirming`:
    domains whose loss waits for confirmation runs. `since`: when the first of them had its last valid run.
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
    judged = sorted((name for name in names if _is_judged(current.get(name))), key=lambda name: _fall(current[name]))
    down = [name for name in judged if current[name]["outcome"] in ("tripped", "confirmed")]
    telling = down or judged
    run_step = f"specwatch run show {current[telling[0]]['run_id'] if telling else run_id}"
    without = f"no valid run from {clock(since)} to {clock(now.isoformat())}"
    alerts = alerted(incident, set(confirming) & set(down)) if down else []
    told = "; ".join([_standing_now(telling, names, current), *alerts, without])
    if down:
        told = f"MEASURED AGAIN AND DOWN {route} · {named(down, route_domains)}: {told}"
    else:
        told = f"RESOLVED {route} · {named(names, route_domains)}: measured again; {told}"
    document["summary"] = headline(document, told, run_step if down else None)
    shown = [*judged, *(name for name in names if name not in judged)]
    lines = [
        *ranked("now", [_judged(name, current.get(name)) for name in shown]),
        *next_lines(document, [run_step, f"specwatch history {route} --since 24h"], first=run_step if down else None),
    ]
    return with_text(document, lines)


def _standing_now(judged: list[str], names: list[str], current: Mapping[str, Mapping[str, Any]]) -> str:
    """How the worst of them is: that it is measured is not that it is well."""
    if not judged:
        return f"whether it is well is not judged: {_why_not(current.get(names[0]))}"
    which = f"{judged[0]}, the worst, " if len(judged) > 1 else ""
    return f"{which}{_now(current[judged[0]])}"


def _is_judged(verdict: Mapping[str, Any] | None) -> bool:
    if verdict is None:
        return False
    return verdict["change"] is not None or (is_floor(verdict) and verdict["value"] is not None)


def _fall(verdict: Mapping[str, Any]) -> float:
    """As a fraction; of a figure below its floor, which has no baseline, more than any other, and none above it."""
    if is_floor(verdict):
        return -1.0 if verdict["value"] < verdict["below"] else 0.0
    return float(verdict["change"])


def _now(verdict: Mapping[str, Any]) -> str:
    if is_floor(verdict) and verdict["value"] >= verdict["below"]:
        return f"{METRIC_NAMES[verdict['metric']]} {back_above_floor(verdict)}"
    return fallen(verdict)


def _judged(name: str, verdict: Mapping[str, Any] | None) -> Told:
    if verdict is None or not _is_judged(verdict):
        return Told(name, f": not judged: {_why_not(verdict)}")
    return Told(name, f": {_now(verdict)}, run {verdict['run_id']}", verdict["change"])


def _why_not(verdict: Mapping[str, Any] | None) -> str:
    return "no rule applies" if verdict is None else str(verdict.get("reason") or "no baseline")
