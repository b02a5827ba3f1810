"""What is said of an incident of acceptance: one document for each transition. Pure; its text is text.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import head, headline, next_lines, with_text
from monitor.alerting.domains import named
from monitor.alerting.layout import clock, labelled
from monitor.alerting.text import alarm, firing_lines, history_lines, lasted, resolution, resolved_lines
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.judge import Verdict
    from monitor.core.replicas import ReplicaDifference


def incident_event(
    *,
    incident_id: int,
    transition: Transition,
    route: str,
    labels: Mapping[str, str],
    severity: str,
    raised_from: str | None,
    domain: str,
    rule: str,
    verdict: Verdict,
    replica: str,
    source: str,
    since: datetime,
    joins: Mapping[str, str],
    joins_causes: Mapping[str, Sequence[Mapping[str, Any]]],
    opened_at: datetime,
    reopened_at: str | None,
    now: datetime,
    broken_domains: Sequence[str],
    involved: Mapping[str, Mapping[str, Any]],
    last_good_run: Mapping[str, Any] | None,
    baseline_runs: Mapping[str, Any] | None,
    outputs: Mapping[str, Any] | None,
    last_bump: Mapping[str, Any] | None,
    other_changes: Mapping[str, float],
    route_domains: Sequence[str],
    judged_domains: Sequence[str],
    replica_difference: ReplicaDifference | None,
    external_url: str | None,
    runbook_urls: Sequence[str],
    ended_at: datetime | None = None,
    cost_per_day: float | None = None,
    explained: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of one transition: everything a receiver may show, fixed when it happened.

    `joins`: domains (→ since) of transitions before this one that nobody was told of and that this message tells too;
    `joins_causes`: what moved in each of them.
    `judged_domains`: of `route_domains` those that this rule holds against a baseline.
    `reopened_at`: when it last opened again, where it did; `opened_at` is its first opening, by which it is known.
    `ended_at`: when an incident that comes again had been resolved.
    `cost_per_day`: of speculation that does not break even, in the currency of the route's GPU price, where it has one.
    `runbook_urls`: what is read on it, of the rule first, then of those that broke the domains that it joins.
    `explained`: what moved (core/explanation.py); None where that is not asked, as of a resolution.
    """
    resolved = transition is Transition.RESOLVED
    document: dict[str, Any] = {
        **head(
            incident_id=incident_id,
            transition=transition,
            route=route,
            labels=labels,
            severity=severity,
            involved=involved,
            opened_at=opened_at,
            now=now,
            external_url=external_url,
            route_domains=route_domains,
        ),
        "raised_from": raised_from,
        "domain": domain,
        "domains": sorted(broken_domains),
        "rule": rule,
        "verdict": verdict.as_dict(),
        "reason": None,
        "replica": replica,
        "source": source,
        "since": since.isoformat(),
        "joined": {} if resolved else dict(sorted({domain: since.isoformat(), **joins}.items())),
        "reopened_at": reopened_at,
        "ended_at": None if ended_at is None else ended_at.isoformat(),
        "last_good_run": None if last_good_run is None else dict(last_good_run),
        "baseline_runs": None if baseline_runs is None else dict(baseline_runs),
        "outputs": None if outputs is None else dict(outputs),
        "causes": [] if explained is None else explained["causes"],
        "joined_causes": {} if explained is None else {**joins_causes, domain: explained["causes"]},
        "looked_at": [] if explained is None else explained["looked_at"],
        "not_known": [] if explained is None else explained["not_known"],
        "pace": None if explained is None else explained["pace"],
        "cost": None if explained is None else explained["cost"],
        "cost_per_day": cost_per_day,
        "last_bump": None if last_bump is None else dict(last_bump),
        "other_changes": {name: other_changes[name] for name in sorted(other_changes) if name != domain},
        "unmeasured_domains": sorted(set(judged_domains) - other_changes.keys() - {domain}),
        "replica_difference": None if replica_difference is None else replica_difference.as_dict(),
        "runbook_url": next(iter(runbook_urls), None),
        "runbook_urls": list(runbook_urls),
    }
    document["summary"] = resolution(document) if resolved else alarm(document)
    return with_text(document, resolved_lines(document) if resolved else firing_lines(document))


def closed_event(
    *,
    incident_id: int,
    route: str,
    labels: Mapping[str, str],
    severity: str,
    reason: str,
    opened_at: datetime,
    reopened_at: str | None,
    now: datetime,
    involved: Mapping[str, Mapping[str, Any]],
    external_url: str | None,
) -> dict[str, Any]:
    """The document of an incident that ends for another reason than a measurement: nothing was found to be well."""
    document: dict[str, Any] = {
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
        "domain": ", ".join(sorted(involved)),
        "domains": [],
        "reopened_at": reopened_at,
        "reason": reason,
    }
    where = f"{route} · {named(sorted(involved))}"
    told = f"RESOLVED {where}: {reason}, after {lasted(document)}; nothing was measured to be well"
    document["summary"] = headline(document, told)
    return with_text(document, [*history_lines(document), *next_lines(document, [])])


def trial_event(receiver: str, transition: Transition, severity: str, opened_at: datetime) -> dict[str, Any]:
    """The document of a test message: marked as one in its text, its route and its labels; of no incident."""
    document: dict[str, Any] = {
        "incident_id": 0,
        "transition": transition.value,
        "route": "specwatch-test",
        "labels": {"test": "true"},
        "severity": severity,
        "domain": "test",
        "domains": ["test"],
        "opened_at": opened_at.isoformat(),
        "happened_at": opened_at.isoformat(),
        "link": None,
    }
    over = "RESOLVED " if transition is Transition.RESOLVED else ""
    document["summary"] = f"{over}TEST of receiver {receiver}: this is not an alert, nothing is wrong"
    return with_text(
        document, labelled("sent by", f"specwatch receivers test {receiver}, at {clock(document['opened_at'])}")
    )
