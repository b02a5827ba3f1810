"""What follows from a finished run, in one transaction: stored, compared, judged, told.

1. The run and its samples are written under the job's key; a second time nothing happens.
2. A changed identity is recorded as a bump and every domain of the route is probed at once.
3. Each rule that applies judges the run; a trip queues two confirmation runs, a confirmation decides its trip.
4. Incident transitions and their deliveries are written beside the verdict that caused them.
5. A route whose policy says so gets its first baseline.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monitor.alerting.message import incident_event
from monitor.alerting.receivers import receivers_for
from monitor.config.replicas import Discovery
from monitor.core import floors, judge
from monitor.core import incidents as life
from monitor.core.figures import Aggregate, aggregate
from monitor.core.outputs import changes
from monitor.core.records import Reason
from monitor.service.discovery import Replicas
from monitor.service.jobs import ProbeJob, defer
from monitor.store import baselines, identities, incidents, outbox, runs, slots, verdicts
from monitor.store.gathering import Gathering, gathering, take_place
from monitor.store.replicas import replica_difference

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.alerting import Rule
    from monitor.config.load import Config
    from monitor.config.routes import Route
    from monitor.core.records import Identity, Run

OPENED_BY_RUNS_WITHIN = timedelta(hours=1)
"""How long the runs that open an incident may have waited for their turn, besides the time between them."""
MOST_CONFIRMATIONS = 6
"""Confirmation runs queued per trip at most: two, and four more when some are invalid."""


@dataclass
class Recorded:
    """What a run led to, for the log and the process's own metrics."""

    run_id: int
    figures: Aggregate
    bump_id: int | None = None
    verdicts: list[tuple[str, judge.Verdict]] = field(default_factory=list)
    transitions: list[tuple[int, life.Transition]] = field(default_factory=list)
    baseline_id: int | None = None


class Recorder:
    """Records runs of the configured routes; holds no state between runs."""

    def __init__(self, config: Config, replicas: Replicas | None = None) -> None:
        self.replicas = replicas or Replicas(config.routes)
        self.alerting = config.alerting
        self.routes = {route.name: route for route in config.routes}

    def record(self, connection: Connection, job: ProbeJob, run: Run, now: datetime) -> Recorded | None:
        """All of the above; None when this job's run is stored already."""
        route = self.routes[run.route]
        slots.lock_route(connection, route.name)
        previous = _previous_identity(connection, route, run.replica)
        run_id = runs.store_run(connection, job.key, run, job.trip_id)
        if run_id is None:
            return None
        recorded = Recorded(run_id, aggregate(run.domain, run.samples))
        if previous is not None and any(sample.valid for sample in run.samples):
            recorded.bump_id = self._bump(connection, route, run, run_id, previous, now)
        tripped = [
            rule
            for rule in sorted(self.alerting.rules, key=_is_absolute)
            if applies(rule, route, run.domain) and self._judge(connection, route, rule, run, recorded, now)
        ]
        if tripped and run.reason is not Reason.CONFIRM:
            self._trip(connection, route, tripped, run, recorded, now)
        if job.trip_id is not None:
            self._confirm(connection, route, run, job.trip_id, recorded, now)
        if run.invalid_reason is None:
            recorded.baseline_id = self._approve_first(connection, route, run, run_id, now)
        return recorded

    def _bump(
        self, connection: Connection, route: Route, run: Run, run_id: int, previous: tuple[int, Any], now: datetime
    ) -> int | None:
        changes = run.identity.changes_from(previous[1])
        if not changes:
            return None
        identity_id = identities.store_identity(connection, run.identity, now)
        bump_id = identities.store_bump(
            connection, route.name, run.replica, previous[0], identity_id, changes, now, run_id
        )
        for domain in route.domains:
            if domain != run.domain:
                job = ProbeJob(f"bump {bump_id} {domain}", route.name, domain, run.replica, Reason.BUMP)
                defer(connection, job)
        return bump_id

    def _judge(
        self, connection: Connection, route: Route, rule: Rule, run: Run, recorded: Recorded, now: datetime
    ) -> bool:
        """Stores the verdict and lets it heal the incident; True when the run trips and that is news."""
        verdict = self._verdict(connection, route, rule, run, recorded)
        verdicts.store_verdict(connection, recorded.run_id, rule.name, verdict, now)
        recorded.verdicts.append((rule.name, verdict))
        found = incidents.open_incident(connection, route.name)
        state = life.IncidentState()
        if found is not None:
            state = self._inherited(found[1], run.domain, rule)
            ill = self._ill_elsewhere(connection, route, rule, run, found[0])
            wanted = self.alerting.resolve.runs
            state, transition = life.on_judged(state, run.domain, rule.name, verdict, wanted, now, bool(ill))
            if ill and run.domain in state.domains and state.domains[run.domain].well_runs >= wanted:
                key = f"heal {found[0]} {recorded.run_id}"
                defer(connection, ProbeJob(key, route.name, run.domain, ill[0], Reason.CONFIRM))
            self._move(connection, route, rule, run, verdict, found, (state, transition), recorded, now)
        return verdict.outcome is judge.Outcome.TRIPPED and not life.covers(state, run.domain, rule.severity)

    def _verdict(self, connection: Connection, route: Route, rule: Rule, run: Run, recorded: Recorded) -> judge.Verdict:
        """An absolute rule does not call a run well that a rule with a drop, judged before it, trips."""
        if rule.below is not None:
            verdict = floors.judge_floor(runs.first_position(connection, recorded.run_id), floors.Floor(rule.below))
            fallen = any(other.outcome is judge.Outcome.TRIPPED for _, other in recorded.verdicts)
            return replace(verdict, above_resolve_line=False) if fallen and verdict.above_resolve_line else verdict
        candidate = runs.candidate(connection, recorded.run_id, rule.metric, run.samples)
        reference = baselines.reference(connection, route.name, run.domain, rule.metric, candidate.comparability)
        return judge.judge_run(candidate, reference, _line(rule))

    def _ill_elsewhere(self, connection: Connection, route: Route, rule: Rule, run: Run, incident_id: int) -> list[str]:
        """The route's other replicas that were below the resolve line when last judged: one well replica heals none."""
        others = set(self.replicas.known(route)) - {run.replica}
        if not others:
            return []
        since = incidents.opened_at(connection, incident_id) - route.confirm_after[1] - OPENED_BY_RUNS_WITHIN
        ill = verdicts.ill_replicas(connection, route.name, run.domain, rule.name, since)
        return [replica for replica in ill if replica in others]

    def _inherited(self, state: life.IncidentState, domain: str, rule: Rule) -> life.IncidentState:
        """A domain broken by a rule that alerting.yaml has no more would never heal: this rule takes its place."""
        broken = state.domains.get(domain)
        if broken is None or any(known.name == broken.rule for known in self.alerting.rules):
            return state
        return state.with_broken(domain, replace(broken, rule=rule.name))

    def _trip(
        self, connection: Connection, route: Route, rules: list[Rule], run: Run, recorded: Recorded, now: datetime
    ) -> None:
        """Two confirmation runs serve every rule that the run tripped."""
        baseline_ids = {verdict.baseline_id for _, verdict in recorded.verdicts if verdict.baseline_id is not None}
        names = [rule.name for rule in rules]
        trip_id = verdicts.open_trip(
            connection, route.name, run.domain, names, recorded.run_id, next(iter(baseline_ids), None), now
        )
        if trip_id is None:
            return
        for number, delay in enumerate(route.confirm_after):
            self._queue_confirmation(connection, run, trip_id, number, run.finished_at + delay)
        others = [replica for replica in self.replicas.known(route) if replica != run.replica]
        if others:
            # Without it the first alert could not say whether the other replicas are well.
            beside = ProbeJob(
                f"beside {trip_id}", route.name, run.domain, others[trip_id % len(others)], Reason.CONFIRM
            )
            defer(connection, beside, run.finished_at + route.confirm_after[0])

    def _queue_confirmation(self, connection: Connection, run: Run, trip_id: int, number: int, at: datetime) -> None:
        job = ProbeJob(
            f"confirm {trip_id} {number}", run.route, run.domain, run.replica, Reason.CONFIRM, trip_id=trip_id
        )
        defer(connection, job, at)
        verdicts.count_confirmation(connection, trip_id, 1)

    def _confirm(
        self, connection: Connection, route: Route, run: Run, trip_id: int, recorded: Recorded, now: datetime
    ) -> None:
        trip = verdicts.pending_trip(connection, trip_id)
        if trip is None:
            return
        confirmations = verdicts.valid_confirmations(connection, trip.id)
        if len(confirmations) < len(route.confirm_after):
            self._wait_for_more(connection, route, run, trip, now)
            return
        outcome = judge.Outcome.NOT_CONFIRMED
        for rule in self._severest_first(trip.rules):
            verdict = self._judge_confirmation(connection, rule, trip, confirmations)
            verdicts.store_verdict(connection, recorded.run_id, rule.name, verdict, now, trip.id)
            recorded.verdicts.append((rule.name, verdict))
            outcome = verdict.outcome
            if outcome is judge.Outcome.CONFIRMED:
                self._break(connection, route, rule, run, verdict, recorded, now)
                break
        verdicts.decide_trip(connection, trip.id, outcome.value, now)

    def _severest_first(self, names: tuple[str, ...]) -> list[Rule]:
        """The trip's rules that are still configured: the severest that is confirmed is the one to tell."""
        rules = [rule for rule in self.alerting.rules if rule.name in names]
        return sorted(
            rules, key=lambda rule: (-life.SEVERITIES.index(rule.severity), not _is_absolute(rule), -(rule.drop or 0.0))
        )

    def _judge_confirmation(
        self, connection: Connection, rule: Rule, trip: verdicts.Trip, confirmations: list[int]
    ) -> judge.Verdict:
        if rule.below is not None:
            fresh = [runs.first_position(connection, run_id) for run_id in confirmations]
            return floors.confirm_floor(runs.first_position(connection, trip.run_id), fresh, floors.Floor(rule.below))
        assert trip.baseline_id is not None, "a rule with a drop trips only against a baseline"
        return judge.judge_confirmation(
            runs.candidate(connection, trip.run_id, rule.metric),
            [runs.candidate(connection, run_id, rule.metric) for run_id in confirmations],
            baselines.reference_by_id(connection, trip.baseline_id, rule.metric),
            _line(rule),
        )

    def _break(
        self,
        connection: Connection,
        route: Route,
        rule: Rule,
        run: Run,
        verdict: judge.Verdict,
        recorded: Recorded,
        now: datetime,
    ) -> None:
        found = incidents.open_incident(connection, route.name)
        state = life.IncidentState() if found is None else found[1]
        moved = life.on_confirmed(state, run.domain, rule.name, rule.severity, verdict, now)
        self._move(connection, route, rule, run, verdict, found, moved, recorded, now)

    def _wait_for_more(
        self, connection: Connection, route: Route, run: Run, trip: verdicts.Trip, now: datetime
    ) -> None:
        missing = trip.confirmations_queued - verdicts.confirmations_done(connection, trip.id)
        if run.invalid_reason is None or missing > 1:
            return
        if trip.confirmations_queued >= MOST_CONFIRMATIONS:
            verdicts.decide_trip(connection, trip.id, "expired", now)
            return
        gap = route.confirm_after[1] - route.confirm_after[0]
        self._queue_confirmation(connection, run, trip.id, trip.confirmations_queued, now + gap)

    def _move(
        self,
        connection: Connection,
        route: Route,
        rule: Rule,
        run: Run,
        verdict: judge.Verdict,
        found: tuple[int, life.IncidentState] | None,
        moved: tuple[life.IncidentState, life.Transition | None],
        recorded: Recorded,
        now: datetime,
    ) -> None:
        state, transition = moved
        if found is not None and state == found[1] and transition is None:
            return
        incident_id = incidents.save_state(connection, route.name, None if found is None else found[0], state, now)
        if transition is None:
            return
        known = incidents.get_incident(connection, incident_id) or {}
        if transition is life.Transition.RESOLVED:
            verdict = self._pooled(connection, route, rule, run, verdict, incident_id)
        raised_from = _raised_from(found, known["severity"])
        gathered = Gathering(now)
        if transition is life.Transition.UPDATED:
            gathered = gathering(connection, incident_id, now, self.alerting.gather_for)
        first_bad = None if transition is life.Transition.RESOLVED else verdict.run_ids[0]
        since = runs.run_started_at(connection, verdict.run_ids[0])
        document = incident_event(
            incident_id=incident_id,
            transition=transition,
            route=route.name,
            labels=route.labels,
            severity=known["severity"],
            raised_from=raised_from or gathered.raised_from,
            domain=run.domain,
            rule=rule.name,
            verdict=verdict,
            replica=run.replica,
            source=runs.source_of(run),
            since=since,
            joins=gathered.joined,
            opened_at=incidents.opened_at(connection, incident_id),
            now=now,
            broken_domains=list(state.domains),
            involved=known["domains"],
            last_good_run=verdicts.last_good_run(connection, route.name, run.domain, rule.name, first_bad),
            baseline_runs=baselines.runs_of(connection, verdict.baseline_id) if verdict.baseline_id else None,
            outputs=None if transition is life.Transition.RESOLVED else _outputs(connection, run, verdict),
            last_bump=identities.last_bump(connection, route.name),
            other_changes=verdicts.last_changes(connection, route.name, rule.name),
            configured_domains=() if _is_absolute(rule) else route.domains,
            replica_difference=replica_difference(connection, route.name, run.domain),
            external_url=self.alerting.external_url,
            runbook_url=self.alerting.runbook_url,
        )
        receivers = self._receivers(connection, route, incident_id, known["severity"])
        due_at = now if raised_from is not None else gathered.due_at
        incidents.add_event(connection, incident_id, transition, document, receivers, now, due_at)
        take_place(connection, gathered, due_at)
        recorded.transitions.append((incident_id, transition))

    def _pooled(
        self, connection: Connection, route: Route, rule: Rule, run: Run, verdict: judge.Verdict, incident_id: int
    ) -> judge.Verdict:
        """The verdict over all the runs that healed the domain, where they can be compared with one baseline."""
        opened_at, wanted = incidents.opened_at(connection, incident_id), self.alerting.resolve.runs
        run_ids = verdicts.healing_runs(connection, route.name, run.domain, rule.name, wanted, opened_at)
        if verdict.baseline_id is None or not run_ids:
            return verdict
        candidates = [runs.candidate(connection, run_id, rule.metric) for run_id in run_ids]
        reference = baselines.reference_by_id(connection, verdict.baseline_id, rule.metric)
        pooled = judge.judge_resolution(candidates, reference, _line(rule))
        return verdict if pooled.outcome is judge.Outcome.INVALID else pooled

    def _receivers(self, connection: Connection, route: Route, incident_id: int, severity: str) -> set[str]:
        """Whom this transition goes to: those routed now, and whoever was told of the incident before."""
        return receivers_for(self.alerting, route, severity) | outbox.told(connection, incident_id)

    def _approve_first(self, connection: Connection, route: Route, run: Run, run_id: int, now: datetime) -> int | None:
        wanted = route.baseline.approve_after
        if wanted is None or baselines.has_approved(connection, route.name, run.domain):
            return None
        found = baselines.first_valid_runs(connection, run_id, wanted)
        if len(found) < wanted:
            return None
        baseline_id = baselines.create_baseline(connection, found, "specwatch", now)
        why = f"routes.yaml: baseline.approve_after {wanted}"
        baselines.approve_baseline(connection, baseline_id, "specwatch", why, now)
        return baseline_id


def _outputs(connection: Connection, run: Run, verdict: judge.Verdict) -> dict[str, Any] | None:
    """How many greedy outputs of the run its baseline never saw; None when sampling or the engine does not show it."""
    if run.sampling.temperature > 0 or verdict.baseline_id is None:
        return None
    found = changes(run.samples, baselines.outputs_of(connection, verdict.baseline_id))
    return None if found is None else found.as_dict()


def _previous_identity(connection: Connection, route: Route, replica: str) -> tuple[int, Identity] | None:
    """What ran there before. A replica that was found and is new takes the place of another: a rollout is a change."""
    previous = identities.last_identity(connection, route.name, replica)
    if previous is None and isinstance(route.replicas, Discovery):
        return identities.last_identity(connection, route.name, None)
    return previous


def _is_absolute(rule: Rule) -> bool:
    return rule.below is not None


def _line(rule: Rule) -> judge.Line:
    assert rule.drop is not None, "the configuration gives every rule without a floor a drop"
    return judge.Line(rule.metric, rule.drop)


def _raised_from(found: tuple[int, life.IncidentState] | None, severity: str) -> str | None:
    """The severity the incident had before, when it is another one now."""
    return None if found is None or found[1].severity == severity else found[1].severity


def applies(rule: Rule, route: Route, domain: str) -> bool:
    """Whether alerting.yaml has this rule judge this route and domain."""
    return (
        (rule.routes is None or route.name in rule.routes)
        and (rule.domains is None or domain in rule.domains)
        and all(route.labels.get(name) == value for name, value in rule.match.items())
    )
