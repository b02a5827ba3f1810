"""What the verdict on a bump says, as one document and as text. Neither firing nor resolved: a note. Pure.

The first line alone tells the route, what runs there now, which domains moved, how much, and what to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.compared import compared_lines, compared_text, unchanged_text
from monitor.alerting.document import alerted, with_text
from monitor.alerting.domains import NAMED_AT_MOST, Told, named, ranked
from monitor.alerting.layout import clock, labelled, listed, verbatim
from monitor.config.units import format_duration
from monitor.core.bumps import NOTE, WINDOW, least_sure
from monitor.core.format import by_source, change, count, numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.bumps import DomainAfter


def bump_event(
    *,
    bump_id: int,
    route: str,
    labels: Mapping[str, str],
    announcement: Mapping[str, Any] | None,
    announced: Mapping[str, str],
    noticed: Sequence[Mapping[str, Any]],
    not_shown: Sequence[str],
    domains: Sequence[DomainAfter],
    baselines: Sequence[Mapping[str, Any]],
    left_out: Sequence[str],
    unprobed: Sequence[str],
    at_baseline: bool,
    replicas: Sequence[str],
    incident: Mapping[str, Any] | None,
    confirming: Sequence[str],
    opened_at: datetime,
    now: datetime,
    external_url: str | None,
    runbook_url: str | None,
) -> dict[str, Any]:
    """The document of a bump's verdict: everything a receiver may show, fixed when it was decided.

    `announced`: what the announcement names. `not_shown`: sentences on what was announced and the servers do not show.
    `baselines`: those that the domains were held against, `id`, `domain`, `finished_at` and `identity` of each.
    `left_out`: sentences on runs that do not count beside others that do. `unprobed`: domains and replicas that nobody
    could probe in time; empty when the verdict is whole. `at_baseline`: it runs what its baselines were measured with,
    as after a roll-back. `incident`: the route's open incident of acceptance, with its `id` and `severity`;
    `confirming`: domains whose loss a rule has found, and that confirmation runs are about to decide.
    """
    document: dict[str, Any] = {
        "bump_id": bump_id,
        "transition": NOTE,
        "route": route,
        "labels": dict(labels),
        "announcement": None if announcement is None else dict(announcement),
        "noticed": [dict(bump) for bump in noticed],
        "what": _what(announced, noticed),
        "not_shown": list(not_shown),
        "domains": [domain.as_dict() for domain in domains],
        "baselines": [dict(baseline) for baseline in baselines],
        "unchanged_within": None if (widest := least_sure(domains)) is None else _within(widest),
        "left_out": list(left_out),
        "unprobed": list(unprobed),
        "at_baseline": at_baseline,
        "replicas": list(replicas),
        "incident": None if incident is None else {name: incident[name] for name in ("id", "severity")},
        "confirming": list(confirming),
        "opened_at": opened_at.isoformat(),
        "happened_at": now.isoformat(),
        "link": f"{external_url}/incidents/{incident['id']}" if incident is not None and external_url else None,
        "change_link": None if announcement is None else announcement["link"],
        "runbook_url": runbook_url if incident is not None or confirming else None,
    }
    document["summary"] = _summary(document)
    return with_text(document, _lines(document))


def _within(domain: DomainAfter) -> dict[str, Any]:
    return {name: domain.as_dict()[name] for name in ("domain", "change_interval")}


def _what(announced: Mapping[str, str], noticed: Sequence[Mapping[str, Any]]) -> str:
    """In a few words: what the announcement names, else what was seen to change."""
    found = dict(announced)
    if not found:
        found = {name: now for bump in noticed for name, (_, now) in bump["changes"].items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items()) or "what was announced"


def _summary(document: Mapping[str, Any]) -> str:
    parts = [*_found(document), *(["nobody announced it"] if document["announcement"] is None else [])]
    if document["unprobed"]:
        parts.append(f"not all probed within {format_duration(WINDOW)}")
    if document["not_shown"]:
        parts.append("the servers do not show it")
    what, since = document["what"], clock(document["opened_at"])
    parts += alerted(document["incident"], document["confirming"])
    seen = "first seen" if document["announcement"] is None else "since"
    told = f"after bump to {what}, {seen} {since}: {'; '.join(parts)}"
    return f"BUMP {document['route']} · {told}; next: {_first(document)}"


def _first(document: Mapping[str, Any]) -> str:
    """The command that shows most of it."""
    incident = document["incident"]
    return (
        f"specwatch bumps --route {document['route']}" if incident is None else f"specwatch incidents {incident['id']}"
    )


def _found(document: Mapping[str, Any]) -> list[str]:
    """The domains that changed, the worst first, that the others did not, of which ones it cannot be told, and
    against which baselines."""
    domains, within = document["domains"], document["unchanged_within"]
    changed = sorted((one for one in domains if one["changed"]), key=lambda one: float(one["change"]))
    level = [one["domain"] for one in domains if one["changed"] is False]
    unclear = [one["domain"] for one in domains if one["changed"] is None and one["change"] is not None]
    unknown = [one["domain"] for one in domains if one["change"] is None]
    if len(unknown) == len(domains):
        reasons = {one["reason"] for one in domains}
        return [f"no domain can be compared{f': {reasons.pop()}' if len(reasons) == 1 else ''}"]
    others = "all domains" if len(level) == len(domains) else "others" if changed else named(level)
    parts = [
        *_changed_domains(changed, [one["domain"] for one in domains]),
        *([f"{others} unchanged{unchanged_text(within)}"] if within else []),
        *([f"too noisy to tell: {named(unclear)}"] if unclear else []),
        *([f"not comparable: {named(unknown)}"] if unknown else []),
    ]
    return [", ".join(parts), f"against {compared_text(document['baselines'])}"]


def _changed_domains(changed: Sequence[Mapping[str, Any]], domains: Sequence[str]) -> list[str]:
    """Each of a few; of many how many, from the worst to the best."""
    if len(changed) <= NAMED_AT_MOST:
        each = [f"{one['domain']} {change(one['change'])} ({_interval(one)})" for one in changed]
        return [f"acceptance length of {each[0]}", *each[1:]] if each else []
    which = f"acceptance length of {named([one['domain'] for one in changed], domains)} changed"
    (worst, *_, best) = changed
    low, high = change(worst["change"]), change(best["change"])
    if low == high:
        return [f"{which}, each {low} ({worst['domain']}: {_interval(worst)})"]
    return [f"{which}, from {worst['domain']} {low} ({_interval(worst)}) to {best['domain']} {high}"]


def _interval(domain: Mapping[str, Any]) -> str:
    low, high = map(change, domain["change_interval"])
    return f"95 % interval {low} to {high}"


def _lines(document: Mapping[str, Any]) -> list[str]:
    return [
        *ranked("domains", [_domain(domain) for domain in _worst_first(document["domains"])]),
        *labelled(
            "alert",
            "; ".join(alerted(document["incident"], document["confirming"]))
            or "none is open, and no rule has found a loss to confirm",
        ),
        *labelled("changed", _changed(document["noticed"])),
        *labelled("announced", _announced(document)),
        *(line for sentence in document["not_shown"] for line in labelled("not shown", sentence)),
        *labelled("probed", _probed(document)),
        *(line for sentence in document["left_out"] for line in labelled("left out", sentence)),
        *listed("baseline", _baseline(document["baselines"])),
        *verbatim("next", _steps(document)),
        *verbatim("link", [link for link in (document["link"], document["change_link"]) if link]),
        *verbatim("runbook", [url] if (url := document["runbook_url"]) else []),
    ]


def _worst_first(domains: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What cannot be compared before all that can: it is the least known."""
    return sorted(domains, key=lambda one: -float("inf") if one["change"] is None else float(one["change"]))


def _domain(domain: Mapping[str, Any]) -> Told:
    if domain["change"] is None:
        return Told(domain["domain"], f": {domain['reason']}")
    value = f"{domain['value']:.2f} of {domain['baseline_value']:.2f}{by_source(domain['source'])}"
    head = {True: "", False: "unchanged: ", None: f"{domain['reason']}: "}[domain["changed"]]
    evidence = f"{count(domain['prompts'], 'prompt')}, {numbered('run', domain['run_ids'])}"
    moved = f"{head}{change(domain['change'])} ({_interval(domain)})"
    return Told(
        domain["domain"], f": {moved}, AL {value}, {evidence}, baseline {domain['baseline_id']}", domain["change"]
    )


def _changed(noticed: Sequence[Mapping[str, Any]]) -> str:
    """What was seen to change, once however many replicas it was noticed on."""
    if not noticed:
        return "no change of model, drafter, engine or K was seen on this route since it was announced"
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for bump in noticed:
        seen.setdefault("; ".join(f"{name} {a} → {b}" for name, (a, b) in bump["changes"].items()), []).append(bump)
    return "; ".join(
        f"{changes}, noticed {clock(bumps[0]['noticed_at'])} on {', '.join(bump['replica'] for bump in bumps)}"
        for changes, bumps in seen.items()
    )


def _announced(document: Mapping[str, Any]) -> str:
    announcement = document["announcement"]
    if announcement is None and document["at_baseline"]:
        return "by nobody; it runs again what its baselines were measured with"
    if announcement is None:
        within = format_duration(WINDOW)
        return f"by nobody: within {within} before it was noticed, no announcement fits it. Is it a change you know of?"
    said = f": {announcement['note']}" if announcement["note"] else ""
    passed = (announcement["candidate"] or {}).get("fingerprint")
    of = f", of fingerprint {passed}" if passed else ""
    return f"by {announcement['by']} at {clock(announcement['announced_at'])}{said}{of}"


def _probed(document: Mapping[str, Any]) -> str:
    if document["unprobed"]:
        return f"not all within {format_duration(WINDOW)}; missing: {', '.join(document['unprobed'])}"
    return f"{count(len(document['domains']), 'domain')} on {', '.join(document['replicas'])}"


def _baseline(baselines: Sequence[Mapping[str, Any]]) -> list[str]:
    if not baselines:
        return ["none is approved yet, so nothing is judged"]
    return [*compared_lines(baselines), "what is old stands, and judges what runs now, until another is approved"]


def _steps(document: Mapping[str, Any]) -> list[str]:
    """There is no new level to accept, nor a way back to show, where every domain is at that of its baseline."""
    route, domains = document["route"], document["domains"]
    steps = [_first(document), f"specwatch history {route} --since 24h"]
    if domains and all(domain["changed"] is False for domain in domains):
        return steps
    before = _before(document["noticed"])
    return [
        *steps,
        *([f"if it is not wanted, roll back to {before}"] if before and not document["at_baseline"] else []),
        "to accept the new level, once ten runs of it are there:",
        f"specwatch baseline create {route} --last 10 --approve --by NAME --why REASON",
    ]


def _before(noticed: Sequence[Mapping[str, Any]]) -> str:
    """What ran before the first of the changes, as far as its servers showed it."""
    found: dict[str, Any] = {}
    for bump in noticed:
        for name, (before, _) in bump["changes"].items():
            found.setdefault(name, before)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items() if value is not None)
