"""The peers of one Alertmanager, as this process finds them: what one takes has arrived, so that nothing else tells."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monitor.alerting.posting import Arrival, Failure, host_of
from monitor.core.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

logger = logging.getLogger(__name__)


def peer_names(urls: Sequence[str]) -> tuple[str, ...]:
    """Each peer's host and port, and its path too where that is all that tells peers apart."""
    names = tuple(host_of(url) for url in urls)
    return names if len(set(names)) == len(names) else tuple(url.partition("://")[2] for url in urls)


class Peers:
    """Counts attempts and failures by peer; `failing`: peer → since when it takes nothing. A change is logged once."""

    def __init__(self, receiver: str, urls: Sequence[str]) -> None:
        self.names = peer_names(urls)
        self.attempts = Tally({"receiver": [receiver], "peer": self.names})
        self.failures = Tally({"receiver": [receiver], "peer": self.names})
        self.failing: dict[str, datetime] = {}
        self.answers: dict[str, str] = {}
        self._receiver = receiver

    @property
    def taking(self) -> set[str]:
        """Those that took what they were sent last."""
        return self.answers.keys() - self.failing.keys()

    def note(self, answers: Mapping[str, Arrival | Failure], now: datetime) -> None:
        """What each peer answered to the same alerts."""
        for name, answer in answers.items():
            self.attempts.add(self._receiver, name)
            if isinstance(answer, Failure):
                self.failures.add(self._receiver, name)
                self.answers[name] = answer.error
                if self.failing.setdefault(name, now) is now:
                    logger.warning(
                        "%s: a peer takes no alerts: %s; it is tried each minute", self._receiver, answer.error
                    )
            else:
                self.answers[name] = answer.answer
                if self.failing.pop(name, None) is not None:
                    logger.info("%s: %s takes alerts again", self._receiver, name)
