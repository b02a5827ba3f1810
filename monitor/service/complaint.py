"""A trouble that lasts, said once: an outage of hours is two lines of log and not thousands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


class Complaint:
    """Says what is wrong when that begins or changes, and `over` when it has ended."""

    def __init__(self, logger: logging.Logger, wrong: str, over: str) -> None:
        self._logger = logger
        self._wrong = wrong
        self._over = over
        self._last = ""

    def raise_for(self, error: object, kind: str | None = None) -> None:
        """Logs the error unless the last one said the same, or was of the same `kind` where one is given."""
        if (kind or str(error)) != self._last:
            self._last = kind or str(error)
            self._logger.warning("%s: %s", self._wrong, " ".join(str(error).split()))

    def end(self) -> None:
        """All is well, again or as ever."""
        if self._last:
            self._last = ""
            self._logger.info("%s", self._over)
