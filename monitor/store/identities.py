"""Identities and bumps: what was running, kept once, and when it was seen to change."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.core.records import Identity
from monitor.store.schema import SERVING, bumps, identities, runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row


REMEMBERED_RUNS = 20
"""Runs of a replica looked back at for what the latest one could not see of its identity."""


def store_identity(connection: Connection, identity: Identity, seen_at: datetime) -> int:
    document = identity.as_dict()
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    statement = upsert(identities).values(hash=digest, document=document, first_seen_at=seen_at)
    connection.execute(statement.on_conflict_do_nothing(index_elements=["hash"]))
    return connection.execute(select(identities.c.id).where(identities.c.hash == digest)).scalar_one()


def identity_of(connection: Connection, identity_id: int) -> dict[str, Any]:
    """The document of a stored identity."""
    return connection.execute(select(identities.c.document).where(identities.c.id == identity_id)).scalar_one()


def identities_of(connection: Connection, run_ids: Sequence[int]) -> dict[int, Identity]:
    """run id → what was running."""
    statement = select(runs.c.id, identities.c.document).join(identities, identities.c.id == runs.c.identity_id)
    rows = connection.execute(statement.where(runs.c.id.in_(run_ids)))
    return {row.id: Identity.from_dict(row.document) for row in rows}


def last_identity(connection: Connection, route: str, replica: str | None) -> tuple[int, Identity] | None:
    """The identity of this replica's latest run that measured anything, and its row; None: of any replica's.

    What that run could not see is taken from the runs before it, so that a version unknown once is not a change missed.
    """
    statement = (
        select(identities.c.id, identities.c.document)
        .join(runs, runs.c.identity_id == identities.c.id)
        .where(runs.c.route == route, runs.c.prompts_valid > 0, SERVING)
        .order_by(runs.c.id.desc())
        .limit(REMEMBERED_RUNS)
    )
    if replica is not None:
        statement = statement.where(runs.c.replica == replica)
    rows = connection.execute(statement).all()
    if not rows:
        return None
    known: dict[str, Any] = {}
    for row in rows:
        known |= {name: value for name, value in row.document.items() if known.get(name) is None}
    return rows[0].id, Identity.from_dict(known)


def store_bump(
    connection: Connection,
    route: str,
    replica: str,
    from_id: int,
    to_id: int,
    changes: Mapping[str, tuple[Any, Any]],
    noticed_at: datetime,
    run_id: int,
) -> int:
    """Records that this run was the first to see the replica changed; returns the bump's id."""
    values = {
        "route": route,
        "replica": replica,
        "run_id": run_id,
        "from_identity_id": from_id,
        "to_identity_id": to_id,
        "changes": {name: list(pair) for name, pair in changes.items()},
        "noticed_by": "monitor",
        "noticed_at": noticed_at,
    }
    return connection.execute(insert(bumps).values(values).returning(bumps.c.id)).scalar_one()


def last_bump(connection: Connection, route: str) -> dict[str, Any] | None:
    statement = select(bumps).where(bumps.c.route == route).order_by(bumps.c.id.desc()).limit(1)
    row = connection.execute(statement).one_or_none()
    return None if row is None else bump_document(row)


def bump_document(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "route": row.route,
        "replica": row.replica,
        "noticed_at": row.noticed_at.isoformat(),
        "changes": row.changes,
    }
