"""What follows from a finished run, in one transaction: stored, compared, judged, told.

1. The run and its samples are written under the job's key; a second time nothing happens.
2. A changed identity is recorded as a bump and every domain of the route is probed at once (bumps.py).
3. Each rule that applies judges the run (judging.py); a trip queues two confirmation runs, a confirmation decides it.
4. Incident transitions and their deliveries are written beside the verdict that caused them (transitions.py).
5. A valid run ends the incident of a route that was not measured (stale.py).
6. A route whose policy says so gets its first baseline.
7. A bump whose last domain this run probed is told of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.core.figures import aggregate
from monitor.service.bumps import Bumps, identity_before
from monitor.service.case import Case, Recorded
from monitor.service.discovery import Replicas
from monitor.service.judging import Judging
from monitor.service.stale import end_stale
from monitor.store import approvals, baselines, runs, slots
from monitor.store.bumps import overdue_routes
from monitor.store.stale import measured

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.load import Config
    from monitor.core.records import Run
    from monitor.service.jobs import ProbeJob


class Recorder:
    """Records runs of the configured routes; holds no state between runs."""

    def __init__(self, config: Config, replicas: Replicas | None = None) -> None:
        self.routes = {route.name: route for route in config.routes}
        self.alerting = config.alerting
        replicas = replicas or Replicas(config.routes)
        self._judging = Judging(config.alerting, replicas)
        self._bumps = Bumps(config.alerting, replicas)

    def tell_overdue(self, connection: Connection, now: datetime) -> None:
        """Tells of every bump that has waited long enough for probes that did not come."""
        for name in overdue_routes(connection, now):
            if name in self.routes:
                slots.lock_route(connection, name)
                self._bumps.tell(connection, self.routes[name], now)

    def record(self, connection: Connection, job: ProbeJob, run: Run, now: datetime) -> Recorded | None:
        """All of the above; None when this job's run is stored already."""
        route = self.routes[run.route]
        slots.lock_route(connection, route.name)
        previous = identity_before(connection, route, run.replica)
        run_id = runs.store_run(connection, job.key, run, job.trip_id)
        if run_id is None:
            return None
        case = Case(connection, route, run, Recorded(run_id, aggregate(run.domain, run.samples)), now)
        if previous is not None and any(sample.valid for sample in run.samples):
            case.recorded.bump_id = self._bumps.notice(case, previous)
        self._judging.judge_run(case)
        if job.trip_id is not None:
            self._judging.confirm(case, job.trip_id)
        if run.invalid_reason is None:
            end_stale(case, self.alerting)
            case.recorded.baseline_id = _approve_first(case)
        else:
            case.recorded.measured = measured(connection, route.name, run.domain, run.replica)
        self._bumps.tell(connection, route, now)
        return case.recorded


def _approve_first(case: Case) -> int | None:
    wanted = case.route.baseline.approve_after
    if wanted is None or approvals.has_approved(case.connection, case.route.name, case.run.domain):
        return None
    found = baselines.first_valid_runs(case.connection, case.recorded.run_id, wanted)
    if len(found) < wanted:
        return None
    baseline_id = baselines.create_baseline(case.connection, found, "specwatch", case.now)
    why = f"routes.yaml: baseline.approve_after {wanted}"
    approvals.approve_baseline(case.connection, baseline_id, "specwatch", why, case.now)
    return baseline_id
