"""Senders that die at any step, two at once, in any order: what the receiver knows ends as what the database says."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.alerting.sender import LEASE, LONGEST_SEND_SECONDS
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.store import incidents, outbox
from tests.factories import START

if TYPE_CHECKING:
    from datetime import datetime

    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

STATE = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
LIFE = (Transition.OPENED, Transition.UPDATED, Transition.RESOLVED)
SENDERS, INCIDENTS = 2, 2
STEPS = st.one_of(
    st.tuples(st.sampled_from(["claim", "send", "note", "die", "refuse"]), st.integers(0, SENDERS - 1)),
    st.tuples(st.just("happen"), st.integers(0, INCIDENTS - 1)),
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


@dataclass
class OneSender:
    """One process's memory: what it has claimed, and what of it has been accepted and is not noted yet."""

    claimed: list[Delivery] = field(default_factory=list)
    accepted: list[Delivery] = field(default_factory=list)
    claimed_at: datetime = START

    def die(self) -> None:
        self.claimed, self.accepted = [], []


class World:
    """One store, its incidents, two senders and a receiver; every step commits, as those of a real sender do."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = START + timedelta(days=next(_examples))
        self.there = There()
        self.senders = [OneSender() for _ in range(SENDERS)]
        self.routes = [f"route-{next(_examples)}-{number}" for number in range(INCIDENTS)]
        self.incident_ids: dict[int, int] = {}
        self.happened: dict[int, list[str]] = {}

    def step(self, kind: str, number: int) -> None:
        if kind == "wait":
            self.now += timedelta(seconds=number)
        elif kind == "happen":
            self._happen(number)
        else:
            getattr(self, f"_{kind}")(self.senders[number])

    def _happen(self, number: int) -> None:
        incident_id = self.incident_ids.get(number)
        done = [] if incident_id is None else self.happened[incident_id]
        if len(done) == len(LIFE):
            return
        transition = LIFE[len(done)]
        state = IncidentState() if transition is Transition.RESOLVED else STATE
        with self.database.transaction() as connection:
            found = incidents.save_state(connection, self.routes[number], incident_id, state, self.now)
            incidents.add_event(connection, found, transition, {}, ["there"], self.now)
        self.incident_ids[number] = found
        self.happened.setdefault(found, []).append(transition.value)

    def _claim(self, sender: OneSender) -> None:
        if not sender.claimed and not sender.accepted:
            with self.database.transaction() as connection:
                sender.claimed = outbox.claim_deliveries(connection, self.now, LEASE, 50)
            sender.claimed_at = self.now

    def _send(self, sender: OneSender) -> None:
        """One of those claimed, the last first: a real sender sends them at once, and any may arrive first."""
        if self.now - sender.claimed_at > timedelta(seconds=LONGEST_SEND_SECONDS):
            sender.claimed = []  # what takes longer is cut off before the lease lapses
        if sender.claimed:
            delivery = sender.claimed.pop()
            self.there.take(delivery)
            sender.accepted.append(delivery)

    def _refuse(self, sender: OneSender) -> None:
        with self.database.transaction() as connection:
            for delivery in sender.claimed:
                outbox.mark_retry(connection, delivery.id, "HTTP 500", self.now + timedelta(seconds=5))
        sender.claimed = []

    def _note(self, sender: OneSender) -> None:
        with self.database.transaction() as connection:
            for delivery in sender.accepted:
                outbox.mark_sent(connection, delivery.id, self.now)
        sender.accepted = []

    def _die(self, sender: OneSender) -> None:
        sender.die()

    def settle(self) -> None:
        """All senders die, and one that lives sends what is left."""
        for sender in self.senders:
            sender.die()
        healthy = OneSender()
        for _ in range(2 * len(LIFE)):
            self.now += LEASE + timedelta(seconds=1)
            self._claim(healthy)
            while healthy.claimed:
                self._send(healthy)
            self._note(healthy)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_however_senders_die_and_overlap_the_receiver_hears_each_transition_in_order(
    database: Database, steps: list[tuple[str, int]]
) -> None:
    world = World(database)
    for kind, number in steps:
        world.step(kind, number)
    world.settle()
    assert world.there.told == world.happened
    with database.transaction() as connection:
        for incident_id in world.happened:
            found = incidents.get_incident(connection, incident_id)
            assert found is not None
            states = [delivery["state"] for event in found["events"] for delivery in event["deliveries"]]
            assert states == ["sent"] * len(world.happened[incident_id])
