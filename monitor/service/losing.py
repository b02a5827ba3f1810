"""Rules on measured speedup: each measurement is judged in the transaction that stores it.

A verdict of each rule that applies; the first that trips has two more measured soon; three in a row open the incident,
of kind `speedup`, and its domains heal by measurements that are well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.alerting.losing import speedup_event
from monitor.alerting.routing import receivers_for
from monitor.config.alerting import runbook_url
from monitor.core import incidents as life
from monitor.core import losing
from monitor.core.cost import cost_per_day
from monitor.core.judge import Outcome
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob, defer
from monitor.service.judging import applies
from monitor.service.transitions import raised_from
from monitor.store import approvals, incident_events, incidents, outbox, slots, speedups, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.alerting import Alerting, Rule
    from monitor.config.routes import Route
    from monitor.core.judge import Verdict
    from monitor.core.losing import Measurement
    from monitor.core.speedup import Speedup
    from monitor.service.discovery import Replicas


class SpeedupJudging:
    """Judges measured speedups by the rules of `alerting`; holds no state between them."""

    def __init__(self, alerting: Alerting, replicas: Replicas) -> None:
        self._alerting = alerting
        self._replicas = replicas

    def judge(self, connection: Connection, route: Route, speedup_id: int, found: Speedup, now: datetime) -> None:
        """To be called within the transaction that stored the measurement."""
        rules = [r for r in self._alerting.rules if r.metric == losing.SPEEDUP and applies(r, route, found.domain)]
        if not rules:
            return
        slots.lock_route(connection, route.name)
        asks = [self._judge(connection, route, rule, speedup_id, found, now) for rule in severest_first(rules)]
        if any(asks):
            _measure_again(connection, route, speedup_id, found)

    def _judge(
        self, connection: Connection, route: Route, rule: Rule, speedup_id: int, found: Speedup, now: datetime
    ) -> bool:
        """Stores the verdict and what follows from it; True when it is the first to trip, and that is news."""
        measured = speedups.measurement(speedup_id, found.as_dict())
        earlier = speedups.earlier_measurements(connection, speedup_id, losing.CONFIRMATIONS)
        verdict = _verdict(connection, rule, found, measured, earlier)
        verdicts.store_speedup_verdict(connection, speedup_id, rule.name, verdict, now)
        known = incidents.open_incident(connection, route.name, incidents.SPEEDUP)
        before = life.IncidentState() if known is None else known[1]
        if verdict.outcome is Outcome.CONFIRMED:
            moved = life.on_confirmed(before, found.domain, rule.name, rule.severity, verdict, now)
        else:
            ill = self._ill_elsewhere(connection, route, rule, found)
            moved = life.on_judged(before, found.domain, rule.name, verdict, self._alerting.resolve.runs, now, ill)
        self._move(connection, route, rule, verdict, found, known, moved, now)
        if verdict.outcome is not Outcome.TRIPPED or life.covers(before, found.domain, rule.severity):
            return False
        return not earlier or not _tripped_before(connection, rule, earlier[-1])

    def _ill_elsewhere(self, connection: Connection, route: Route, rule: Rule, found: Speedup) -> bool:
        """Whether another of the route's replicas was below the resolve line when last measured."""
        ill = verdicts.ill_when_measured(connection, route.name, found.domain, rule.name)
        return bool(set(ill) & set(self._replicas.known(route)) - {found.replica})

    def _move(
        self,
        connection: Connection,
        route: Route,
        rule: Rule,
        verdict: Verdict,
        found: Speedup,
        known: tuple[int, life.IncidentState] | None,
        moved: tuple[life.IncidentState, life.Transition | None],
        now: datetime,
    ) -> None:
        """Stores the incident as `moved`; a transition is queued for everyone routed."""
        state, transition = moved
        if transition is None and (known is None or state == known[1]):
            return
        incident_id = None if known is None else known[0]
        incident_id = incidents.save_state(connection, route.name, incident_id, state, now, incidents.SPEEDUP)
        if transition is None:
            return
        stored = incidents.get_incident(connection, incident_id) or {}
        document = speedup_event(
            incident_id=incident_id,
            transition=transition,
            labels=route.labels,
            severity=stored["severity"],
            raised_from=raised_from(known, stored["severity"]),
            rule=rule.name,
            verdict=verdict,
            measured=found,
            cost_per_day=cost_per_day(verdict.value or 1.0, route.gpu_price_per_hour, route.gpus),
            since=speedups.started_at(connection, verdict.speedup_ids[0]),
            opened_at=incidents.opened_at(connection, incident_id),
            now=now,
            broken_domains=list(state.domains),
            involved=stored["domains"],
            external_url=self._alerting.external_url,
            runbook_url=runbook_url(self._alerting, route, rule),
        )
        receivers = receivers_for(self._alerting, route, stored["severity"]) | outbox.told(connection, incident_id)
        incident_events.add_event(connection, incident_id, transition, document, receivers, now)


def severest_first(rules: Sequence[Rule]) -> list[Rule]:
    """What is confirmed first is told; milder rules then have nothing to add."""
    return sorted(rules, key=lambda rule: -life.SEVERITIES.index(rule.severity))


def _verdict(
    connection: Connection, rule: Rule, found: Speedup, measured: Measurement, earlier: Sequence[Measurement]
) -> Verdict:
    if isinstance(rule.below, float):
        return losing.judge_losing(measured, rule.below, earlier)
    assert rule.drop is not None, "the configuration gives a rule on speedup a floor or a drop"
    since = approvals.approved_at(connection, found.route, found.domain)
    reference = [] if since is None else speedups.first_measurements(connection, measured.id, since, losing.REFERENCE)
    return losing.judge_loss(measured, rule.drop, reference, earlier)


def _tripped_before(connection: Connection, rule: Rule, before: Measurement) -> bool:
    known = verdicts.verdicts_of_speedups(connection, [before.id]).get(before.id, [])
    return any(verdict["rule"] == rule.name and verdict["outcome"] == Outcome.TRIPPED.value for verdict in known)


def _measure_again(connection: Connection, route: Route, speedup_id: int, found: Speedup) -> None:
    for number, delay in enumerate(route.confirm_after):
        key = f"confirm speedup {speedup_id} {number}"
        job = ProbeJob(key, route.name, found.domain, found.replica, Reason.SPEEDUP)
        defer(connection, job, found.finished_at + delay)
