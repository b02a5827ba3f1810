"""What the verdict on a bump says, as one document and as text. Neither firing nor resolved: a note. Pure.

The first line alone tells the route, what runs there now, and which domains moved, how much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.alerting.document import with_text
from monitor.alerting.layout import clock, labelled, listed, these_runs, verbatim
from monitor.config.units import format_duration
from monitor.core.bumps import NOTE, WINDOW
from monitor.core.format import by_source, change, count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monitor.core.bumps import DomainAfter

NAMED_AT_MOST = 4
"""Domains named in the first line, which a phone shows; the lines below it name them all."""


def bump_event(
    *,
    bump_id: int,
    route: str,
    labels: Mapping[str, str],
    announcement: Mapping[str, Any] | None,
    named: Mapping[str, str],
    noticed: Sequence[Mapping[str, Any]],
    not_shown: Sequence[str],
    domains: Sequence[DomainAfter],
    left_out: Sequence[str],
    unprobed: Sequence[str],
    at_baseline: bool,
    replicas: Sequence[str],
    opened_at: datetime,
    now: datetime,
) -> dict[str, Any]:
    """The document of a bump's verdict: everything a receiver may show, fixed when it was decided.

    `named`: what the announcement names. `not_shown`: sentences on what was announced and the servers do not show.
    `left_out`: sentences on runs that do not count beside others that do. `unprobed`: domains and replicas that nobody
    could probe in time; empty when the verdict is whole. `at_baseline`: it runs what its baselines were measured with,
    as after a roll-back.
    """
    document: dict[str, Any] = {
        "bump_id": bump_id,
        "transition": NOTE,
        "route": route,
        "labels": dict(labels),
        "announcement": None if announcement is None else dict(announcement),
        "noticed": [dict(bump) for bump in noticed],
        "what": _what(named, noticed),
        "not_shown": list(not_shown),
        "domains": [domain.as_dict() for domain in domains],
        "left_out": list(left_out),
        "unprobed": list(unprobed),
        "at_baseline": at_baseline,
        "replicas": list(replicas),
        "opened_at": opened_at.isoformat(),
        "happened_at": now.isoformat(),
        "link": None,
        "change_link": None if announcement is None else announcement["link"],
        "runbook_url": None,
    }
    document["summary"] = _summary(document)
    return with_text(document, _lines(document))


def _what(named: Mapping[str, str], noticed: Sequence[Mapping[str, Any]]) -> str:
    """In a few words: what the announcement names, else what was seen to change."""
    found = dict(named)
    if not found:
        found = {name: now for bump in noticed for name, (_, now) in bump["changes"].items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items()) or "what was announced"


def _summary(document: Mapping[str, Any]) -> str:
    parts = [*_found(document["domains"]), *(["nobody announced it"] if document["announcement"] is None else [])]
    if document["unprobed"]:
        parts.append(f"not all probed within {format_duration(WINDOW)}")
    if document["not_shown"]:
        parts.append("the servers do not show it")
    what, since = document["what"], clock(document["opened_at"])
    return f"BUMP {document['route']} · after bump to {what}, since {since}: {'; '.join(parts)}"


def _found(domains: Sequence[Mapping[str, Any]]) -> list[str]:
    """The domains that changed, the worst first, that the others did not, and of which ones it cannot be told."""
    changed = sorted((one for one in domains if one["changed"]), key=lambda one: float(one["change"]))
    level = [one for one in domains if one["changed"] is False]
    unclear = [one["domain"] for one in domains if one["changed"] is None and one["change"] is not None]
    unknown = [one["domain"] for one in domains if one["change"] is None]
    if len(unknown) == len(domains):
        reasons = {one["reason"] for one in domains}
        return [f"no domain can be compared{f': {reasons.pop()}' if len(reasons) == 1 else ''}"]
    told = [f"{one['domain']} {change(one['change'])} ({_interval(one)})" for one in changed[:NAMED_AT_MOST]]
    more = len(changed) - NAMED_AT_MOST
    others = "all domains" if len(level) == len(domains) else "others"
    parts = [
        *told,
        *([f"{more} more changed"] if more > 0 else []),
        *([f"{others} unchanged"] if level else []),
        *([f"too noisy to tell: {', '.join(unclear)}"] if unclear else []),
        *([f"not comparable: {', '.join(unknown)}"] if unknown else []),
    ]
    return [", ".join(parts)]


def _interval(domain: Mapping[str, Any]) -> str:
    low, high = map(change, domain["change_interval"])
    return f"95 % interval {low} to {high}"


def _lines(document: Mapping[str, Any]) -> list[str]:
    return [
        *listed("domains", [_domain(domain) for domain in document["domains"]]),
        *labelled("changed", _changed(document["noticed"])),
        *labelled("announced", _announced(document)),
        *(line for sentence in document["not_shown"] for line in labelled("not shown", sentence)),
        *labelled("probed", _probed(document)),
        *(line for sentence in document["left_out"] for line in labelled("left out", sentence)),
        *labelled("baseline", _baseline(document["domains"])),
        *verbatim("next", _steps(document)),
        *verbatim("link", [link] if (link := document["change_link"]) else []),
    ]


def _domain(domain: Mapping[str, Any]) -> str:
    if domain["change"] is None:
        return f"{domain['domain']}: {domain['reason']}"
    value = f"{domain['value']:.2f} of {domain['baseline_value']:.2f}{by_source(domain['source'])}"
    head = {True: "", False: "unchanged: ", None: f"{domain['reason']}: "}[domain["changed"]]
    evidence = f"{count(domain['prompts'], 'prompt')}, {these_runs(domain['run_ids'])}"
    moved = f"{head}{change(domain['change'])} ({_interval(domain)})"
    return f"{domain['domain']}: {moved}, AL {value}, {evidence}, baseline {domain['baseline_id']}"


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


def _baseline(domains: Sequence[Mapping[str, Any]]) -> str:
    if not any(domain["baseline_id"] for domain in domains):
        return "none is approved yet, so nothing is judged"
    return "the old one stands, and judges what runs now, until another is approved"


def _steps(document: Mapping[str, Any]) -> list[str]:
    """There is no new level to accept where every domain is at that of its baseline."""
    route, domains = document["route"], document["domains"]
    steps = [f"specwatch history {route} --since 24h"]
    if domains and all(domain["changed"] is False for domain in domains):
        return steps
    return [
        *steps,
        "to accept the new level, once ten runs of it are there:",
        f"specwatch baseline create {route} --last 10 --approve --by NAME --why REASON",
    ]
