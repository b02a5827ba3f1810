"""An acknowledgement reaches the receivers that can take one, once, after what they were told before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monitor.core.format import timeline
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.core.records import Reason
from monitor.service.acknowledging import Acknowledging
from monitor.service.jobs import ProbeJob
from monitor.store import acts, incident_events, incidents, silences
from tests.factories import ROUTE, make_alerting, make_document
from tests.integration.story import DROPPED, WELL
from tests.integration.test_gathering import SECOND, SLIPPED, WARNS_AND_PAGES, WINDOW, Several

if TYPE_CHECKING:
    from typing import Any

    from monitor.store.database import Database

MINUTE = timedelta(minutes=1)
PAGER = {"name": "pager", "pagerduty": {"routing_key": {"env": "KEY"}}}
HOOK = {"name": "hook", "webhook": {"url": "http://alerts:9000/"}}


class Paged(Several):
    """An incident whose opening a pager and a web hook were told at `began`."""

    def __init__(self, database: Database, lengths: float = DROPPED, **changes: Any) -> None:
        super().__init__(database, make_alerting(**{"receivers": [PAGER, HOOK], **changes}))
        self.breaks("coding", 0 * SECOND, lengths)
        assert {transition for _, transition in self.heard(0 * SECOND)} == {"opened"}

    def acknowledge(self, after: timedelta, by: str = "ann") -> None:
        with self.database.transaction() as connection:
            acts.record_act(connection, 1, "acknowledged", by, None, self.began + after)

    def tell(self, after: timedelta) -> list[int]:
        return Acknowledging(self.database, self.config, lambda: self.began + after).tell()

    def heard(self, after: timedelta) -> list[tuple[str, str]]:
        return [(receiver, transition) for receiver, transition, _ in self.sent(after)]

    def silence(self, after: timedelta, lasts: timedelta) -> None:
        with self.database.transaction() as connection:
            at = self.began + after
            silences.add_silence(connection, "ann", "known", at + lasts, at)


@pytest.fixture
def paged(database: Database) -> Paged:
    return Paged(database)


def test_only_the_pager_hears_that_somebody_looks_after_it_and_once(paged: Paged) -> None:
    assert paged.tell(SECOND) == []
    paged.acknowledge(MINUTE)
    assert paged.tell(MINUTE) == [1]
    paged.acknowledge(2 * MINUTE, "bob")
    assert paged.tell(2 * MINUTE) == []
    assert paged.heard(2 * MINUTE) == [("pager", "acknowledged")]
    event = paged.get_incident(1)["events"][-1]
    opening = paged.get_incident(1)["events"][0]
    assert event["acknowledged_by"] == "ann"
    assert (event["summary"], event["opened_at"]) == (opening["summary"], opening["opened_at"])


def test_many_that_look_at_once_tell_it_once(paged: Paged) -> None:
    paged.acknowledge(MINUTE)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: paged.tell(MINUTE), range(8)))
    assert sorted(found) == [[]] * 7 + [[1]]
    assert paged.heard(MINUTE) == [("pager", "acknowledged")]


def test_where_nobody_takes_acknowledgements_none_is_queued(database: Database) -> None:
    paged = Paged(database, receivers=[HOOK])
    paged.acknowledge(MINUTE)
    assert paged.tell(MINUTE) == []
    assert paged.count("incident_events") == 1


def test_what_opens_again_is_nobodys_until_it_is_acknowledged_anew(paged: Paged) -> None:
    paged.acknowledge(MINUTE)
    assert paged.tell(MINUTE) == [1]
    for minutes in (2, 3):
        paged.at(minutes * MINUTE, ProbeJob(f"well {minutes}", ROUTE, "coding", "", Reason.SCHEDULED), WELL)
    paged.breaks("coding", 10 * MINUTE)
    told = paged.heard(10 * MINUTE) + paged.heard(10 * MINUTE) + paged.heard(10 * MINUTE)
    to_pager = [transition for receiver, transition in told if receiver == "pager"]
    assert to_pager == ["acknowledged", "resolved", "reopened"]
    assert paged.tell(11 * MINUTE) == []
    paged.acknowledge(12 * MINUTE, "bob")
    assert paged.tell(12 * MINUTE) == [1]
    assert paged.heard(12 * MINUTE) == [("pager", "acknowledged")]
    assert paged.get_incident(1)["events"][-1]["acknowledged_by"] == "bob"


def test_a_pager_that_is_told_later_hears_it_after_the_opening(database: Database) -> None:
    second = {**PAGER, "name": "second"}
    routing = [{"receiver": "pager", "severity": ["page"]}, {"receiver": "hook", "severity": ["page"]}]
    paged = Paged(database, receivers=[PAGER, second, HOOK], routing=routing)
    paged.acknowledge(MINUTE)
    assert paged.tell(MINUTE) == [1]
    assert paged.heard(MINUTE) == [("pager", "acknowledged")]
    paged.query(
        "INSERT INTO deliveries (event_id, incident_id, receiver, state, due_at) "
        "SELECT id, 1, 'second', 'pending', happened_at FROM incident_events WHERE transition = 'opened'"
    )
    assert paged.tell(2 * MINUTE) == [1]
    assert paged.heard(2 * MINUTE) == [("second", "opened")]
    assert paged.heard(2 * MINUTE) == [("second", "acknowledged")]
    assert paged.tell(3 * MINUTE) == []
    assert len(paged.get_incident(1)["events"]) == 2


def test_a_silence_holds_it_only_where_it_holds_the_opening(paged: Paged, database: Database) -> None:
    paged.silence(SECOND, 10 * MINUTE)
    paged.acknowledge(MINUTE)
    assert paged.tell(MINUTE) == [1]
    assert paged.heard(MINUTE) == [("pager", "acknowledged")], "else the pager would go on and wake the next"
    state = IncidentState({"coding": BrokenDomain("stale", "page")})
    told = make_document(kind="stale", incident_id=2, joined={})
    with database.transaction() as connection:
        incidents.save_state(connection, ROUTE, None, state, paged.began + MINUTE, incidents.STALE)
        incident_events.add_event(connection, 2, Transition.OPENED, told, ["pager"], paged.began + MINUTE)
        acts.record_act(connection, 2, "acknowledged", "ann", None, paged.began + MINUTE)
    assert paged.tell(2 * MINUTE) == [2]
    assert paged.heard(2 * MINUTE) == []
    after = 11 * MINUTE
    assert paged.heard(after) + paged.heard(after) == [("pager", "opened"), ("pager", "acknowledged")]


def test_it_delays_no_domain_that_joins(paged: Paged) -> None:
    paged.acknowledge(WINDOW - SECOND)
    assert paged.tell(WINDOW - SECOND) == [1]
    assert paged.heard(WINDOW - SECOND) == [("pager", "acknowledged")]
    paged.breaks("math", WINDOW)
    assert sorted(paged.heard(WINDOW)) == [("hook", "updated"), ("pager", "updated")]


def test_the_timeline_says_who_was_told_and_repeats_no_text(paged: Paged) -> None:
    paged.acknowledge(MINUTE - SECOND)
    paged.tell(MINUTE)
    paged.sent(MINUTE)
    lines = timeline(paged.get_incident(1), lambda at: at[11:19]).splitlines()
    clock = (paged.began + MINUTE).strftime("%H:%M:%S")
    at = lines.index(f"{clock}  acknowledged by ann: passed on")
    assert lines[at + 1].startswith(f"  told       pager: sent at {clock}")
    assert len(lines) == at + 2
    assert lines[at - 2].endswith("  acknowledged by ann")


def test_it_is_no_news_of_the_incident_and_tells_of_no_rise(database: Database) -> None:
    paged = Paged(database, rules=WARNS_AND_PAGES, lengths=SLIPPED)
    paged.breaks("math", MINUTE, DROPPED)
    paged.acknowledge(2 * MINUTE)
    assert paged.tell(2 * MINUTE) == [1]
    rise, acknowledgement = paged.get_incident(1)["events"][-2:]
    assert (rise["raised_from"], acknowledgement["raised_from"], acknowledgement["joined"]) == ("warning", None, {})
    with database.transaction() as connection:
        assert incident_events.last_told(connection, 1)[2]["transition"] == rise["transition"] == "updated"
