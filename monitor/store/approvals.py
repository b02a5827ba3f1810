"""Approvals: which baseline is in force, since when, and who said so; the last one decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select

from monitor.errors import UsageError
from monitor.store.schema import baseline_approvals, baselines

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Table


def approve_baseline(
    connection: Connection, baseline_id: int, approved_by: str, why: str, approved_at: datetime
) -> Row[Any] | None:
    """From now on runs are judged against this baseline. Raises UsageError when it does not exist.

    Returns None, or, writing nothing, the approval (`approved_by`, `approved_at`) that already is in force. One that a
    later approval replaced is no longer: approving it again brings the baseline back.
    """
    row = connection.execute(select(baselines).where(baselines.c.id == baseline_id)).one_or_none()
    if row is None:
        raise UsageError(f"there is no baseline {baseline_id}; see 'specwatch baseline list'")
    standing = _approval_in_force(connection, row)
    if standing is not None and standing.baseline_id == baseline_id:
        return standing
    values = {"baseline_id": baseline_id, "approved_by": approved_by, "why": why, "approved_at": approved_at}
    connection.execute(insert(baseline_approvals).values(values))
    return None


def _approval_in_force(connection: Connection, like: Row[Any]) -> Row[Any] | None:
    """The last approval among the baselines that judge the same runs as this one."""
    statement = (
        select(baseline_approvals)
        .join(baselines, baselines.c.id == baseline_approvals.c.baseline_id)
        .where(*comparable_with(baselines, like))
        .order_by(baseline_approvals.c.id.desc())
        .limit(1)
    )
    return connection.execute(statement).one_or_none()


def has_approved(connection: Connection, route: str, domain: str) -> bool:
    statement = approved_baselines().where(baselines.c.route == route, baselines.c.domain == domain).limit(1)
    return connection.execute(statement).first() is not None


def approved_at(connection: Connection, route: str, domain: str) -> datetime | None:
    """When the domain's baseline was last approved."""
    statement = (
        select(func.max(baseline_approvals.c.approved_at))
        .join(baselines, baselines.c.id == baseline_approvals.c.baseline_id)
        .where(baselines.c.route == route, baselines.c.domain == domain)
    )
    return connection.execute(statement).scalar_one_or_none()


def in_force(connection: Connection, route: str) -> dict[str, int]:
    """Domain → the baseline that was approved last."""
    rows = connection.execute(approved_baselines().where(baselines.c.route == route)).all()
    return {row.domain: row.id for row in reversed(rows)}


def generations(connection: Connection, route: str) -> dict[str, list[int]]:
    """Domain → the baselines that were ever approved, first approval first: generation 1 is the first."""
    statement = (
        select(baselines.c.domain, baselines.c.id)
        .join(baseline_approvals, baseline_approvals.c.baseline_id == baselines.c.id)
        .where(baselines.c.route == route)
        .group_by(baselines.c.id)
        .order_by(func.min(baseline_approvals.c.id))
    )
    found: dict[str, list[int]] = {}
    for row in connection.execute(statement):
        found.setdefault(row.domain, []).append(row.id)
    return found


def approved_baselines() -> Any:
    """Baselines, the last approved one first; one that was approved twice is there twice."""
    return (
        select(baselines)
        .join(baseline_approvals, baseline_approvals.c.baseline_id == baselines.c.id)
        .order_by(baseline_approvals.c.id.desc())
    )


def with_approval() -> Any:
    """Baselines with who approved them last, when and why; NULL where nobody has."""
    latest = (
        select(func.max(baseline_approvals.c.id).label("id"), baseline_approvals.c.baseline_id)
        .group_by(baseline_approvals.c.baseline_id)
        .subquery()
    )
    approval = select(baseline_approvals).join(latest, latest.c.id == baseline_approvals.c.id).subquery()
    columns = (baselines, approval.c.approved_by, approval.c.why, approval.c.approved_at)
    return select(*columns).outerjoin(approval, approval.c.baseline_id == baselines.c.id)


def comparable_with(table: Table, like: Row[Any]) -> list[ColumnElement[bool]]:
    """Conditions on runs or baselines: of the route and domain of this one, and comparable with it."""
    c = table.c
    return [
        c.route == like.route,
        c.domain == like.domain,
        c.prompt_set_hash == like.prompt_set_hash,
        c.source == like.source,
        c.k.is_not_distinct_from(like.k),
        c.concurrency == like.concurrency,
        c.sampling == like.sampling,
    ]
