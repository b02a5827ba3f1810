"""When probes are due: fixed slots per route and domain, spread over the period, derived from names alone.

Any process computes the same slots, so a slot is one row however many schedulers look at it.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def offset(route: str, domain: str, every: timedelta) -> timedelta:
    """Where in its period this route and domain is probed: a hash of the names, so that load spreads evenly."""
    digest = hashlib.sha256(f"{route}\0{domain}".encode()).digest()
    return every * (int.from_bytes(digest[:8]) / 2**64)


def current_slot(route: str, domain: str, every: timedelta, now: datetime) -> datetime:
    """The latest slot that is due at `now` (its start time)."""
    first = EPOCH + offset(route, domain, every)
    return first + every * ((now - first) // every)


def replica_index(slot: datetime, every: timedelta, domain_position: int, replicas: int) -> int:
    """Which replica the slot's probe goes to: every domain visits every replica in turn."""
    return ((slot - EPOCH) // every + domain_position) % replicas
