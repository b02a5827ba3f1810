"""Senders that die at any step, two at once, in any order: what the receiver knows ends as what the database says."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from monitor.alerting.dead_letters import DeadLetters
from monitor.alerting.posting import Failure
from monitor.alerting.sender import LEASE, LONGEST_SEND_SECONDS
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.store import dead, incident_events, incidents, outbox
from monitor.store.schema import deliveries
from monitor.store.schema import incident_events as events
from tests.factories import START, make_alerting, make_document

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

STATE = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
LIFE = (Transition.OPENED, Transition.UPDATED, Transition.RESOLVED)
SENDERS, INCIDENTS = 2, 2
SENDER_STEPS = ("claim", "send", "deny", "note", "die", "refuse", "die noting")
IN_FLIGHT = ("happen", "happen", "claim", "deny", "send", "note", "claim", "retry", "send", "send", "note")
"""What is tried again while a later message is being sent."""
OVERTAKEN = [
    ("happen", 0),
    ("claim", 0),
    ("wait", 31),
    ("claim", 1),
    *[("send", 1)] * 2,
    ("note", 1),
    ("deny", 0),
    ("note", 0),
]
"""A sender that is refused after its lease, when another has settled the message."""
LATE = [
    ("happen", 0),
    ("happen", 0),
    ("claim", 0),
    ("wait", 31),
    *[("claim", 1), ("send", 1), ("send", 1), ("note", 1)] * 2,
    *[("send", 0)] * 2,
]
"""A sender that is still about to send when its lease is over, and another has sent that and what followed."""
ROUNDS = ("send", "deny", "retry")
REFUSED = Failure("weak.example: HTTP 401", final=True)
STEPS = st.one_of(
    st.tuples(st.sampled_from(SENDER_STEPS), st.integers(0, SENDERS - 1)),
    st.tuples(st.just("happen"), st.integers(0, INCIDENTS - 1)),
    st.tuples(st.just("retry"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 31])),
)
_examples = itertools.count()


@dataclass
class There:
    """What the receiver was told, in order, by incident; a message whose key it has seen is dropped, as documented."""

    told: dict[int, list[str]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def take(self, delivery: Delivery) -> None:
        if delivery.key not in self.keys:
            self.keys.add(delivery.key)
            self.told.setdefault(delivery.incident_id, []).append(delivery.transition)
        assert self.told[delivery.incident_id][-1] == delivery.transition, "no repeat comes after what followed it"


@dataclass
class OneSender:
    """One process's memory: what it has claimed, and what of it was accepted or refused for good and is not noted."""

    claimed: list[Delivery] = field(default_factory=list)
    accepted: list[Delivery] = field(default_factory=list)
    refused: list[Delivery] = field(default_factory=list)
    claimed_at: datetime = START

    def die(self) -> None:
        self.claimed, self.accepted, self.refused = [], [], []


class _DiesError(Exception):
    """The process ends before its transaction does."""


class World:
    """One store, its incidents, two senders and two receivers, of which one, `weak`, may refuse for good.

    Every step commits, as those of a real sender do, but for those at which a sender dies within its transaction.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = START + timedelta(days=next(_examples))
        self.weak, self.strong = f"weak-{next(_examples)}", f"strong-{next(_examples)}"
        self.there = {self.weak: There(), self.strong: There()}
        self.senders = [OneSender() for _ in range(SENDERS)]
        self.routes = [f"route-{next(_examples)}-{number}" for number in range(INCIDENTS)]
        self.incident_ids: dict[int, int] = {}
        self.happened: dict[int, list[str]] = {}
        receivers = [{"name": name, "webhook": {"url": "http://there/"}} for name in self.there]
        self.letters = DeadLetters(make_alerting(receivers=receivers), [])
        self.dead: dict[int, list[str]] = {}
        self.broken = False
        self.about_weak: list[str] = []

    def step(self, kind: str, number: int) -> None:
        if kind == "wait":
            self.now += timedelta(seconds=number)
        elif kind == "happen":
            self._happen(number)
        elif kind == "retry":
            self._retry()
        else:
            getattr(self, f"_{kind.replace(' ', '_')}")(self.senders[number])

    def _happen(self, number: int) -> None:
        incident_id = self.incident_ids.get(number)
        done = [] if incident_id is None else self.happened[incident_id]
        if len(done) == len(LIFE):
            return
        transition = LIFE[len(done)]
        state = IncidentState() if transition is Transition.RESOLVED else STATE
        with self.database.transaction() as connection:
            found = incidents.save_state(connection, self.routes[number], incident_id, state, self.now)
            said = {"incident_id": found, "route": self.routes[number], "happened_at": self.now.isoformat()}
            document = make_document(transition.value, **said)
            incident_events.add_event(connection, found, transition, document, list(self.there), self.now)
        self.incident_ids[number] = found
        self.happened.setdefault(found, []).append(transition.value)

    def _claim(self, sender: OneSender) -> None:
        if not sender.claimed and not sender.accepted and not sender.refused:
            with self.database.transaction() as connection:
                sender.claimed = outbox.claim_deliveries(connection, self.now, LEASE, 50)
            sender.claimed_at = self.now

    def _send(self, sender: OneSender) -> None:
        """One of those claimed, the last first: a real sender sends them at once, and any may arrive first."""
        if self.now - sender.claimed_at > timedelta(seconds=LONGEST_SEND_SECONDS):
            sender.claimed = []  # what takes longer is cut off before the lease lapses
        if sender.claimed:
            delivery = sender.claimed.pop()
            self.there[delivery.receiver].take(delivery)
            sender.accepted.append(delivery)

    def _refuse(self, sender: OneSender) -> None:
        with self.database.transaction() as connection:
            for delivery in sender.claimed:
                outbox.mark_retry(connection, delivery, "HTTP 500", self.now + timedelta(seconds=5))
        sender.claimed = []

    def _deny(self, sender: OneSender) -> None:
        """The weak one refuses for good what is about a route."""
        mine = [d for d in sender.claimed if d.receiver == self.weak and d.document.get("kind") is None]
        sender.claimed = [d for d in sender.claimed if d not in mine]
        sender.refused += mine

    def _note(self, sender: OneSender) -> None:
        for delivery in sender.accepted:
            with self.database.transaction() as connection:
                settles = _is_pending(connection, delivery)
                self.letters.arrive(connection, delivery, self.now)
            if settles and delivery.receiver == self.weak and self.broken:
                self.broken = False
                self.about_weak.append("resolved")
        for delivery in sender.refused:
            with self.database.transaction() as connection:
                settles = _is_pending(connection, delivery)
                self.letters.lose(connection, delivery, REFUSED, self.now)
            if settles:
                self.dead.setdefault(delivery.incident_id, []).append(delivery.transition)
                self.about_weak += [] if self.broken else ["opened"]
                self.broken = True
        sender.accepted, sender.refused = [], []

    def _retry(self) -> None:
        """Somebody has what the weak one refused sent again."""
        with self.database.transaction() as connection:
            before = self._refused(connection)
            dead.retry_dead(connection, self.weak, self.now)
            for incident_id, transition in before - self._refused(connection):
                self.dead[incident_id].remove(transition)

    def _refused(self, connection: Connection) -> set[tuple[int, str]]:
        refused = select(deliveries.c.incident_id, events.c.transition).join(events)
        refused = refused.where(deliveries.c.receiver == self.weak, deliveries.c.state == "dead")
        return {(row[0], row[1]) for row in connection.execute(refused)}

    def _die_noting(self, sender: OneSender) -> None:
        """All that it would have noted was said to the database, and nothing of it committed."""
        with suppress(_DiesError), self.database.transaction() as connection:
            for delivery in sender.accepted:
                self.letters.arrive(connection, delivery, self.now)
            for delivery in sender.refused:
                self.letters.lose(connection, delivery, REFUSED, self.now)
            raise _DiesError
        sender.die()

    def _die(self, sender: OneSender) -> None:
        sender.die()

    def settle(self, rounds: list[str]) -> None:
        """All senders die, and one that lives sends what is left; in a round the weak one may refuse, or be retried."""
        for sender in self.senders:
            sender.die()
        healthy = OneSender()
        for kind in itertools.islice(itertools.chain(rounds, itertools.repeat("send")), 5 * len(LIFE)):
            self.now += LEASE + timedelta(seconds=1)
            if kind == "retry":
                self._retry()
            self._claim(healthy)
            if kind == "deny":
                self._deny(healthy)
            while healthy.claimed:
                self._send(healthy)
            self._note(healthy)


def _is_pending(connection: Connection, delivery: Delivery) -> bool:
    return str(_state_of(connection, delivery)) == "pending"


def _state_of(connection: Connection, delivery: Delivery) -> object:
    return connection.execute(select(deliveries.c.state).where(deliveries.c.id == delivery.id)).scalar_one()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example([("happen", 0), ("happen", 0)], ["deny", "send", "retry"])
@example([(kind, 0) for kind in IN_FLIGHT], [])
@example(OVERTAKEN, ["deny"])
@example(LATE, [])
@given(st.lists(STEPS, max_size=40), st.lists(st.sampled_from(ROUNDS), max_size=2 * len(LIFE)))
def test_however_senders_die_and_overlap_receivers_hear_each_transition_in_order_or_others_hear_that_they_did_not(
    database: Database, steps: list[tuple[str, int]], rounds: list[str]
) -> None:
    world = World(database)
    for kind, number in steps:
        world.step(kind, number)
    world.settle(rounds)
    weak, strong = world.there[world.weak].told, world.there[world.strong].told
    assert {number: told for number, told in strong.items() if number in world.happened} == world.happened
    about_weak = [told for number, told in strong.items() if number not in world.happened]
    assert all(told in (["opened"], ["opened", "resolved"]) for told in about_weak)
    assert sorted(itertools.chain(*about_weak)) == sorted(world.about_weak)
    with database.transaction() as connection:
        for incident_id, happened in world.happened.items():
            dead = world.dead.get(incident_id, [])
            told = weak.get(incident_id, [])
            assert told == [one for one in happened if one in told], "in order"
            assert {*told, *dead} == set(happened), "told, or known to be lost"
            assert not dead or about_weak
            found = incidents.get_incident(connection, incident_id)
            assert found is not None
            states = [(d["receiver"], d["state"]) for event in found["events"] for d in event["deliveries"]]
            assert states.count((world.strong, "sent")) == len(happened)
            assert states.count((world.weak, "dead")) == len(dead)
            assert states.count((world.weak, "sent")) == len(happened) - len(dead)
