"""Empties the outbox: claims due deliveries under a lease, sends, and marks what happened. At least once, in order."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from monitor.alerting.dead_letters import Loss
from monitor.alerting.posting import Arrival, Failure, Why
from monitor.alerting.windows import open_windows
from monitor.core.tally import Tally
from monitor.store import outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from monitor.alerting.dead_letters import DeadLetters
    from monitor.alerting.receivers import Receiver
    from monitor.config.maintenance import Maintenance
    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
"""A lapsed lease means that the sender died, and another sends again."""
LONGEST_SEND_SECONDS = 25.0
"""An attempt ends before its lease does, whatever time-out its receiver has."""
FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 3600.0
AT_ONCE = 50
"""Attempts under way in one process, shared out among its receivers: one that hangs fills its own share alone."""
AT_ONCE_EACH = 10
GIVE_UP_AFTER_ATTEMPTS = 100
"""About four days of hourly attempts."""


def retry_delay_seconds(attempts: int, failure: Failure, jitter: float) -> float:
    """Doubling from 5 s to an hour, spread by `jitter` in 0..1, never sooner than the receiver asked."""
    backoff = min(FIRST_RETRY_SECONDS * 2.0 ** (attempts - 1), LONGEST_RETRY_SECONDS) * (0.5 + jitter / 2)
    return max(backoff, failure.retry_after_seconds or 0.0)


class Sender:
    """Sends what is due, to each receiver as fast as it answers; safe beside other senders on the same database.

    Guarantee: at most AT_ONCE attempts are under way, or one per receiver where there are more receivers, and to none
    more than its share. An attempt begins when its lease does, and ends before it.

    Counts since it was made: attempts, those that failed, messages given up, and pauses that receivers asked for.
    """

    def __init__(
        self,
        database: Database,
        receivers: Mapping[str, Receiver],
        now: Callable[[], datetime],
        maintenance: Sequence[Maintenance] = (),
        dead_letters: DeadLetters | None = None,
    ) -> None:
        """Without `dead_letters` nobody else is told of what a receiver will not get."""
        self.database = database
        self.receivers = receivers
        self.now = now
        self.maintenance = maintenance
        self.dead_letters = dead_letters
        self.attempts = Tally({"receiver": receivers})
        self.failures = Tally({"receiver": receivers, "reason": list(Why)})
        self.given_up = Tally({"receiver": receivers, "reason": list(Why)})
        self.pauses = Tally({"receiver": receivers})
        self._share = max(1, min(AT_ONCE_EACH, AT_ONCE // max(1, len(receivers))))
        self._under_way: dict[asyncio.Task[None], str] = {}

    @property
    def under_way(self) -> set[asyncio.Task[None]]:
        """What was begun and not yet looked at by `begin_due`: done when it is sent and settled, or was not."""
        return set(self._under_way)

    async def send_due(self) -> int:
        """Sends what is due as far as its receivers have room, and waits for all of it; returns how many were begun."""
        begun = await self.begin_due()
        await asyncio.gather(*self.under_way)
        return begun

    async def begin_due(self) -> int:
        """Begins to send what is due as far as its receivers have room; waits for none; returns how many.

        Raises what settling an earlier one raised. Of a StoreError that one is sent again when its lease is over.
        """
        done = {task for task in self._under_way if task.done()}
        for task in done:
            del self._under_way[task]
        await asyncio.gather(*(task for task in done if not task.cancelled()))
        claimed = await asyncio.to_thread(self._claim)
        self._under_way |= {asyncio.create_task(self._send(delivery)): delivery.receiver for delivery in claimed}
        return len(claimed)

    def _claim(self) -> list[Delivery]:
        now, busy = self.now(), Counter(self._under_way.values())
        room = {name: self._share - busy[name] for name in self.receivers}
        with self.database.transaction() as connection:
            open_windows(connection, self.maintenance, now)
            return outbox.claim_deliveries(connection, now, LEASE, AT_ONCE, room)

    async def _send(self, delivery: Delivery) -> None:
        receiver = self.receivers.get(delivery.receiver)
        if receiver is None:
            error = f"receiver {delivery.receiver} is no longer in alerting.yaml"
            await self._give_up(delivery, Failure(error, why=Why.REMOVED))
            return
        answer = await self._attempt(receiver, delivery)
        self.attempts.add(delivery.receiver)
        if isinstance(answer, Arrival):
            await asyncio.to_thread(self._mark_sent, delivery)
            return
        self.failures.add(delivery.receiver, answer.why)
        if answer.retry_after_seconds:
            self.pauses.add(delivery.receiver)
        if answer.final or delivery.attempts >= GIVE_UP_AFTER_ATTEMPTS:
            await self._give_up(delivery, answer)
        else:
            await asyncio.to_thread(self._mark_retry, delivery, answer)

    async def _give_up(self, delivery: Delivery, failure: Failure) -> None:
        self.given_up.add(delivery.receiver, failure.why)
        await asyncio.to_thread(self._mark_dead, delivery, failure)

    async def _attempt(self, receiver: Receiver, delivery: Delivery) -> Arrival | Failure:
        """What the receiver says; a receiver that breaks is a failed attempt and stops nobody else's message."""
        try:
            async with asyncio.timeout(LONGEST_SEND_SECONDS):
                return await receiver.send(delivery)
        except TimeoutError:
            return Failure(f"no answer within {LONGEST_SEND_SECONDS:g} s", why=Why.NO_ANSWER)
        except Exception as error:
            logger.exception("receiver %s broke", delivery.receiver)
            return Failure(f"{type(error).__name__} in Specwatch itself; its log has more", why=Why.MISTAKE)

    def _mark_sent(self, delivery: Delivery) -> None:
        with self.database.transaction() as connection:
            if self.dead_letters is None:
                outbox.mark_sent(connection, delivery.id, self.now())
            else:
                self.dead_letters.arrive(connection, delivery, self.now())

    def _mark_retry(self, delivery: Delivery, failure: Failure) -> None:
        seconds = retry_delay_seconds(delivery.attempts, failure, random.random())  # noqa: S311  (jitter, not a secret)
        due_at = self.now() + timedelta(seconds=seconds)
        with self.database.transaction() as connection:
            if not outbox.mark_retry(connection, delivery, failure.error, due_at):
                return
        logger.warning(
            "%s: %s; attempt %d of %s, next at %s",
            delivery.receiver,
            failure.error,
            delivery.attempts,
            delivery.key,
            due_at.isoformat(timespec="seconds"),
        )

    def _mark_dead(self, delivery: Delivery, failure: Failure) -> None:
        loss = Loss()
        with self.database.transaction() as connection:
            if self.dead_letters is None:
                outbox.mark_dead(connection, delivery, failure.error)
            else:
                loss = self.dead_letters.lose(connection, delivery, failure, self.now())
        logger.error(
            "%s: %s; attempt %d of %s, given up: nobody was told there%s",
            delivery.receiver,
            failure.error,
            delivery.attempts,
            delivery.key,
            _instead(loss),
        )


def _instead(loss: Loss) -> str:
    if loss.incident_id is None:
        return ""
    told = f"{', '.join(sorted(loss.told))} will be told of it" if loss.told else "nobody else is told of this one"
    return f"; {told}, incident {loss.incident_id}"
