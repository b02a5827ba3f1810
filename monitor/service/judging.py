"""Every rule of alerting.yaml on one run: its verdicts, the trip they open, and the confirmation that decides it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.core import floors, judge
from monitor.core import incidents as life
from monitor.core.break_even import break_even
from monitor.core.leak import WINDOW, Look, judge_leak
from monitor.core.losing import SPEEDUP
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob, defer
from monitor.service.transitions import Transitions, is_absolute, line_of
from monitor.store import baselines, identities, incidents, runs, sweeps, trips, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.alerting import Alerting, Rule
    from monitor.config.routes import Route
    from monitor.core.records import Run
    from monitor.service.case import Case
    from monitor.service.discovery import Replicas

OPENED_BY_RUNS_WITHIN = timedelta(hours=1)
"""How long the runs that open an incident may have waited for their turn, besides the time between them."""
MOST_CONFIRMATIONS = 6
"""Confirmation runs queued per trip at most: two, and four more when some are invalid."""


class Judging:
    """Judges runs by the rules of `alerting`; holds no state between runs."""

    def __init__(self, alerting: Alerting, replicas: Replicas) -> None:
        self._alerting = alerting
        self._replicas = replicas
        self._transitions = Transitions(alerting)

    def judge_run(self, case: Case) -> None:
        """A verdict of each rule that applies; what trips and is news waits for two confirmation runs."""
        tripped = [
            rule
            for rule in sorted(self._alerting.rules, key=is_absolute)
            if _judges(rule, case) and self._judge(case, rule)
        ]
        if tripped and case.run.reason is not Reason.CONFIRM:
            self._trip(case, tripped)

    def confirm(self, case: Case, trip_id: int) -> None:
        """Decides the trip that the run confirms, once it has as many valid confirmations as it needs."""
        trip = trips.pending_trip(case.connection, trip_id)
        if trip is None:
            return
        confirmations = trips.valid_confirmations(case.connection, trip.id)
        if len(confirmations) < len(case.route.confirm_after):
            _wait_for_more(case, trip)
            return
        outcome = judge.Outcome.NOT_CONFIRMED
        for rule in self._severest_first(trip.rules):
            verdict = _judge_confirmation(case, rule, trip, confirmations)
            verdicts.store_verdict(case.connection, case.recorded.run_id, rule.name, verdict, case.now, trip.id)
            case.recorded.verdicts.append((rule.name, verdict))
            outcome = verdict.outcome
            if outcome is judge.Outcome.CONFIRMED:
                self._break(case, rule, verdict)
                break
        trips.decide_trip(case.connection, trip.id, outcome.value, case.now)

    def _judge(self, case: Case, rule: Rule) -> bool:
        """Stores the verdict and lets it heal the incident; True when the run trips and that is news."""
        verdict = _verdict(case, rule)
        verdicts.store_verdict(case.connection, case.recorded.run_id, rule.name, verdict, case.now)
        case.recorded.verdicts.append((rule.name, verdict))
        found = incidents.open_incident(case.connection, case.route.name)
        state = life.IncidentState() if found is None else self._heal(case, rule, verdict, found)
        if life.covers(state, case.run.domain, rule.severity, absolute=is_absolute(rule)):
            return False
        if verdict.outcome is judge.Outcome.CONFIRMED:  # a leak has accumulated over runs: no others are asked for
            self._break(case, rule, verdict)
        return verdict.outcome is judge.Outcome.TRIPPED

    def _heal(
        self, case: Case, rule: Rule, verdict: judge.Verdict, found: tuple[int, life.IncidentState]
    ) -> life.IncidentState:
        """The open incident after this verdict."""
        domain, wanted = case.run.domain, self._alerting.resolve.runs
        state = self._inherited(found[1], domain, rule)
        ill = [] if rule.leak else self._ill_elsewhere(case, rule, found[0])
        state, transition = life.on_judged(state, domain, rule.name, verdict, wanted, case.now, bool(ill))
        if ill and domain in state.domains and state.domains[domain].well_runs >= wanted:
            key = f"heal {found[0]} {case.recorded.run_id}"
            defer(case.connection, ProbeJob(key, case.route.name, domain, ill[0], Reason.CONFIRM))
        self._transitions.move(case, rule, verdict, found, (state, transition))
        return state

    def _ill_elsewhere(self, case: Case, rule: Rule, incident_id: int) -> list[str]:
        """The route's other replicas that were below the resolve line when last judged: one well replica heals none."""
        others = set(self._replicas.known(case.route)) - {case.run.replica}
        if not others:
            return []
        opened_at = incidents.opened_at(case.connection, incident_id)
        since = opened_at - case.route.confirm_after[1] - OPENED_BY_RUNS_WITHIN
        ill = verdicts.ill_replicas(case.connection, case.route.name, case.run.domain, rule.name, since)
        return [replica for replica in ill if replica in others]

    def _inherited(self, state: life.IncidentState, domain: str, rule: Rule) -> life.IncidentState:
        """A domain broken by a rule that alerting.yaml has no more would never heal: this rule takes its place."""
        broken = state.domains.get(domain)
        if broken is None or any(known.name == broken.rule for known in self._alerting.rules):
            return state
        return state.with_broken(domain, replace(broken, rule=rule.name))

    def _trip(self, case: Case, rules: list[Rule]) -> None:
        """Two confirmation runs serve every rule that the run tripped."""
        connection, route, run = case.connection, case.route, case.run
        baseline_id = next((v.baseline_id for _, v in case.recorded.verdicts if v.baseline_id is not None), None)
        names = [rule.name for rule in rules]
        trip_id = trips.open_trip(
            connection, route.name, run.domain, names, case.recorded.run_id, baseline_id, case.now
        )
        if trip_id is None:
            return
        for number, delay in enumerate(route.confirm_after):
            _queue_confirmation(connection, run, trip_id, number, run.finished_at + delay)
        others = [replica for replica in self._replicas.known(route) if replica != run.replica]
        if others:
            # Without it the first alert could not say whether the other replicas are well.
            replica = others[trip_id % len(others)]
            beside = ProbeJob(f"beside {trip_id}", route.name, run.domain, replica, Reason.CONFIRM)
            defer(connection, beside, run.finished_at + route.confirm_after[0])

    def _severest_first(self, names: tuple[str, ...]) -> list[Rule]:
        """The trip's rules that are still configured: the severest that is confirmed is the one to tell."""
        rules = [rule for rule in self._alerting.rules if rule.name in names]
        return sorted(
            rules, key=lambda rule: (-life.SEVERITIES.index(rule.severity), not is_absolute(rule), -(rule.drop or 0.0))
        )

    def _break(self, case: Case, rule: Rule, verdict: judge.Verdict) -> None:
        found = incidents.open_incident(case.connection, case.route.name) or self._ended_lately(case, rule)
        state = life.IncidentState() if found is None else found[1]
        told = (case.run.domain, rule.name, rule.severity, verdict, case.now)
        moved = life.on_confirmed(state, *told, absolute=is_absolute(rule))
        self._transitions.move(case, rule, verdict, found, moved)

    def _ended_lately(self, case: Case, rule: Rule) -> tuple[int, life.IncidentState] | None:
        """The incident that a drop by this rule reopens."""
        found, within = incidents.last_resolved(case.connection, case.route.name), self._alerting.reopen_within
        if found is None or within is None:
            return None
        incident_id, state, resolved_at = found
        return (incident_id, state) if life.may_reopen(state, rule.severity, resolved_at, case.now, within) else None


def _verdict(case: Case, rule: Rule) -> judge.Verdict:
    """An absolute rule does not call a run well that a rule with a drop, judged before it, trips."""
    run_id = case.recorded.run_id
    if rule.below is not None:
        verdict = floors.judge_floor(*_held(case, rule, run_id))
        fallen = any(other.outcome is judge.Outcome.TRIPPED for _, other in case.recorded.verdicts)
        return replace(verdict, above_resolve_line=False) if fallen and verdict.above_resolve_line else verdict
    candidate = runs.candidate(case.connection, run_id, rule.metric, case.run.samples)
    reference = baselines.reference(
        case.connection, case.route.name, case.run.domain, rule.metric, candidate.comparability
    )
    if rule.leak:
        return judge_leak(candidate, reference, rule.metric, _earlier_looks(case, rule, reference))
    return judge.judge_run(candidate, reference, line_of(rule))


def _earlier_looks(case: Case, rule: Rule, reference: judge.Reference | None) -> list[Look]:
    if reference is None:
        return []
    where = (case.route.name, case.run.domain, rule.name)
    return verdicts.looks(case.connection, *where, reference.id, case.recorded.run_id, WINDOW)


def _held(case: Case, rule: Rule, run_id: int) -> tuple[floors.PooledFigure, floors.Floor]:
    """A run of the case's route, and what an absolute rule holds it against: a share, or its break-even."""
    connection, route = case.connection, case.route
    figure = runs.pooled_figure(connection, run_id, rule.metric)
    if isinstance(rule.below, float):
        return figure, floors.share_floor(rule.below)
    run = runs.stored_run(connection, run_id)
    identity = identities.identity_of(connection, run["identity_id"])
    found = break_even(run, identity, sweeps.list_sweeps(connection, route.name), route.gpus)
    return figure, floors.break_even_floor(found)


def _judge_confirmation(case: Case, rule: Rule, trip: trips.Trip, confirmations: Sequence[int]) -> judge.Verdict:
    if rule.below is not None:
        held = [_held(case, rule, run_id) for run_id in (trip.run_id, *confirmations)]
        return floors.confirm_floor([run for run, _ in held], [floor for _, floor in held])
    connection = case.connection
    assert trip.baseline_id is not None, "a rule with a drop trips only against a baseline"
    return judge.judge_confirmation(
        runs.candidate(connection, trip.run_id, rule.metric),
        [runs.candidate(connection, run_id, rule.metric) for run_id in confirmations],
        baselines.reference_by_id(connection, trip.baseline_id, rule.metric),
        line_of(rule),
    )


def _queue_confirmation(connection: Connection, run: Run, trip_id: int, number: int, at: datetime) -> None:
    key = f"confirm {trip_id} {number}"
    defer(connection, ProbeJob(key, run.route, run.domain, run.replica, Reason.CONFIRM, trip_id=trip_id), at)
    trips.count_confirmation(connection, trip_id, 1)


def _wait_for_more(case: Case, trip: trips.Trip) -> None:
    missing = trip.confirmations_queued - trips.confirmations_done(case.connection, trip.id)
    if case.run.invalid_reason is None or missing > 1:
        return
    if trip.confirmations_queued >= MOST_CONFIRMATIONS:
        trips.decide_trip(case.connection, trip.id, "expired", case.now)
        return
    gap = case.route.confirm_after[1] - case.route.confirm_after[0]
    _queue_confirmation(case.connection, case.run, trip.id, trip.confirmations_queued, case.now + gap)


def _judges(rule: Rule, case: Case) -> bool:
    """Runs minutes after a trip share its disturbance: a leak would take one for three. Speedup is of no run."""
    seen = not (rule.leak and case.run.reason is Reason.CONFIRM)
    return seen and rule.metric != SPEEDUP and applies(rule, case.route, case.run.domain)


def applies(rule: Rule, route: Route, domain: str) -> bool:
    """Whether alerting.yaml has this rule judge this route and domain."""
    return (
        (rule.routes is None or route.name in rule.routes)
        and (rule.domains is None or domain in rule.domains)
        and all(route.labels.get(name) == value for name, value in rule.match.items())
    )
