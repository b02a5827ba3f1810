"""A trouble that lasts, said once: an outage of hours is two lines of log and not thousands."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable
    from datetime import datetime

REMIND_AFTER = timedelta(hours=1)


class Complaint:
    """Says what is wrong when that begins or changes, and `over` when it has ended."""

    def __init__(self, logger: logging.Logger, wrong: str, over: str) -> None:
        self._logger = logger
        self._wrong = wrong
        self._over = over
        self._last = ""

    def raise_for(self, error: object) -> None:
        """Logs the error unless the last one said the same."""
        if str(error) != self._last:
            self._last = str(error)
            self._logger.warning("%s: %s", self._wrong, " ".join(self._last.split()))

    def end(self) -> None:
        """All is well, again or as ever."""
        if self._last:
            self._last = ""
            self._logger.info("%s", self._over)


class Reminders:
    """Which subjects may be spoken of now: each at once, then at most once an hour."""

    def __init__(self) -> None:
        self._told: dict[Hashable, datetime] = {}

    def due(self, subject: Hashable, now: datetime) -> bool:
        """True when the subject was not told within the hour; it is then taken to be told now."""
        told = self._told.get(subject)
        if told is not None and now - told < REMIND_AFTER:
            return False
        self._told[subject] = now
        return True

    def forget(self, subject: Hashable) -> None:
        """The next time is told at once."""
        self._told.pop(subject, None)
