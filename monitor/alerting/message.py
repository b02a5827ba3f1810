"""What an incident says, as one document and as text for three in the morning. Pure.

The first line alone tells severity, route, domain, how much and since when.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.judge import Verdict

METRIC_NAMES = {"acceptance_length": "acceptance length", "tokens_per_step": "tokens per step"}


def incident_event(
    *,
    incident_id: int,
    transition: Transition,
    route: str,
    labels: Mapping[str, str],
    severity: str,
    domain: str,
    rule: str,
    verdict: Verdict,
    replica: str,
    source: str,
    since: datetime,
    opened_at: datetime,
    now: datetime,
    broken_domains: Sequence[str],
    last_good_run: Mapping[str, Any] | None,
    last_bump: Mapping[str, Any] | None,
    other_changes: Mapping[str, float],
    external_url: str | None,
) -> dict[str, Any]:
    """The document of one transition: everything a receiver may show, fixed when it happened."""
    document: dict[str, Any] = {
        "incident_id": incident_id,
        "transition": transition.value,
        "route": route,
        "labels": dict(labels),
        "severity": severity,
        "domain": domain,
        "domains": sorted(broken_domains),
        "rule": rule,
        "verdict": verdict.as_dict(),
        "replica": replica,
        "source": source,
        "since": since.isoformat(),
        "opened_at": opened_at.isoformat(),
        "happened_at": now.isoformat(),
        "last_good_run": None if last_good_run is None else dict(last_good_run),
        "last_bump": None if last_bump is None else dict(last_bump),
        "other_changes": {name: other_changes[name] for name in sorted(other_changes) if name != domain},
        "link": None if external_url is None else f"{external_url}/incidents/{incident_id}",
    }
    document["summary"] = summary(document)
    document["text"] = "\n".join([document["summary"], *_details(document)])
    return document


def summary(document: Mapping[str, Any]) -> str:
    """One line that stands alone."""
    verdict = document["verdict"]
    where = f"{document['route']} · {document['domain']}"
    metric = METRIC_NAMES[verdict["metric"]]
    if document["transition"] == Transition.RESOLVED.value:
        lasted = _duration(document["opened_at"], document["happened_at"])
        return f"RESOLVED {where}: {metric} is back at {_against_baseline(verdict)}, after {lasted}"
    also = ", STILL OPEN, NOW ALSO" if document["transition"] == Transition.UPDATED.value else ""
    head = f"{document['severity'].upper()}{also} {where}"
    return f"{head}: {metric} {_against_baseline(verdict)}, since {_time(document['since'])}"


def _against_baseline(verdict: Mapping[str, Any]) -> str:
    change = verdict["change"]
    if abs(change) < 0.005:
        return f"{verdict['value']:.2f}, level with its baseline {verdict['baseline_value']:.2f}"
    side = "below" if change < 0 else "above"
    return f"{verdict['value']:.2f}, {abs(change):.0%} {side} its baseline {verdict['baseline_value']:.2f}"


def _details(document: Mapping[str, Any]) -> list[str]:
    verdict = document["verdict"]
    low, high = verdict["change_interval"]
    runs = ", ".join(map(str, verdict["run_ids"]))
    lines = [
        f"  evidence   {verdict['change']:+.1%} (95 % interval {low:+.1%} to {high:+.1%}) "
        f"in geometric means over {verdict['prompts']} prompts, runs {runs}, baseline {verdict['baseline_id']}, "
        f"source {document['source']}",
        f"  rule       {document['rule']}: {verdict['metric']} down {verdict['drop'] * 100:g}%; "
        f"replica {document['replica']}",
    ]
    good = document["last_good_run"]
    if document["transition"] != Transition.RESOLVED.value:
        lines.append(
            f"  last good  run {good['run_id']} at {_time(good['finished_at'])}" if good else "  last good  none"
        )
    lines.append(f"  changed    {_bump_line(document['last_bump'])}")
    if document["other_changes"]:
        others = ", ".join(f"{name} {change:+.0%}" for name, change in document["other_changes"].items())
        lines.append(f"  others     {others}")
    lines += _next_steps(document)
    return lines


def _next_steps(document: Mapping[str, Any]) -> list[str]:
    number = document["incident_id"]
    lines = [f"  next       specwatch incidents {number}"]
    if document["transition"] != Transition.RESOLVED.value:
        last_run = document["verdict"]["run_ids"][-1]
        lines.append(f"             specwatch run show {last_run}")
        lines.append(f"             specwatch history {document['route']} --domain {document['domain']} --since 24h")
        if document["last_bump"] is not None:
            lines.append("             if the change above is yours: roll it back, or approve a new baseline")
    if document["link"]:
        lines.append(f"  link       {document['link']}")
    return lines


def _bump_line(bump: Mapping[str, Any] | None) -> str:
    if bump is None:
        return "no change of model, drafter, engine or K was seen on this route"
    changes = "; ".join(f"{name} {before} → {now}" for name, (before, now) in bump["changes"].items())
    return f"{changes}, noticed {_time(bump['noticed_at'])} on {bump['replica']}"


def _time(value: str) -> str:
    return datetime.fromisoformat(value).strftime("%Y-%m-%d %H:%M:%S %Z")


def _duration(start: str, end: str) -> str:
    seconds = round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
