"""The schema: every table, in one metadata. `migrations/` makes them, and a test holds both equal.

Whoever needs a table imports it from here, so that the metadata is whole whichever comes first.
"""

from __future__ import annotations

from monitor.store.bump_tables import announcements, bump_verdicts, bumps
from monitor.store.gate_tables import gate_waivers, gates
from monitor.store.incident_tables import deliveries, incident_acts, incident_events, incidents, silences
from monitor.store.judging_tables import baseline_approvals, baselines, trips, verdicts
from monitor.store.measurement_tables import organic, reference_lines, speedups, sweeps
from monitor.store.metadata import metadata
from monitor.store.run_tables import SERVING, identities, runs, samples, slots

__all__ = [
    "SERVING",
    "announcements",
    "baseline_approvals",
    "baselines",
    "bump_verdicts",
    "bumps",
    "deliveries",
    "gate_waivers",
    "gates",
    "identities",
    "incident_acts",
    "incident_events",
    "incidents",
    "metadata",
    "organic",
    "reference_lines",
    "runs",
    "samples",
    "silences",
    "slots",
    "speedups",
    "sweeps",
    "trips",
    "verdicts",
]
