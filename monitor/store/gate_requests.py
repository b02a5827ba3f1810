"""Gates that are not over: kept before they are measured, claimed by one process at a time, ended once.

Those that were asked over HTTP have `asked`, and whichever worker takes them measures them. Those of the command have
not: only the process that began them does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, Text, cast, func, insert, select, text, update

from monitor.core.gate import GateReason
from monitor.core.gate_status import OPEN, GateStatus, ended_document, open_document
from monitor.store.schema import gates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

KEY_LIVES = timedelta(hours=24)
"""How long a key stands for the gate it was first sent with: longer than a pipeline asks again, shorter than until the
same revision is released anew, when a verdict of last week says nothing of today's servers."""
LEASE = timedelta(seconds=30)
"""A gate whose process has not said for so long that it measures, does not."""
TOO_SILENT = f"its process was silent for over {LEASE.seconds} s, and its servers are another's meanwhile"
LEFT_BEHIND = timedelta(minutes=5)
"""A command's gate whose lease has been over for so long has no process any more, and nobody measures it anew."""
MOST_ATTEMPTS = 3
"""A gate that so many processes left unfinished ends undecided."""
CLAIM_LOCK = 0x5BEC_0004
"""Transaction advisory lock of claims: whether a server is free is asked by one at a time."""


@dataclass(frozen=True)
class Asked:
    """`new`: kept now for the first time. Not `same`: its key stands for a gate of which something else was asked."""

    id: int
    new: bool
    same: bool


class Claim(enum.Enum):
    """TAKEN: measure now. BUSY: another gate measures one of the servers. OVER: it has ended. WORN: tried too often."""

    TAKEN = enum.auto()
    BUSY = enum.auto()
    OVER = enum.auto()
    WORN = enum.auto()


def ask(
    connection: Connection, document: Mapping[str, Any], asked: Mapping[str, Any], by: str, key: str | None
) -> Asked:
    """Keeps the gate as queued, or finds the one that `by` asked for under this key within KEY_LIVES.

    Two that ask at once with one key get one gate.
    """
    if key is not None:
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 2))"), {"key": f"{by} {key}"})
        mine = (gates.c.asked_by == by) & (gates.c.key == key) & (gates.c.asked_at > func.now() - KEY_LIVES)
        found = connection.execute(select(gates).where(mine).order_by(gates.c.id.desc()).limit(1)).one_or_none()
        if found is not None:
            return Asked(found.id, new=False, same=found.asked == asked)
    statement = insert(gates).values(
        route=asked["route"],
        status=GateStatus.QUEUED.value,
        document=open_document(document, "waits for its turn"),
        asked=asked,
        asked_by=by,
        asked_at=func.now(),
        key=key,
    )
    return Asked(int(connection.execute(statement.returning(gates.c.id)).scalar_one()), new=True, same=True)


def begin(connection: Connection, document: Mapping[str, Any]) -> int:
    """Keeps a gate that its own process measures; its id. It is queued, under a lease, until it is claimed."""
    values = {
        "route": document["route"],
        "status": GateStatus.QUEUED.value,
        "document": open_document(document, "waits for its turn"),
        "asked_at": func.now(),
        "lease_until": func.now() + LEASE,
    }
    return int(connection.execute(insert(gates).values(**values).returning(gates.c.id)).scalar_one())


def asked_of(connection: Connection, gate_id: int) -> dict[str, Any] | None:
    """What an open gate was asked; None for one that has ended or is not there."""
    its = select(gates.c.asked).where(gates.c.id == gate_id, gates.c.status.in_(OPEN))
    return connection.execute(its).scalar_one_or_none()


def claim(connection: Connection, gate_id: int, servers: Sequence[str], now: datetime) -> Claim:
    """TAKEN for one at a time of the gates that would measure any of these servers, until its lease ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CLAIM_LOCK})
    end_left_behind(connection, now)
    row = connection.execute(select(gates).where(gates.c.id == gate_id).with_for_update()).one_or_none()
    if row is None or row.status not in OPEN:
        return Claim.OVER
    if row.asked is not None and row.attempts >= MOST_ATTEMPTS:
        return Claim.WORN
    if _measuring(connection, servers, gate_id) is not None:
        return Claim.BUSY
    values = {
        "status": GateStatus.RUNNING.value,
        "servers": list(servers),
        "lease_until": func.now() + LEASE,
        "attempts": row.attempts + 1,
        "document": open_document(row.document, "is measured now"),
    }
    connection.execute(update(gates).where(gates.c.id == gate_id).values(**values))
    return Claim.TAKEN


def is_measured(connection: Connection, *servers: str) -> bool:
    """Whether a gate measures one of these servers now: others keep off."""
    return _measuring(connection, servers, None) is not None


def holder(connection: Connection, servers: Sequence[str], but: int) -> str | None:
    """In words, which other gate measures one of these servers now."""
    row = _measuring(connection, servers, but)
    if row is None:
        return None
    by = f"asked by {row.asked_by}" if row.asked_by else "of the command"
    shared = ", ".join(server for server in servers if server in row.servers)
    return f"gate {row.id} of route {row.route}, {by}, measures {shared}"


def _measuring(connection: Connection, servers: Sequence[str], but: int | None) -> Row[Any] | None:
    them = (gates.c.status == GateStatus.RUNNING.value) & (gates.c.lease_until > func.now())
    shared = gates.c.servers.op("&&")(cast(list(servers), ARRAY(Text)))
    found = select(gates).where(them, shared, gates.c.id.is_distinct_from(but))
    return connection.execute(found.order_by(gates.c.id).limit(1)).one_or_none()


def renew(connection: Connection, gate_id: int, now: datetime) -> bool:
    """Says that its process lives. False when it has ended meanwhile: it was cancelled, or ends here.

    A process that was silent for longer than its lease may find its servers claimed by another gate: then neither is
    alone with them, and the later one stands.
    """
    still = (gates.c.id == gate_id) & gates.c.status.in_(OPEN)
    lapsed = select(gates.c.servers).where(still, gates.c.lease_until < func.now())
    servers = connection.execute(lapsed).scalar_one_or_none()
    if servers is not None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CLAIM_LOCK})
        if (other := holder(connection, servers, gate_id)) is not None:
            give_up(connection, gate_id, GateReason.INTERRUPTED, f"{TOO_SILENT}: {other}", now)
            return False
    statement = update(gates).where(still).values(lease_until=func.now() + LEASE).returning(gates.c.id)
    return connection.execute(statement).one_or_none() is not None


def end_left_behind(connection: Connection, now: datetime) -> None:
    """Commands that died with their gate: it is over, undecided, and says so."""
    gone = gates.c.status.in_(OPEN) & gates.c.asked.is_(None) & (gates.c.lease_until < func.now() - LEFT_BEHIND)
    for gate_id in connection.execute(select(gates.c.id).where(gone)).scalars().all():
        give_up(connection, gate_id, GateReason.INTERRUPTED, "the command that measured it ended without a word", now)


def finish(connection: Connection, gate_id: int, document: Mapping[str, Any], finished_at: datetime) -> bool:
    """Keeps the verdict. False when it had ended before: the first ending stands."""
    return _end(connection, gate_id, GateStatus.DONE, document, finished_at)


def give_up(connection: Connection, gate_id: int, reason: GateReason, why: str, now: datetime) -> bool:
    """Ends it without a measurement, and so never with a pass. False when it had ended before."""
    return _end_early(connection, gate_id, GateStatus.DONE, reason, why, now)


def cancel(connection: Connection, gate_id: int, by: str, now: datetime) -> bool:
    """False when it had ended before."""
    return _end_early(connection, gate_id, GateStatus.CANCELLED, GateReason.CANCELLED, f"cancelled by {by}", now)


def _end_early(
    connection: Connection, gate_id: int, status: GateStatus, reason: GateReason, why: str, now: datetime
) -> bool:
    its = select(gates.c.document).where(gates.c.id == gate_id).with_for_update()
    document = connection.execute(its).scalar_one_or_none()
    return document is not None and _end(connection, gate_id, status, ended_document(document, reason, why, now), now)


def _end(
    connection: Connection, gate_id: int, status: GateStatus, document: Mapping[str, Any], finished_at: datetime
) -> bool:
    values = {
        "status": status.value,
        "verdict": document["verdict"],
        "document": document,
        "finished_at": finished_at,
        "lease_until": None,
    }
    statement = update(gates).where(gates.c.id == gate_id, gates.c.status.in_(OPEN)).values(**values)
    return connection.execute(statement.returning(gates.c.id)).one_or_none() is not None
