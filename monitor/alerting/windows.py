"""Maintenance windows: while one is open it is a silence like any other, made when it opens.

Guarantee: an opening is one silence per route that it names, however many processes send. It may be ended early, and is
not made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.store.silences import open_silence, silence_to_come

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.maintenance import Maintenance
    from monitor.core.maintenance import Opening


def open_windows(connection: Connection, windows: Iterable[Maintenance], now: datetime) -> None:
    """Before anything is sent: what is open now silences what it names."""
    for window in windows:
        opening = window.schedule.open_at(now)
        for values in () if opening is None else _silences(window, opening):
            open_silence(connection, values)


def windows_to_come(windows: Iterable[Maintenance], now: datetime) -> list[dict[str, Any]]:
    """Of every window the next opening, as the silences they will be; those that open first come last."""
    following = [(window, window.schedule.next_after(now)) for window in windows]
    found = [values for window, opening in following if opening is not None for values in _silences(window, opening)]
    return sorted(map(silence_to_come, found), key=lambda silence: str(silence["created_at"]), reverse=True)


def _silences(window: Maintenance, opening: Opening) -> Iterator[dict[str, Any]]:
    for route in window.routes or (None,):
        yield {
            "created_by": f"maintenance {window.name}",
            "reason": window.reason,
            "created_at": opening.begins_at,
            "ends_at": opening.ends_at,
            "route": route,
            "labels": dict(window.match),
            "severity": window.severity,
        }
