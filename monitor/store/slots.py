"""Slots and locks: what keeps several processes from doing one thing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.store.schema import slots

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

LEADER_LOCK = 0x5BEC_0002
"""Session advisory lock of the one process that schedules."""


def take_slot(connection: Connection, route: str, domain: str, slot: datetime) -> bool:
    """True for exactly one caller per (route, domain, slot); older slots than the last one taken are gone for good."""
    statement = upsert(slots).values(route=route, domain=domain, slot=slot)
    newer = statement.on_conflict_do_update(
        index_elements=["route", "domain"], set_={"slot": slot}, where=slots.c.slot < slot
    )
    return connection.execute(newer.returning(slots.c.slot)).one_or_none() is not None


def lead(connection: Connection) -> bool:
    """True when this session holds the leader's lock; it is freed when the session ends, however it ends."""
    return bool(connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LEADER_LOCK}).scalar_one())


def lock_route(connection: Connection, route: str) -> None:
    """Runs of one route are judged one after the other: an incident sees every transition in order."""
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:route, 0))"), {"route": route})
