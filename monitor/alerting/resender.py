"""Keeps Alertmanagers told: what they were sent of open incidents is sent again, since they forget, and may restart.

Nothing is kept in memory between two rounds: each is made from what the store says now.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.alerting.posting import Failure
from monitor.alerting.receivers import AlertmanagerReceiver
from monitor.core.tally import Tally
from monitor.store import outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from typing import Any

    from monitor.alerting.peer_watch import PeerWatch
    from monitor.alerting.receivers import Receiver
    from monitor.store.database import Database

logger = logging.getLogger(__name__)

RESOLVED_FOR = timedelta(minutes=15)
"""So long is the end of an incident sent again, as Prometheus does: a peer that was away hears of it."""


class Resender:
    """Sends again; of several processes one does."""

    def __init__(
        self,
        database: Database,
        receivers: Mapping[str, Receiver],
        now: Callable[[], datetime],
        watch: PeerWatch | None = None,
    ) -> None:
        """Without `watch` nobody is told of peers that take nothing."""
        self._database = database
        self._alertmanagers = {n: r for n, r in receivers.items() if isinstance(r, AlertmanagerReceiver)}
        self._now = now
        self._watch = watch

    @property
    def peer_attempts(self) -> Tally:
        """Of every Alertmanager, by receiver and peer; sent for the first time or again."""
        return _of_all(receiver.peers.attempts for receiver in self._alertmanagers.values())

    @property
    def peer_failures(self) -> Tally:
        return _of_all(receiver.peers.failures for receiver in self._alertmanagers.values())

    async def send_again(self) -> None:
        """One round over every Alertmanager; what fails is logged, and sent in the next round.

        Peers are asked also when there is nothing to send again: one that is away is found before it is needed.
        """
        await asyncio.gather(*(self._send_again(name, receiver) for name, receiver in self._alertmanagers.items()))

    async def _send_again(self, name: str, receiver: AlertmanagerReceiver) -> None:
        async with receiver.lock:
            known = await asyncio.to_thread(self._known_to, name)
            answer = await receiver.post(known)
        if self._watch is not None:
            await asyncio.to_thread(self._look_at, self._watch, name, receiver)
        if known and isinstance(answer, Failure):
            logger.warning(
                "%s: %s; the alerts of %d incidents are sent again in a minute", name, answer.error, len(known)
            )

    def _look_at(self, watch: PeerWatch, name: str, receiver: AlertmanagerReceiver) -> None:
        with self._database.transaction() as connection:
            watch.look(connection, name, receiver.peers, self._now())

    def _known_to(self, name: str) -> Sequence[tuple[int, Mapping[str, Any]]]:
        with self._database.transaction() as connection:
            return outbox.latest_documents(connection, name, self._now() - RESOLVED_FOR)


def _of_all(tallies: Iterable[Tally]) -> Tally:
    return functools.reduce(Tally.with_counts, tallies, Tally({"receiver": (), "peer": ()}))
