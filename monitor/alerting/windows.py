"""Maintenance windows: while one is open it is a silence like any other, made when it opens.

Guarantee: an opening is one silence per route that it names, however many processes send. It may be ended early, and is
not made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.store.silences import follow_openings, open_silence, silence_to_come

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.config.maintenance import Maintenance
    from monitor.core.maintenance import Opening


CREATOR = "maintenance "
"""Before the name of the window, as who made a silence."""


def open_windows(connection: Connection, windows: Iterable[Maintenance], now: datetime) -> None:
    """Before anything is sent: what is open now silences what it names."""
    for values in _open_now(windows, now):
        open_silence(connection, values)


def follow_windows(connection: Connection, windows: Iterable[Maintenance], now: datetime) -> None:
    """When the file was read anew: a window that is open has the end that it has there, and one it lacks is over."""
    follow_openings(connection, CREATOR, list(_open_now(windows, now)), now)


def _open_now(windows: Iterable[Maintenance], now: datetime) -> Iterator[dict[str, Any]]:
    for window in windows:
        opening = window.schedule.open_at(now)
        if opening is not None:
            yield from _silences(window, opening)


def windows_to_come(windows: Iterable[Maintenance], now: datetime) -> list[dict[str, Any]]:
    """Of every window the next opening, as the silences they will be; those that open first come last."""
    following = [(window, window.schedule.next_after(now)) for window in windows]
    found = [values for window, opening in following if opening is not None for values in _silences(window, opening)]
    return sorted(map(silence_to_come, found), key=lambda silence: str(silence["created_at"]), reverse=True)


def _silences(window: Maintenance, opening: Opening) -> Iterator[dict[str, Any]]:
    for route in window.routes or (None,):
        yield {
            "created_by": f"{CREATOR}{window.name}",
            "reason": window.reason,
            "created_at": opening.begins_at,
            "ends_at": opening.ends_at,
            "route": route,
            "labels": dict(window.match),
            "severity": window.severity,
        }
