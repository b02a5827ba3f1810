"""Slots and locks: what keeps several processes from doing one thing twice."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert as upsert

from monitor.errors import StoreError
from monitor.store.schema import slots

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from sqlalchemy import Connection

LEADER_LOCK = 0x5BEC_0002
"""Session advisory lock of the one process that schedules."""


def take_slot(connection: Connection, route: str, domain: str, slot: datetime) -> bool:
    """True for exactly one caller per (route, domain, slot); older slots than the last one taken are gone for good.

    `domain` names what is due: runs of a domain by the domain itself.
    """
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


@asynccontextmanager
async def measuring(conninfo: str, server: str) -> AsyncIterator[bool]:
    """True for one at a time of those who would measure beside this plain twin; freed whatever becomes of the process.

    Raises StoreError when the database is out of reach.
    """
    try:
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        raise StoreError(f"the database does not answer: {str(error).splitlines()[0]}") from error
    try:
        found = await connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 1))", (server,))
        row = await found.fetchone()
        yield row is not None and bool(row[0])
    except psycopg.OperationalError as error:
        raise StoreError(f"the database does not answer: {str(error).splitlines()[0]}") from error
    finally:
        await connection.close()
