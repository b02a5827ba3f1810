"""Reminders: a page that nobody looks after is told again, once per period, with today's figures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from monitor.alerting.layout import clock
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob
from monitor.service.reminding import Reminding
from monitor.store import acts, incident_events, incidents, outbox, silences
from tests.factories import make_alerting, make_document
from tests.integration.test_gathering import SECOND, Several, both, told_of_coding

if TYPE_CHECKING:
    from typing import Any

    from monitor.store.database import Database

HOUR = timedelta(hours=1)
WARNS = [{"name": "slip", "drop": "15%", "severity": "warning"}]


class Open(Several):
    """An incident whose opening was told at `began`; whoever reminds looks at a time after it."""

    def __init__(self, database: Database, **changes: Any) -> None:
        self.alerting = make_alerting(**changes)
        super().__init__(database, self.alerting)
        told_of_coding(self)

    def reminded(self, after: timedelta) -> list[int]:
        config = self.config
        return Reminding(self.database, config, lambda: self.began + after).remind()

    def heard(self, after: timedelta) -> list[str]:
        return [transition for receiver, transition, _ in self.sent(after) if receiver == "hook"]


@pytest.fixture
def page(database: Database) -> Open:
    return Open(database)


def test_a_page_is_told_again_once_per_period_with_the_newest_figures(page: Open) -> None:
    page.at(HOUR, ProbeJob("later", "chat-prod", "coding", "", Reason.SCHEDULED), 1.8)
    assert page.reminded(4 * HOUR - SECOND) == []
    assert page.reminded(4 * HOUR) == [1]
    assert page.reminded(4 * HOUR + SECOND) == []
    assert page.heard(4 * HOUR) == ["reminder"]
    event = page.get_incident(1)["events"][-1]
    assert event["summary"] == (
        "PAGE, STILL chat-prod · coding: acceptance length 1.80 by request, 25% below its baseline 2.40, as "
        f"last measured 3 h 0 min ago, since {clock(event['since'])}; open for 4 h 0 min, nobody has acknowledged it; "
        "next: specwatch incidents ack 1 --by NAME"
    )
    assert event["since"] == page.get_incident(1)["events"][0]["since"] < page.began.isoformat()
    assert event["current"]["coding"]["run_id"] == event["verdict"]["run_id"]
    assert page.reminded(8 * HOUR) == [1]


def test_many_that_look_at_once_remind_once(page: Open) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: page.reminded(4 * HOUR), range(8)))
    assert sorted(found) == [[]] * 7 + [[1]]
    assert page.heard(4 * HOUR) == ["reminder"]


def test_after_a_long_absence_one_reminder_is_told_and_not_one_per_period(page: Open) -> None:
    assert page.reminded(50 * HOUR) == [1]
    assert page.reminded(50 * HOUR + SECOND) == []


def test_an_incident_that_somebody_looks_after_is_not_told_again(page: Open) -> None:
    with page.database.transaction() as connection:
        acts.record_act(connection, 1, "acknowledged", "ann", None, page.began + HOUR)
    assert page.reminded(4 * HOUR) == []


def test_a_warning_is_not_told_again(database: Database) -> None:
    assert Open(database, rules=WARNS).reminded(4 * HOUR) == []


def test_with_reminders_off_nothing_is_told_again(database: Database) -> None:
    assert Open(database, remind_every="off").reminded(50 * HOUR) == []


def test_what_joined_in_between_counts_as_told(page: Open) -> None:
    page.breaks("math", 3 * HOUR)
    assert page.sent(3 * HOUR) == both("updated", "math")
    assert page.reminded(4 * HOUR) == []
    assert page.reminded(7 * HOUR) == [1]
    assert sorted(page.get_incident(1)["events"][-1]["current"]) == ["coding", "math"]


def test_a_silence_of_days_ends_with_one_reminder(page: Open) -> None:
    with page.database.transaction() as connection:
        silences.add_silence(connection, "ann", "known", page.began + 48 * HOUR, page.began)
    assert page.reminded(4 * HOUR) == [1]
    assert page.heard(4 * HOUR) == []
    assert [page.reminded(hours * HOUR) for hours in (8, 12, 47)] == [[], [], []]
    assert page.heard(48 * HOUR) == ["reminder"]


def test_a_page_that_is_open_since_an_earlier_version_is_told_again(page: Open) -> None:
    page.query("UPDATE incident_events SET document = document - 'outputs' - 'pace' - 'route_domains' - 'since'")
    assert page.reminded(4 * HOUR) == [1]
    text = page.get_incident(1)["events"][-1]["text"]
    assert "\n  impact     speed and cost; speculative decoding by itself changes no answers; how much slower" in text


def test_a_page_of_another_kind_is_told_again_as_it_was_told(page: Open) -> None:
    state = IncidentState({"coding": BrokenDomain("stale", "page")})
    told = make_document(
        kind="stale",
        summary="PAGE chat-prod · coding: no valid run for 1 h 20 min; next: specwatch incidents 2",
        incident_id=2,
        joined={},
    )
    with page.database.transaction() as connection:
        incidents.save_state(connection, "chat-prod", None, state, page.began, incidents.STALE)
        incident_events.add_event(connection, 2, Transition.OPENED, told, ["hook"], page.began)
    assert page.heard(SECOND) == ["opened"]
    assert sorted(page.reminded(4 * HOUR + SECOND)) == [1, 2]
    event = page.get_incident(2)["events"][-1]
    assert event["summary"] == (
        "PAGE, STILL chat-prod · coding: no valid run for 1 h 20 min (told 2026-03-02 10:00:00 UTC); "
        "open for 4 h 0 min, nobody has acknowledged it; next: specwatch incidents ack 2 --by NAME"
    )
    assert "not measured" not in event["text"]
    assert {delivery["receiver"] for delivery in event["deliveries"]} == {"hook"}


def test_a_reminder_is_not_sent_again_to_a_receiver_that_it_was_not_meant_for(page: Open) -> None:
    document = make_document("reminder", incident_id=1)
    with page.database.transaction() as connection:
        incident_events.add_event(connection, 1, Transition.REMINDER, document, ["pager"], page.began + HOUR)
        [(again, latest)] = outbox.latest_documents(connection, "hook", page.began)
    assert (again, latest["transition"]) == (1, "opened")
