"""Forgetting a route: every row of it, for the demo's simulated routes only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, func, or_, select

from monitor.store.queue import forget_jobs
from monitor.store.schema import (
    announcements,
    baseline_approvals,
    baselines,
    bump_verdicts,
    bumps,
    deliveries,
    gate_waivers,
    gates,
    incident_acts,
    incident_events,
    incidents,
    runs,
    samples,
    silences,
    slots,
    speedups,
    trips,
    verdicts,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection


def forget_route(connection: Connection, route: str) -> None:
    """Deletes everything recorded of the route, and its jobs that nobody is working on."""
    connection.execute(select(func.set_config("specwatch.forget_route", route, True)))  # else baselines are immutable
    forget_jobs(connection, route)
    its_runs = select(runs.c.id).where(runs.c.route == route)
    its_incidents = select(incidents.c.id).where(incidents.c.route == route)
    its_baselines = select(baselines.c.id).where(baselines.c.route == route)
    its_verdicts = select(bump_verdicts.c.id).where(bump_verdicts.c.route == route)
    its_gates = select(gates.c.id).where(gates.c.route == route)
    its_events = select(incident_events.c.id).where(
        or_(incident_events.c.incident_id.in_(its_incidents), incident_events.c.bump_verdict_id.in_(its_verdicts))
    )
    connection.execute(delete(deliveries).where(deliveries.c.event_id.in_(its_events)))
    connection.execute(delete(incident_events).where(incident_events.c.id.in_(its_events)))
    connection.execute(delete(incident_acts).where(incident_acts.c.incident_id.in_(its_incidents)))
    connection.execute(delete(verdicts).where(verdicts.c.run_id.in_(its_runs)))  # those on speedups go with these
    connection.execute(delete(samples).where(samples.c.run_id.in_(its_runs)))
    connection.execute(delete(baseline_approvals).where(baseline_approvals.c.baseline_id.in_(its_baselines)))
    connection.execute(delete(gate_waivers).where(gate_waivers.c.gate_id.in_(its_gates)))
    for table in (
        *(trips, incidents, silences, baselines, bumps, bump_verdicts, announcements, slots, speedups, gates, runs),
    ):
        connection.execute(delete(table).where(table.c.route == route))
