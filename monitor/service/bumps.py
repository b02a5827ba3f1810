"""Bumps, from an announcement or the first run that saw one to the verdict on every domain.

A verdict waits for a run of each domain on each replica concerned, made after the change, and is told once: when they
are there, or when WINDOW is over, and then it says so.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.alerting.bump_message import bump_event
from monitor.alerting.routing import receivers_for_bumps
from monitor.config.alerting import runbook_url
from monitor.config.replicas import Discovery
from monitor.core.bumps import METRIC, WINDOW, DomainAfter, domain_after
from monitor.core.records import Identity, Reason
from monitor.probing.outcome import IDENTITY_CHANGED
from monitor.service.jobs import ProbeJob, defer
from monitor.store import baselines, identities, incidents, queue, runs, slots, trips
from monitor.store import bumps as store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from sqlalchemy import Connection

    from monitor.config.alerting import Alerting
    from monitor.config.routes import Route
    from monitor.core.bumps import Announced
    from monitor.service.case import Case
    from monitor.service.discovery import Replicas

SAME_ROLLOUT = timedelta(days=1)
"""The same change noticed so long after its verdict on another replica is the same rollout: it is not told again."""


def announce(
    connection: Connection,
    route: Route,
    replicas: Sequence[str],
    what: Announced,
    by: str,
    now: datetime,
    **said: str | None,
) -> tuple[dict[str, Any], list[ProbeJob] | None]:
    """The announcement's document and the probes queued: every domain on every replica. None: it was announced before.

    `said`: note, link and key. A change that fits it and waits for its verdict already is announced by it too.
    """
    slots.lock_route(connection, route.name)
    announcement, is_new = store.add_announcement(connection, route.name, what, by, now, **said)
    if not is_new:
        return announcement, None
    noticed = _noticed_already(connection, route, what)
    fresh = [replica for replica in replicas if noticed is None or replica not in noticed.replicas]
    since = dict.fromkeys(fresh, now)
    if noticed is None:
        due_at = now + WINDOW
        store.open_verdict(connection, route.name, route.domains, since, now, due_at, announcement["id"])
    else:
        store.announce_verdict(connection, noticed.id, announcement["id"])
        store.follow(connection, noticed, since)
    key = f"announced {announcement['id']}"
    jobs = [
        ProbeJob(f"{key} {domain} {replica}", route.name, domain, replica, Reason.BUMP)
        for replica in fresh
        for domain in route.domains
    ]
    for job in jobs:
        defer(connection, job)
    return announcement, jobs


def _noticed_already(connection: Connection, route: Route, what: Announced) -> store.Pending | None:
    """The verdict to come of changes that nobody announced so far and that fit."""
    pending = [one for one in store.pending_verdicts(connection, route.name) if one.announcement is None]
    noticed = store.bumps_of(connection, [one.id for one in pending])
    fitting = (one for one in pending if all(what.fits(bump["changes"]) for bump in noticed[one.id]))
    return next(fitting, None)


def probe_after_bump(connection: Connection, route: Route, replica: str, key: str, measured: str | None = None) -> None:
    """Every domain but the one `measured` already is probed on the replica at once, unless such a probe waits."""
    for domain in route.domains:
        if domain != measured and not queue.scheduled_waits(connection, route.name, domain, replica, Reason.BUMP):
            defer(connection, ProbeJob(f"{key} {domain}", route.name, domain, replica, Reason.BUMP))


def identity_before(connection: Connection, route: Route, replica: str) -> tuple[int, Identity] | None:
    """What ran there before. A replica that was found and is new takes the place of another: a rollout is a change."""
    previous = identities.last_identity(connection, route.name, replica)
    if previous is None and isinstance(route.replicas, Discovery):
        return identities.last_identity(connection, route.name, None)
    return previous


def probe_if_changed(connection: Connection, route: Route, replica: str, seen: Identity, now: datetime) -> bool:
    """Probes every domain of a replica that now shows itself as another: the first of these runs notices the bump."""
    before = identity_before(connection, route, replica)
    changed = before is not None and bool(seen.changes_from(before[1]))
    if changed:
        probe_after_bump(connection, route, replica, f"seen {now.isoformat()} {replica}")
    return changed


class Bumps:
    """Notices bumps and tells what became of the route; holds no state between runs."""

    def __init__(self, alerting: Alerting, replicas: Replicas) -> None:
        self._alerting = alerting
        self._replicas = replicas

    def notice(self, case: Case, previous: tuple[int, Identity]) -> int | None:
        """Stores the bump that this run was the first to see, if it is one, and probes the other domains at once."""
        changes = case.run.identity.changes_from(previous[1])
        if not changes:
            return None
        connection, route, run = case.connection, case.route, case.run
        verdict_id = _verdict_of(case, changes)
        identity_id = identities.store_identity(connection, run.identity, case.now)
        bump_id = identities.store_bump(
            connection, route.name, run.replica, previous[0], identity_id, changes, case.now, case.recorded.run_id
        )
        store.link_bump(connection, bump_id, verdict_id)
        measured = run.domain if run.invalid_reason is None else None
        probe_after_bump(connection, route, run.replica, f"bump {bump_id}", measured)
        return bump_id

    def tell(self, connection: Connection, route: Route, now: datetime) -> list[int]:
        """Decides the route's verdicts that wait for nothing more, or have waited long enough; returns their ids."""
        return [
            pending.id
            for pending in store.pending_verdicts(connection, route.name)
            if self._decide(connection, route, pending, now)
        ]

    def _decide(self, connection: Connection, route: Route, pending: store.Pending, now: datetime) -> bool:
        after = store.runs_after(connection, pending)
        domains = [domain for domain in pending.domains if domain in route.domains]
        unprobed = _unprobed(domains, pending.replicas.keys() & set(self._replicas.known(route)), after)
        said = pending.announced
        not_shown = [] if said is None else [text for run in after for text in said.unlike(run.identity)]
        if (unprobed or not_shown) and now < pending.due_at:
            return False
        after_each = [_domain(connection, route.name, domain, after) for domain in domains]
        compared = _baselines(connection, after_each)
        document = bump_event(
            bump_id=pending.id,
            route=route.name,
            labels=route.labels,
            announcement=pending.announcement,
            announced={} if said is None else said.named(),
            noticed=store.bumps_of(connection, [pending.id])[pending.id],
            not_shown=list(dict.fromkeys(not_shown)),
            domains=after_each,
            baselines=compared,
            left_out=_left_out(after),
            unprobed=unprobed,
            at_baseline=_at_baseline(after_each, compared, after),
            replicas=sorted({run.replica for run in after}),
            incident=incidents.open_document(connection, route.name),
            confirming=trips.pending_domains(connection, route.name),
            opened_at=pending.opened_at,
            now=now,
            external_url=self._alerting.external_url,
            runbook_url=runbook_url(self._alerting, route),
        )
        store.decide(connection, pending.id, document, receivers_for_bumps(self._alerting, route), now)
        return True


def _verdict_of(case: Case, changes: Mapping[str, tuple[Any, Any]]) -> int:
    """The verdict that a change noticed now belongs to: the one its announcement waits for, or one to come."""
    connection, route, run, now = case.connection, case.route.name, case.run, case.now
    since = {run.replica: run.started_at}
    pending = store.pending_verdicts(connection, route)
    said = _announcements_of(connection, route, changes, now)
    announced = [one for document in said for one in pending if one.announcement == document]
    unannounced = (one for one in pending if one.announcement is None)
    found = announced[0] if announced else None if said else next(unannounced, None)
    if found is not None:
        store.follow(connection, found, since)
        return found.id
    told = store.same_change_told(connection, route, run.replica, changes, now - SAME_ROLLOUT)
    if told is not None:
        return told
    announcement_id = said[0]["id"] if said else None
    return store.open_verdict(connection, route, case.route.domains, since, now, now + WINDOW, announcement_id)


def _announcements_of(
    connection: Connection, route: str, changes: Mapping[str, tuple[Any, Any]], now: datetime
) -> list[dict[str, Any]]:
    """Those that a change noticed now may be of: first those that name something, of these the newest."""
    recent = store.announcements_since(connection, route, now - WINDOW)
    earlier = store.changes_announced(connection, [one["id"] for one in recent])
    fitting = [one for one in recent if store.announced_of(one).fits(changes, earlier[one["id"]])]
    return sorted(fitting, key=lambda one: not (store.announced_of(one).named() or one["candidate"]))


def _unprobed(domains: Sequence[str], replicas: set[str], after: Sequence[store.RunAfter]) -> list[str]:
    """What no run was made of: a domain on a replica that the route still has, or a domain anywhere."""
    after = [run for run in after if run.invalid_reason != IDENTITY_CHANGED]  # it was begun before the change
    seen = {(run.domain, run.replica) for run in after}
    pairs = [
        f"{domain} on {replica}" for domain in domains for replica in sorted(replicas) if (domain, replica) not in seen
    ]
    probed = {run.domain for run in after}
    return pairs or [domain for domain in domains if domain not in probed]


def _domain(connection: Connection, route: str, domain: str, after: Sequence[store.RunAfter]) -> DomainAfter:
    own = [run for run in after if run.domain == domain]
    valid = [run for run in own if run.invalid_reason is None]
    if not valid:
        why = f"run {own[-1].id} is invalid: {own[-1].invalid_reason}" if own else "not probed"
        return DomainAfter(domain, why, run_ids=tuple(run.id for run in own))
    candidates = [runs.candidate(connection, run.id, METRIC) for run in valid]
    reference = baselines.reference(connection, route, domain, METRIC, candidates[0].comparability)
    return domain_after(domain, candidates, reference)


def _baselines(connection: Connection, domains: Sequence[DomainAfter]) -> list[dict[str, Any]]:
    """The baselines that the domains were held against: when the last run of each ended, and what was running in it."""
    return [
        {
            "id": one.baseline_id,
            "domain": one.domain,
            "finished_at": baselines.runs_of(connection, one.baseline_id)["finished_at"],
            "identity": baselines.identity_of(connection, one.baseline_id).as_dict(),
        }
        for one in domains
        if one.baseline_id is not None
    ]


def _at_baseline(
    domains: Sequence[DomainAfter], compared: Sequence[Mapping[str, Any]], after: Sequence[store.RunAfter]
) -> bool:
    """Whether every run shows what the baseline of every domain was measured with."""
    measured = [Identity.from_dict(one["identity"]) for one in compared]
    whole = bool(domains) and len(measured) == len(domains)
    return whole and not any(run.identity.changes_from(known) for run in after for known in measured)


def _left_out(after: Sequence[store.RunAfter]) -> list[str]:
    """Invalid runs of a domain that has valid ones: their replicas are not in its figure."""
    judged = {run.domain for run in after if run.invalid_reason is None}
    return [
        f"{run.domain} on {run.replica}: run {run.id} is invalid: {run.invalid_reason}"
        for run in after
        if run.invalid_reason is not None and run.domain in judged
    ]
