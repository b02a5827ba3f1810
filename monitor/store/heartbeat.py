"""What tells that the monitor does its work: when domains were last probed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from monitor.store.schema import runs

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


def last_finished(connection: Connection, route: str, domain: str) -> datetime | None:
    """When the domain's latest run, valid or not, finished. Guarantee: one index entry."""
    own = select(runs.c.finished_at).where(runs.c.route == route, runs.c.domain == domain)
    return connection.execute(own.order_by(runs.c.id.desc()).limit(1)).scalar_one_or_none()
