"""What happened to a route between its runs: bumps noticed, incidents moved, baselines approved."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from monitor.core.incidents import Transition
from monitor.store.schema import (
    announcements,
    baseline_approvals,
    baselines,
    bump_verdicts,
    bumps,
    incident_events,
    incidents,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Row

    Rows = list[dict[str, Any]]
    Marks = Iterator[tuple[dict[str, Any], dict[str, Any]]]


def mark_events(connection: Connection, route: str, rows: Rows, since: datetime | None, until: datetime | None) -> None:
    """Gives each row of history by run its `events`, oldest first.

    A bump is at the first run shown that has the new identity, an incident's transition at the run that moved it, an
    approval at the last run of its domain before it, as is the end of an incident that no run ended. What belongs to no
    row shown is left out.
    """
    for row in rows:
        row["events"] = []
    found = [
        *_bumps(connection, route, rows, since, until),
        *_transitions(connection, route, rows, since, until),
        *_approvals(connection, route, rows, since, until),
    ]
    for row, event in sorted(found, key=lambda pair: pair[1]["happened_at"]):
        row["events"].append(event)


def _bumps(connection: Connection, route: str, rows: Rows, *window: datetime | None) -> Marks:
    statement = (
        select(bumps, announcements.c.announced_by)
        .outerjoin(bump_verdicts, bump_verdicts.c.id == bumps.c.verdict_id)
        .outerjoin(announcements, announcements.c.id == bump_verdicts.c.announcement_id)
        .where(bumps.c.route == route, *_between(bumps.c.noticed_at, window))
    )
    for bump in connection.execute(statement):
        its_own = (r for r in rows if r["bucket"] >= bump.run_id and r["identity_id"] == bump.to_identity_id)
        first = min(its_own, key=lambda row: row["bucket"], default=None)
        if first is not None:
            event = _event("bump", bump.id, bump.noticed_at, _bump_text(bump))
            more = {"replica": bump.replica, "changes": bump.changes, "announced_by": bump.announced_by}
            yield first, {**event, **more}


def _bump_text(bump: Row[Any]) -> str:
    """What is new; of one noticed by an earlier version, which knew no announcements, without who announced it."""
    unannounced = "unannounced " if bump.verdict_id is not None and bump.announced_by is None else ""
    by = f", announced by {bump.announced_by}" if bump.announced_by is not None else ""
    new = ", ".join(f"{name} → {after}" for name, (_, after) in bump.changes.items())
    return f"{unannounced}bump: {new}{by}"


def _transitions(connection: Connection, route: str, rows: Rows, *window: datetime | None) -> Marks:
    by_run = {row["bucket"]: row for row in rows}
    statement = (
        select(incident_events)
        .join(incidents, incidents.c.id == incident_events.c.incident_id)
        .where(incidents.c.route == route, incident_events.c.transition != Transition.ACKNOWLEDGED.value)
        .where(*_between(incident_events.c.happened_at, window))
    )
    for moved in connection.execute(statement):
        verdict = moved.document["verdict"]  # None where the configuration moved it, not a run
        row = by_run.get(verdict["run_ids"][-1]) if verdict else _last_before(rows, moved.happened_at)
        if row is not None:
            text = f"incident {moved.incident_id} {moved.transition}"
            yield row, _event("incident", moved.incident_id, moved.happened_at, text)


def _approvals(connection: Connection, route: str, rows: Rows, *window: datetime | None) -> Marks:
    approval = baseline_approvals.c
    statement = (
        select(baselines.c.id, baselines.c.domain, approval.approved_at)
        .join(baseline_approvals, approval.baseline_id == baselines.c.id)
        .where(baselines.c.route == route, *_between(approval.approved_at, window))
    )
    for approved in connection.execute(statement):
        row = _last_before([row for row in rows if row["domain"] == approved.domain], approved.approved_at)
        if row is not None:
            yield row, _event("baseline", approved.id, approved.approved_at, f"baseline {approved.id} approved")


def _last_before(rows: Rows, at: datetime) -> dict[str, Any] | None:
    before = [row for row in rows if datetime.fromisoformat(row["first_at"]) <= at]
    return before[-1] if before else None


def _between(time: ColumnElement[datetime], window: Sequence[datetime | None]) -> list[ColumnElement[bool]]:
    since, until = window
    return [*([] if since is None else [time >= since]), *([] if until is None else [time < until])]


def _event(kind: str, number: int, happened_at: datetime, text: str) -> dict[str, Any]:
    """The JSON shape of what happened; `text` is a few words for a table."""
    return {"kind": kind, "id": number, "happened_at": happened_at.isoformat(), "text": text}
