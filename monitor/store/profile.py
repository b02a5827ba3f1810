"""What a speculation profile is made of: the valid runs that are like the latest one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from monitor.exchange.profile import PooledRun
from monitor.store.schema import SERVING, identities, runs

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row


@dataclass(frozen=True)
class ProfileRuns:
    """Runs of one identity, source, K, concurrency and sampling, and under what they were measured."""

    runs: tuple[PooledRun, ...]
    identity: dict[str, Any]
    k: int | None
    conditions: dict[str, Any]


def profile_runs(
    connection: Connection,
    route: str,
    domain: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> ProfileRuns | None:
    """The route's valid runs in the window that may be pooled with its latest; None when there is none with steps."""
    c = runs.c
    asked = [c.route == route, c.valid, c.steps > 0, SERVING]
    asked += [c.domain == domain] if domain is not None else []
    asked += [c.started_at >= since] if since is not None else []
    asked += [c.started_at < until] if until is not None else []
    latest = connection.execute(select(runs).where(*asked).order_by(c.id.desc()).limit(1)).one_or_none()
    if latest is None:
        return None
    alike = [getattr(c, name) == getattr(latest, name) for name in ("identity_id", "source", "concurrency", "sampling")]
    alike.append(c.k.is_not_distinct_from(latest.k))
    found = connection.execute(select(runs).where(*asked, *alike).order_by(c.id)).all()
    identity = connection.execute(select(identities.c.document).where(identities.c.id == latest.identity_id))
    return ProfileRuns(tuple(map(_pooled, found)), identity.scalar_one(), latest.k, _conditions(found))


def _pooled(row: Row[Any]) -> PooledRun:
    """Survival is a share of whole steps, so the counts come back exactly."""
    survivors = tuple(round(share * row.steps) for share in row.survival)
    return PooledRun(row.domain, row.steps, survivors, row.acceptance_length_prompt_mean, row.prompts_valid)


def _conditions(found: Any) -> dict[str, Any]:
    last = found[-1]
    return {
        "dataset": "specwatch prompt sets",
        "prompt_set_hashes": {row.domain: row.prompt_set_hash for row in found},
        "source": last.source,
        "concurrency": last.concurrency,
        "sampling": last.sampling,
        "run_ids": [row.id for row in found],
        "first_at": found[0].started_at.isoformat(),
        "last_at": last.started_at.isoformat(),
    }
