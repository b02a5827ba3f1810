"""A start beside processes that judge, acknowledge and send: nobody waits for one who waits for him."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monitor.alerting.dead_letters import DeadLetters
from monitor.alerting.posting import Failure
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.errors import UsageError
from monitor.service.acknowledging import Acknowledging
from monitor.service.reconciling import reconcile
from monitor.store import acts, incident_events, incidents, outbox, slots
from tests.factories import ROUTE, START, make_alerting, make_config, make_document, make_route

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitor.config.load import Config
    from monitor.store.database import Database

BROKEN = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
KINDS = (incidents.STALE, incidents.ACCEPTANCE)
"""In the order of their ids here; whoever records a run looks at acceptance first."""


def opened(database: Database, route: str, kind: str, *receivers: str) -> int:
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, route, None, BROKEN, START, kind)
        document = make_document(route=route, incident_id=incident_id)
        incident_events.add_event(connection, incident_id, Transition.OPENED, document, receivers, START)
    return incident_id


def configured() -> Config:
    kinds: dict[str, dict[str, Any]] = {
        "hook": {"pagerduty": {"routing_key": {"env": "KEY"}}},
        "added": {"webhook": {"url": "http://there/"}},
    }
    named = [{"name": name, **kind} for name, kind in kinds.items()]
    return make_config(make_route(domains=["coding"]), alerting=make_alerting(receivers=named))


def started(database: Database, config: Config) -> None:
    reconcile(database, config, DeadLetters(config.alerting, config.routes), START)


def someone_waits(database: Database) -> bool:
    with database.transaction() as connection:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        return bool(connection.exec_driver_sql(asked).scalar_one())


def test_a_start_and_a_run_that_is_recorded_lock_two_incidents_of_a_route_in_either_order(database: Database) -> None:
    """The run holds the second incident when the start comes to it, and then asks for the first."""
    for kind in KINDS:
        opened(database, ROUTE, kind, "hook")
    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as run:
            slots.lock_route(run, ROUTE)
            assert incidents.open_incident(run, ROUTE, incidents.ACCEPTANCE)
            start = thread.submit(started, database, configured())
            until = time.monotonic() + 10
            while not someone_waits(database) and time.monotonic() < until:
                time.sleep(0.05)
            assert someone_waits(database), "the start waits for the run's incident"
            assert incidents.open_incident(run, ROUTE, incidents.STALE)
        start.result(timeout=10)
    with database.transaction() as connection:
        assert outbox.outbox_counts(connection) == {("hook", "pending"): 2, ("added", "pending"): 2}


def test_what_ends_while_a_start_looks_at_it_is_told_to_nobody_new(database: Database) -> None:
    incident_id = opened(database, ROUTE, incidents.ACCEPTANCE, "hook")
    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as run:
            assert incidents.open_incident(run, ROUTE)
            start = thread.submit(started, database, configured())
            until = time.monotonic() + 10
            while not someone_waits(database) and time.monotonic() < until:
                time.sleep(0.05)
            incidents.save_state(run, ROUTE, incident_id, IncidentState(), START)
            document = make_document("resolved", incident_id=incident_id)
            incident_events.add_event(run, incident_id, Transition.RESOLVED, document, {"hook"}, START)
        start.result(timeout=10)
    with database.transaction() as connection:
        assert outbox.told(connection, incident_id) == {"hook"}, "added would never have heard the end"


def test_judges_acknowledgements_senders_and_starts_at_once_never_wait_for_each_other_in_a_ring(
    database: Database,
) -> None:
    config, over = configured(), threading.Event()
    letters = DeadLetters(config.alerting, config.routes)

    def judge(turn: int) -> None:
        """As a run is recorded: the route, then its incidents, and each changes."""
        with database.transaction() as connection:
            slots.lock_route(connection, ROUTE)
            for kind in KINDS if turn % 2 else KINDS[::-1]:
                found = incidents.open_incident(connection, ROUTE, kind)
                state = IncidentState() if found else BROKEN
                number = incidents.save_state(connection, ROUTE, found[0] if found else None, state, START, kind)
                what = Transition.RESOLVED if found else Transition.OPENED
                document = make_document(what.value, incident_id=number)
                incident_events.add_event(connection, number, what, document, {"hook", "added"}, START)

    def acknowledge(_: int) -> None:
        with database.transaction() as connection:
            known = incidents.list_incidents(connection, open_only=True)
        for incident in known:
            with suppress(UsageError), database.transaction() as connection:  # it is over meanwhile
                acts.record_act(connection, incident["id"], "acknowledged", "ana", None, START)
        Acknowledging(database, config, lambda: START).tell()

    def send(turn: int) -> None:
        with database.transaction() as connection:
            claimed = outbox.claim_deliveries(connection, START + timedelta(seconds=turn), timedelta(seconds=30), 20)
        for delivery in claimed:
            with database.transaction() as connection:
                if delivery.receiver == "added" and delivery.id % 3 == 0:
                    letters.lose(connection, delivery, Failure("HTTP 401", final=True), START)
                else:
                    letters.arrive(connection, delivery, START)

    def start(turn: int) -> None:
        """Every other one with a configuration that has no such route: what is open is closed."""
        other = make_config(make_route(name="another"), alerting=config.alerting)
        reconcile(database, other if turn % 2 else config, letters, START)

    def again(act: Callable[[int], None]) -> int:
        turns = 0
        while not over.is_set():
            act(turns)
            turns += 1
        return turns

    with ThreadPoolExecutor(6) as threads:
        running = [threads.submit(again, act) for act in (judge, judge, acknowledge, send, start, start)]
        time.sleep(8)
        over.set()
        assert all(one.result(timeout=30) > 0 for one in running)
