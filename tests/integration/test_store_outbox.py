"""The outbox: every message is claimed by one sender at a time, in order, and leaves only when it is settled."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.posting import Arrival, Failure, Why
from monitor.alerting.sender import GIVE_UP_AFTER_ATTEMPTS, LEASE, Sender
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.errors import StoreError
from monitor.store import incident_events, incidents, outbox
from tests.factories import ROUTE, START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from monitor.alerting.receivers import Receiver
    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

ARRIVED = Arrival("hook: HTTP 200")
SECOND = timedelta(seconds=1)
BROKEN = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})


def opened(connection: Connection, route: str = ROUTE, receivers: tuple[str, ...] = ("hook",)) -> int:
    """An open incident whose opening waits for delivery."""
    incident_id = incidents.save_state(connection, route, None, BROKEN, START)
    told(connection, incident_id, Transition.OPENED, receivers)
    return incident_id


def told(
    connection: Connection, incident_id: int, transition: Transition, receivers: tuple[str, ...] = ("hook",)
) -> int:
    document = {"route": ROUTE, "severity": "page", "text": transition.value}
    return incident_events.add_event(connection, incident_id, transition, document, receivers, START)


def claimed(connection: Connection, now: datetime = START, limit: int = 50) -> list[Delivery]:
    return outbox.claim_deliveries(connection, now, LEASE, limit)


def transitions(deliveries: list[Delivery]) -> list[str]:
    return [delivery.transition for delivery in deliveries]


def states(connection: Connection, incident_id: int) -> list[tuple[str, str, str, int, str | None]]:
    found = incidents.get_incident(connection, incident_id)
    assert found is not None
    return [
        (event["transition"], d["receiver"], d["state"], d["attempts"], d["last_error"])
        for event in found["events"]
        for d in event["deliveries"]
    ]


def test_a_transition_is_queued_once_for_every_receiver(connection: Connection) -> None:
    incident_id = opened(connection, receivers=("hook", "console"))
    found = claimed(connection)
    assert [(d.receiver, d.incident_id, d.transition, d.attempts) for d in found] == [
        ("console", incident_id, "opened", 1),
        ("hook", incident_id, "opened", 1),
    ]
    assert found[0].document == {"route": ROUTE, "severity": "page", "text": "opened"}
    assert found[1].key == f"specwatch-{found[1].event_id}-hook"
    assert outbox.queue_deliveries(connection, incident_id, found[0].event_id, {"hook", "late"}, START) == 1
    assert outbox.told(connection, incident_id) == {"console", "hook", "late"}


def test_an_incident_without_receivers_is_recorded_all_the_same(connection: Connection) -> None:
    incident_id = opened(connection, receivers=())
    found = incidents.get_incident(connection, incident_id)
    assert found is not None
    assert [(event["transition"], event["deliveries"]) for event in found["events"]] == [("opened", [])]
    assert claimed(connection) == []


def test_a_claimed_delivery_is_nobody_elses_until_its_lease_lapses(connection: Connection) -> None:
    opened(connection)
    assert len(claimed(connection)) == 1
    assert claimed(connection, START + LEASE) == []
    again = claimed(connection, START + LEASE + SECOND)
    assert [(d.transition, d.attempts) for d in again] == [("opened", 2)]


def test_transitions_of_one_incident_reach_a_receiver_in_order(connection: Connection) -> None:
    incident_id = opened(connection)
    told(connection, incident_id, Transition.UPDATED)
    told(connection, incident_id, Transition.RESOLVED)
    for expected in ("opened", "updated", "resolved"):
        found = claimed(connection)
        assert transitions(found) == [expected]
        assert claimed(connection) == [], "the next one waits while this one is under way"
        outbox.mark_sent(connection, found[0].id, START)
    assert claimed(connection) == []


def test_a_receiver_that_fails_does_not_hold_up_the_others(connection: Connection) -> None:
    incident_id = opened(connection, receivers=("hook", "console"))
    console, hook = claimed(connection)
    outbox.mark_sent(connection, console.id, START)
    outbox.mark_retry(connection, hook, "HTTP 500", START + timedelta(minutes=5))
    told(connection, incident_id, Transition.RESOLVED, ("hook", "console"))
    assert [(d.receiver, d.transition) for d in claimed(connection)] == [("console", "resolved")]


def test_incidents_do_not_wait_for_each_other(connection: Connection) -> None:
    opened(connection, "chat-prod")
    opened(connection, "batch")
    assert transitions(claimed(connection)) == ["opened", "opened"]


def test_a_failed_delivery_is_due_again_at_its_time(connection: Connection) -> None:
    incident_id = opened(connection)
    later = START + timedelta(minutes=5)
    outbox.mark_retry(connection, claimed(connection)[0], "HTTP 503", later)
    assert states(connection, incident_id) == [("opened", "hook", "pending", 1, "HTTP 503")]
    assert claimed(connection, later - SECOND) == []
    assert [d.attempts for d in claimed(connection, later)] == [2]


def test_a_dead_delivery_is_never_sent_again_and_lets_the_next_one_pass(connection: Connection) -> None:
    incident_id = opened(connection)
    told(connection, incident_id, Transition.RESOLVED)
    outbox.mark_dead(connection, claimed(connection)[0], "HTTP 401")
    found = claimed(connection, START + timedelta(days=30))
    assert transitions(found) == ["resolved"]
    outbox.mark_sent(connection, found[0].id, START)
    assert states(connection, incident_id) == [
        ("opened", "hook", "dead", 1, "HTTP 401"),
        ("resolved", "hook", "sent", 1, None),
    ]
    assert outbox.outbox_counts(connection) == {("hook", "dead"): 1, ("hook", "sent"): 1}


def test_a_sender_whose_lease_has_lapsed_does_not_fail_what_another_is_about_to_send(connection: Connection) -> None:
    incident_id = opened(connection)
    [late] = claimed(connection)
    now = START + LEASE + SECOND
    [under_way] = claimed(connection, now)
    assert not outbox.mark_dead(connection, late, "HTTP 401")
    assert not outbox.mark_retry(connection, late, "no answer within 25 s", now)
    assert claimed(connection, now) == [], "it is still the other's"
    assert outbox.mark_sent(connection, under_way.id, now)
    assert states(connection, incident_id) == [("opened", "hook", "sent", 2, None)]


def test_what_one_has_sent_is_sent_whoever_has_claimed_it_since(connection: Connection) -> None:
    incident_id = opened(connection)
    [late] = claimed(connection)
    [under_way] = claimed(connection, START + LEASE + SECOND)
    assert outbox.mark_sent(connection, late.id, START)
    assert not outbox.mark_dead(connection, under_way, "HTTP 409")
    assert states(connection, incident_id) == [("opened", "hook", "sent", 2, None)]


def test_what_is_given_up_is_not_settled_again(connection: Connection) -> None:
    incident_id = opened(connection)
    [delivery] = claimed(connection)
    assert outbox.mark_dead(connection, delivery, "HTTP 401")
    assert not outbox.mark_retry(connection, delivery, "too late", START)
    assert not outbox.mark_sent(connection, delivery.id, START)
    assert states(connection, incident_id) == [("opened", "hook", "dead", 1, "HTTP 401")]


def test_what_was_settled_stays_settled(connection: Connection) -> None:
    incident_id = opened(connection)
    delivery = claimed(connection)[0]
    outbox.mark_sent(connection, delivery.id, START)
    outbox.mark_retry(connection, delivery, "too late", START)
    outbox.mark_dead(connection, delivery, "too late")
    assert states(connection, incident_id) == [("opened", "hook", "sent", 1, None)]


def test_no_more_than_asked_are_claimed_the_longest_due_first(connection: Connection) -> None:
    for number in range(5):
        opened(connection, f"route-{number}")
    found = claimed(connection, limit=2)
    assert len(found) == 2
    assert len(claimed(connection)) == 3


def test_each_receiver_is_claimed_for_as_far_as_it_has_room(connection: Connection) -> None:
    for number in range(5):
        opened(connection, f"route-{number}", ("full", "slow", "well"))
    found = outbox.claim_deliveries(connection, START, LEASE, 50, {"full": 0, "slow": 2, "well": 9})
    assert [d.receiver for d in found] == ["slow", "well", "slow", "well", "well", "well", "well"]


def test_two_senders_at_once_never_claim_the_same_delivery(database: Database) -> None:
    with database.transaction() as connection:
        for number in range(6):
            opened(connection, f"route-{number}")
    with database.transaction() as one, database.transaction() as other:
        other.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
        first = claimed(one, limit=4)
        second = claimed(other, limit=4)
    assert len(first) == 4
    assert len(second) == 2, "what the other is claiming at this moment is skipped, not waited for"
    assert not {d.id for d in first} & {d.id for d in second}


def test_a_later_transition_is_not_claimed_while_another_sender_claims_the_earlier(database: Database) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection)
        told(connection, incident_id, Transition.RESOLVED)
    with database.transaction() as one, database.transaction() as other:
        other.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
        assert transitions(claimed(one)) == ["opened"]
        assert claimed(other) == []


def test_a_sender_that_dies_while_claiming_leaves_everything_as_it_was(database: Database) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection)
    with database.engine.connect() as dying:
        assert len(claimed(dying)) == 1  # and the connection ends without a commit
    with database.transaction() as connection:
        assert states(connection, incident_id) == [("opened", "hook", "pending", 0, None)]


def test_open_incidents_are_known_by_their_opening(connection: Connection) -> None:
    one = opened(connection, "chat-prod")
    told(connection, one, Transition.UPDATED)
    other = opened(connection, "batch")
    incidents.save_state(connection, "batch", other, IncidentState(), START)
    assert [
        (incident_id, document["text"]) for incident_id, _, document in incident_events.open_events(connection)
    ] == [(one, "opened")]


class Scripted:
    """A receiver that gives these answers, one per attempt, and remembers what it was sent."""

    def __init__(self, *answers: Arrival | Failure | Exception) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []

    async def send(self, delivery: Delivery) -> Arrival | Failure:
        self.keys.append(delivery.key)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def sender(database: Database, receivers: Mapping[str, Any], clock: Clock | None = None) -> Sender:
    found: Mapping[str, Receiver] = receivers
    return Sender(database, found, clock or Clock())


async def test_a_sender_tries_again_with_the_same_key_until_it_arrives(database: Database) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection)
    throttled = Failure("HTTP 429", retry_after_seconds=600.0, why=Why.THROTTLED)
    hook, clock = Scripted(Failure("HTTP 500", why=Why.ERROR), throttled, ARRIVED), Clock()
    sending = sender(database, {"hook": hook}, clock)
    assert await sending.send_due() == 1
    assert await sending.send_due() == 0, "not due before its pause"
    clock.now += timedelta(seconds=5)
    assert await sending.send_due() == 1
    clock.now += timedelta(seconds=599)
    assert await sending.send_due() == 0, "the receiver asked for ten minutes"
    clock.now += timedelta(seconds=1)
    assert await sending.send_due() == 1
    assert len(set(hook.keys)) == 1
    assert (sending.attempts.counts, sending.pauses.counts) == ({("hook",): 3}, {("hook",): 1})
    failures = {reason: count for (_, reason), count in sending.failures.counts.items()}
    assert failures == {**dict.fromkeys(Why, 0), "error": 1, "throttled": 1}, "each reason is there from the start"
    assert sending.given_up.total == 0
    with database.transaction() as connection:
        assert states(connection, incident_id) == [("opened", "hook", "sent", 3, None)]


@pytest.mark.parametrize("answer", [Failure("HTTP 401", final=True), Failure("HTTP 500")])
async def test_a_delivery_is_given_up_when_refused_for_good_or_after_the_last_attempt(
    database: Database, answer: Failure
) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection)
        if not answer.final:
            connection.exec_driver_sql(f"UPDATE deliveries SET attempts = {GIVE_UP_AFTER_ATTEMPTS - 1}")
    sending = sender(database, {"hook": Scripted(answer)})
    await sending.send_due()
    assert sending.given_up.counts["hook", answer.why] == sending.given_up.total == 1
    with database.transaction() as connection:
        [(_, _, state, _, error)] = states(connection, incident_id)
    assert (state, error) == ("dead", answer.error)


async def test_a_failed_attempt_is_logged_with_its_cause_its_number_and_when_the_next_is(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection)
        connection.exec_driver_sql("UPDATE deliveries SET attempts = 2")
    failure = Failure("alerts.example:9000: connection refused", retry_after_seconds=600.0)
    await sender(database, {"hook": Scripted(failure)}).send_due()
    [line] = [record.getMessage() for record in caplog.records if record.name == "monitor.alerting.sender"]
    assert line.startswith("hook: alerts.example:9000: connection refused; attempt 3 of specwatch-")
    assert line.endswith(", next at 2026-03-02T10:10:00+00:00")
    with database.transaction() as connection:
        found = incidents.get_incident(connection, incident_id)
    assert found is not None
    [delivery] = found["events"][0]["deliveries"]
    assert (delivery["last_error"], delivery["next_attempt_at"]) == (failure.error, "2026-03-02T10:10:00+00:00")


async def test_a_receiver_that_breaks_is_tried_again_and_stops_nobody_elses_message(database: Database) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection, receivers=("broken", "hook"))
    await sender(database, {"broken": Scripted(RuntimeError("a bug")), "hook": Scripted(ARRIVED)}).send_due()
    with database.transaction() as connection:
        assert states(connection, incident_id) == [
            ("opened", "broken", "pending", 1, "RuntimeError in Specwatch itself; its log has more"),
            ("opened", "hook", "sent", 1, None),
        ]


async def test_a_receiver_that_left_the_configuration_is_told_nothing_more(database: Database) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection)
    clock = Clock()
    clock.now += outbox.LEFT_BEHIND_AFTER
    await sender(database, {}, clock).send_due()
    with database.transaction() as connection:
        assert states(connection, incident_id) == [
            ("opened", "hook", "dead", 1, "receiver hook is no longer in alerting.yaml")
        ]


async def test_a_sender_that_does_not_know_a_receiver_yet_leaves_its_messages_to_one_that_does(
    database: Database,
) -> None:
    """While a configuration is rolled out, processes with the one before run beside those with the new one."""
    with database.transaction() as connection:
        incident_id = opened(connection, receivers=("hook", "added"))
    hook, added, clock = Scripted(ARRIVED), Scripted(Failure("HTTP 503"), ARRIVED), Clock()
    before, after = sender(database, {"hook": hook}, clock), sender(database, {"hook": hook, "added": added}, clock)
    assert await before.send_due() == 1
    assert await after.send_due() == 1
    for _ in range(10):
        clock.now += SECOND
        assert await before.send_due() == 0, "neither before it is due again nor after"
    assert await after.send_due() == 1
    with database.transaction() as connection:
        assert states(connection, incident_id) == [
            ("opened", "added", "sent", 2, None),
            ("opened", "hook", "sent", 1, None),
        ]


async def test_a_message_sent_by_a_sender_that_then_died_is_sent_again_with_its_key(database: Database) -> None:
    """At least once: the receiver drops the second by its key."""

    class Dying(Scripted):
        async def send(self, delivery: Delivery) -> Arrival | Failure:
            await super().send(delivery)
            raise asyncio.CancelledError  # the process ends between sending and marking

    with database.transaction() as connection:
        opened(connection)
    dying, clock = Dying(ARRIVED), Clock()
    with pytest.raises(asyncio.CancelledError):
        await sender(database, {"hook": dying}, clock).send_due()
    heir = Scripted(ARRIVED)
    clock.now += LEASE + SECOND
    assert await sender(database, {"hook": heir}, clock).send_due() == 1
    assert heir.keys == dying.keys


async def test_losing_the_database_is_told_as_such(database: Database) -> None:
    lost = type(database)(database.url.set(database="gone").render_as_string(hide_password=False))
    with pytest.raises(StoreError, match="does not answer"):
        await sender(lost, {}).send_due()
    lost.close()
