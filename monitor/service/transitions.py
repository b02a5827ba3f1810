"""What an incident's transition is told with: a document, written in the transaction of its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from monitor.alerting.message import incident_event
from monitor.alerting.routing import receivers_for
from monitor.config.alerting import runbook_url
from monitor.core import incidents as life
from monitor.core import judge
from monitor.core.cost import cost_per_day
from monitor.core.explanation import explained
from monitor.core.leak import ANY_DROP
from monitor.store import baselines, identities, incident_events, incidents, outbox, runs, verdicts
from monitor.store.evidence import evidence
from monitor.store.gathering import Gathering, gathering, take_place
from monitor.store.replicas import replica_difference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from monitor.config.alerting import Alerting, Rule
    from monitor.config.routes import Route
    from monitor.core.evidence import Evidence
    from monitor.service.case import Case


class Transitions:
    """Moves incidents on and queues what their receivers are told."""

    def __init__(self, alerting: Alerting) -> None:
        self._alerting = alerting

    def move(
        self,
        case: Case,
        rule: Rule,
        verdict: judge.Verdict,
        found: tuple[int, life.IncidentState] | None,
        moved: tuple[life.IncidentState, life.Transition | None],
    ) -> None:
        """Stores the incident as `moved` when it is not as `found`; a transition is queued for everyone routed."""
        connection, now = case.connection, case.now
        state, transition = moved
        if found is not None and state == found[1] and transition is None:
            return
        known_id = None if found is None else found[0]
        ended_at = None if known_id is None else incidents.resolved_at(connection, known_id)
        incident_id = incidents.save_state(connection, case.route.name, known_id, state, now)
        if transition is None:
            return
        severity = (incidents.get_incident(connection, incident_id) or {})["severity"]
        raised_now = raised_from(found, severity)
        gathered = Gathering(now)
        if transition is life.Transition.UPDATED:
            gathered = gathering(connection, incident_id, now, self._alerting.gather_for)
        raised = raised_now or gathered.raised_from
        document = self._document(case, rule, verdict, (incident_id, state), transition, raised, gathered, ended_at)
        receivers = receivers_for(self._alerting, case.route, severity) | outbox.told(connection, incident_id)
        due_at = now if raised_now is not None else gathered.due_at
        incident_events.add_event(connection, incident_id, transition, document, receivers, now, due_at)
        take_place(connection, gathered, due_at)
        case.recorded.transitions.append((incident_id, transition))

    def _document(
        self,
        case: Case,
        rule: Rule,
        verdict: judge.Verdict,
        incident: tuple[int, life.IncidentState],
        transition: life.Transition,
        raised_from: str | None,
        gathered: Gathering,
        ended_at: datetime | None,
    ) -> dict[str, Any]:
        connection, route, run = case.connection, case.route, case.run
        incident_id, state = incident
        resolved = transition is life.Transition.RESOLVED
        if resolved:
            verdict = self._pooled(case, rule, verdict, incident_id)
        known = incidents.get_incident(connection, incident_id) or {}
        first_bad = None if resolved else verdict.first_run_id
        found = None if resolved else self._evidence(case, rule, verdict)
        return incident_event(
            incident_id=incident_id,
            transition=transition,
            route=route.name,
            labels=route.labels,
            severity=known["severity"],
            raised_from=raised_from,
            domain=run.domain,
            rule=rule.name,
            verdict=verdict,
            replica=run.replica,
            source=runs.source_of(run),
            since=runs.run_started_at(connection, verdict.first_run_id),
            joins=gathered.joined,
            joins_causes=gathered.causes,
            ended_at=ended_at,
            cost_per_day=None if resolved else _cost_per_day(route, verdict),
            opened_at=incidents.opened_at(connection, incident_id),
            reopened_at=case.now.isoformat() if transition is life.Transition.REOPENED else known["reopened_at"],
            now=case.now,
            broken_domains=list(state.domains),
            involved=known["domains"],
            last_good_run=verdicts.last_good_run(connection, route.name, run.domain, rule.name, first_bad),
            baseline_runs=baselines.runs_of(connection, verdict.baseline_id) if verdict.baseline_id else None,
            outputs=None if found is None or found.outputs is None else found.outputs.as_dict(),
            explained=None if found is None else explained(found, route.gpu_price_per_hour, route.gpus),
            last_bump=identities.last_bump(connection, route.name),
            other_changes=verdicts.last_changes(connection, route.name, rule.name),
            route_domains=route.domains,
            judged_domains=() if is_absolute(rule) else route.domains,
            replica_difference=replica_difference(connection, route.name, run.domain, case.recorded.run_id)
            if found is None
            else found.replica_difference,
            external_url=self._alerting.external_url,
            runbook_urls=self._runbook_urls(case, rule, [known["domains"][name]["rule"] for name in gathered.joined]),
        )

    def _runbook_urls(self, case: Case, rule: Rule, joined: Sequence[str]) -> list[str]:
        """Of the rule, then of those that broke the domains that it joins, each once."""
        known = {one.name: one for one in self._alerting.rules}
        urls = [runbook_url(self._alerting, case.route, known.get(name)) for name in (rule.name, *joined)]
        return list(dict.fromkeys(url for url in urls if url is not None))

    def _evidence(self, case: Case, rule: Rule, verdict: judge.Verdict) -> Evidence:
        change = None if verdict.estimate is None else verdict.estimate.change
        return evidence(case.connection, verdict.run_ids, verdict.baseline_id, change, rule.metric)

    def _pooled(self, case: Case, rule: Rule, verdict: judge.Verdict, incident_id: int) -> judge.Verdict:
        """The verdict over all the runs that healed the domain, where they can be compared with one baseline."""
        connection, route, domain = case.connection, case.route.name, case.run.domain
        opened_at, wanted = incidents.opened_at(connection, incident_id), self._alerting.resolve.runs
        run_ids = verdicts.healing_runs(connection, route, domain, rule.name, wanted, opened_at)
        if verdict.baseline_id is None or not run_ids:
            return verdict
        candidates = [runs.candidate(connection, run_id, rule.metric) for run_id in run_ids]
        reference = baselines.reference_by_id(connection, verdict.baseline_id, rule.metric)
        pooled = judge.judge_resolution(candidates, reference, line_of(rule))
        if pooled.outcome is judge.Outcome.INVALID:
            return verdict
        return replace(pooled, drop=rule.drop, accumulated=verdict.accumulated)


def is_absolute(rule: Rule) -> bool:
    """Whether the rule has a floor, and needs no baseline."""
    return rule.below is not None


def _cost_per_day(route: Route, verdict: judge.Verdict) -> float | None:
    """Of speculation that does not break even; modelled, as its break-even is."""
    if verdict.break_even is None or not verdict.value or not verdict.below:
        return None
    return cost_per_day(verdict.value / verdict.below, route.gpu_price_per_hour, route.gpus)


def line_of(rule: Rule) -> judge.Line:
    """The lines of a rule with a drop; those of a leak only pool runs, and decide nothing."""
    return judge.Line(rule.metric, ANY_DROP if rule.drop is None else rule.drop)


def raised_from(found: tuple[int, life.IncidentState] | None, severity: str) -> str | None:
    """The severity the incident had before, when it is another one now."""
    return None if found is None or found[1].severity == severity else found[1].severity
