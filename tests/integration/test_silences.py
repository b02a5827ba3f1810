"""Silences: what is held is not lost, what still fires is told, and whoever heard a beginning hears its end."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.alertmanager import webhook_body
from monitor.core.format import timeline
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.errors import UsageError
from monitor.store import incident_events, incidents, outbox, runs, silences
from monitor.store.forget import forget_route
from tests.factories import ROUTE, START, make_alerting, make_run
from tests.integration.test_gathering import SECOND, WARNS_AND_PAGES, WINDOW, Several, both, told_of_coding
from tests.integration.test_shell_answers import specwatch

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from monitor.store.database import Database

HOUR = timedelta(hours=1)
END = START + 2 * HOUR
BROKEN = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})


def silence(connection: Connection, **changes: Any) -> int:
    """A silence of everything for two hours; the keywords narrow it."""
    return int(silences.add_silence(connection, "ann", "rollout", END, START, **changes)["id"])


def incident(connection: Connection, severity: str = "page") -> int:
    state = IncidentState({"coding": BrokenDomain("acceptance-drop", severity)})
    incident_id = incidents.save_state(connection, ROUTE, None, state, START)
    told(connection, incident_id, Transition.OPENED)
    return incident_id


def told(connection: Connection, incident_id: int, transition: Transition) -> None:
    document = {"route": ROUTE, "labels": {"team": "chat", "tier": "one"}, "text": transition.value}
    incident_events.add_event(connection, incident_id, transition, document, ["hook"], START)


def resolved(connection: Connection, incident_id: int) -> None:
    incidents.save_state(connection, ROUTE, incident_id, BROKEN.without({"coding"}, START), START)
    told(connection, incident_id, Transition.RESOLVED)


def sent(connection: Connection, after: timedelta = timedelta(0)) -> list[str]:
    """The transitions that a sender sends at that time, until it has nothing to do."""
    found = []
    while claimed := outbox.claim_deliveries(connection, START + after, timedelta(seconds=30), 50):
        for delivery in claimed:
            outbox.mark_sent(connection, delivery.id, START + after)
            found.append(delivery.transition)
    return found


def states(connection: Connection, incident_id: int) -> list[str]:
    found = incidents.get_incident(connection, incident_id)
    assert found is not None
    return [delivery["state"] for event in found["events"] for delivery in event["deliveries"]]


def test_a_silenced_message_is_held_and_told_when_the_silence_ends_and_it_still_fires(connection: Connection) -> None:
    silence(connection)
    incident_id = incident(connection)
    assert sent(connection) == []
    assert states(connection, incident_id) == ["silenced"]
    assert sent(connection, 2 * HOUR - SECOND) == []
    assert sent(connection, 2 * HOUR) == ["opened"]
    assert states(connection, incident_id) == ["sent"]


def test_a_silence_that_is_ended_early_holds_nothing_more(connection: Connection) -> None:
    silence_id = silence(connection)
    incident(connection)
    assert sent(connection) == []
    ended = silences.end_silence(connection, silence_id, "bob", START + HOUR)
    assert (ended["state"], ended["ended_by"], ended["ended_at"]) == ("ended", "bob", (START + HOUR).isoformat())
    assert sent(connection, HOUR) == ["opened"]


def test_an_end_is_told_in_a_silence_to_whoever_was_told_of_the_beginning(connection: Connection) -> None:
    incident_id = incident(connection)
    assert sent(connection) == ["opened"]
    silence(connection)
    told(connection, incident_id, Transition.UPDATED)
    assert sent(connection) == []
    resolved(connection, incident_id)
    assert sent(connection) == ["resolved"]
    assert states(connection, incident_id) == ["sent", "silenced", "sent"]
    assert sent(connection, 3 * HOUR) == [], "it is over: there is nothing to tell"


def test_what_is_sent_again_to_an_alertmanager_is_what_no_silence_holds(connection: Connection) -> None:
    incident_id = incident(connection)
    assert sent(connection) == ["opened"]
    silence(connection)
    told(connection, incident_id, Transition.UPDATED)
    assert sent(connection) == []
    [(again, document)] = outbox.latest_documents(connection, "hook", START)
    assert (again, document["text"]) == (incident_id, "opened"), "it must not be taken for over, nor for more"


def test_what_began_and_ended_in_a_silence_is_told_to_nobody(connection: Connection) -> None:
    silence(connection)
    incident_id = incident(connection)
    assert sent(connection) == []
    resolved(connection, incident_id)
    assert sent(connection, HOUR) == []
    assert sent(connection, 3 * HOUR) == []
    assert states(connection, incident_id) == ["silenced", "silenced"]


def test_what_a_silence_kept_of_an_incident_that_is_over_is_not_told_when_it_comes_again(
    connection: Connection,
) -> None:
    silence(connection)
    incident_id = incident(connection)
    assert sent(connection) == []
    resolved(connection, incident_id)
    assert sent(connection, HOUR) == []
    incidents.save_state(connection, ROUTE, incident_id, BROKEN, START + HOUR)
    told(connection, incident_id, Transition.REOPENED)
    assert sent(connection, HOUR) == []
    assert sent(connection, 2 * HOUR) == ["reopened"]
    assert states(connection, incident_id) == ["gathered", "gathered", "sent"]


def test_a_receiver_whose_message_was_tried_before_the_silence_hears_the_end(connection: Connection) -> None:
    incident_id = incident(connection)
    [delivery] = outbox.claim_deliveries(connection, START, timedelta(seconds=30), 50)
    outbox.mark_retry(connection, delivery, "no answer within 25 s", START + SECOND)
    silence(connection)
    assert sent(connection, SECOND) == []
    resolved(connection, incident_id)
    assert sent(connection, 2 * SECOND) == ["resolved"], "the try that got no answer may have arrived"


def test_a_message_that_is_being_sent_is_left_to_its_sender(connection: Connection) -> None:
    incident_id = incident(connection)
    assert len(outbox.claim_deliveries(connection, START, timedelta(seconds=30), 50)) == 1
    silence(connection)
    assert sent(connection, SECOND) == []
    assert states(connection, incident_id) == ["pending"]


@pytest.mark.parametrize(
    ("narrowed", "holds"),
    [
        ({}, True),
        ({"route": ROUTE}, True),
        ({"route": "batch"}, False),
        ({"labels": {"team": "chat"}}, True),
        ({"labels": {"team": "chat", "tier": "two"}}, False),
        ({"severity": "page"}, True),
        ({"severity": "warning"}, False),
        ({"route": ROUTE, "labels": {"tier": "one"}, "severity": "page"}, True),
        ({"route": ROUTE, "severity": "warning"}, False),
    ],
)
def test_a_silence_covers_what_fits_all_that_it_names(
    connection: Connection, narrowed: dict[str, Any], holds: bool
) -> None:
    silence(connection, **narrowed)
    incident(connection)
    assert sent(connection) == ([] if holds else ["opened"])


def test_of_two_silences_the_last_to_end_counts(connection: Connection) -> None:
    first, _ = silence(connection), silence(connection, route=ROUTE)
    incident_id = incident(connection)
    assert sent(connection) == []
    silences.end_silence(connection, first, None, START + HOUR)
    assert sent(connection, HOUR) == []
    assert sent(connection, 2 * HOUR) == ["opened"]
    assert states(connection, incident_id) == ["sent"]


def test_what_joined_in_a_silence_is_told_in_one_message_after_it(database: Database) -> None:
    several = Several(database)
    several.breaks("coding", timedelta(0))
    with database.transaction() as connection:
        silences.add_silence(connection, "ann", "rollout", several.began + HOUR, several.began)
    assert several.sent(timedelta(0)) == []
    several.breaks("qa", WINDOW)
    assert several.sent(WINDOW) == []
    several.breaks("math", 3 * WINDOW)
    assert several.sent(3 * WINDOW) == []
    assert several.states() == [("coding", "silenced"), ("qa", "gathered"), ("math", "silenced")]
    assert several.sent(HOUR) == both("opened", "coding")
    assert several.sent(HOUR) == both("updated", "math", "qa")


def test_a_silence_of_warnings_ends_with_the_warning_and_a_raise_that_was_silenced_is_not_forgotten(
    database: Database,
) -> None:
    several = told_of_coding(Several(database, make_alerting(rules=WARNS_AND_PAGES)), 2.11)
    with database.transaction() as connection:
        silences.add_silence(connection, "ann", "known", several.began + HOUR, several.began, severity="warning")
        silences.add_silence(connection, "ann", "known", several.began + HOUR / 2, several.began, severity="page")
    several.breaks("qa", SECOND)
    assert several.sent(SECOND) == []
    several.breaks("math", 2 * SECOND)
    assert several.sent(WINDOW + 2 * SECOND) == []
    assert several.sent(HOUR / 2) == both("updated", "math", "qa")
    assert several.get_incident(1)["events"][-1]["raised_from"] == "warning"


def test_the_end_of_what_rose_in_a_silence_ends_the_alert_that_was_told_before_it(database: Database) -> None:
    alerting = make_alerting(rules=WARNS_AND_PAGES, resolve={"runs": 1})
    several = told_of_coding(Several(database, alerting), 2.11)
    with database.transaction() as connection:
        silences.add_silence(connection, "ann", "rolling it back", several.began + HOUR, several.began)
    several.breaks("math", SECOND)
    assert several.sent(SECOND) == []
    for domain in ("coding", "math"):
        several.heals(domain, 2 * SECOND)
    assert several.sent(2 * SECOND) == both("resolved")
    opened, *_, ended = (webhook_body("hook", 1, event, None) for event in several.get_incident(1)["events"])
    alerts = {(alert["fingerprint"], alert["labels"]["severity"], alert["status"]) for alert in ended["alerts"]}
    assert alerts == {("1000000000000001", "page", "resolved"), ("0000000000000001", "warning", "resolved")}
    assert opened["alerts"][0]["fingerprint"] == "0000000000000001"


# -- the commands


def test_a_silence_says_who_why_and_until_when_wherever_it_is_shown(database: Database) -> None:
    with database.transaction() as connection:
        runs.store_run(connection, "one", make_run())
    arguments = ("--by", "ann", "--reason", "new  drafter", "--for", "2h", "--route", ROUTE, "--label", "team=chat")
    made = specwatch(database, "silence", "add", *arguments, "--severity", "page")
    assert (made.exit_code, made.stdout[: made.stdout.index(" until")]) == (
        0,
        f"silence 1 of route {ROUTE}, label team=chat, page",
    )
    assert made.stdout.endswith(" by ann: new drafter\n")
    [listed] = json.loads(specwatch(database, "silence", "list", "--format", "json").stdout)
    assert {name: listed[name] for name in ("state", "route", "labels", "severity", "by", "reason", "ended_at")} == {
        "state": "active",
        "route": ROUTE,
        "labels": {"team": "chat"},
        "severity": "page",
        "by": "ann",
        "reason": "new drafter",
        "ended_at": None,
    }
    assert "new drafter" in specwatch(database, "silence", "list").stdout
    ended = specwatch(database, "silence", "end", "1", "--by", "bob")
    assert ended.stdout == f"silence 1 of route {ROUTE}, label team=chat, page has ended\n"
    assert specwatch(database, "silence", "list").stderr == "nothing is silenced\n"
    assert "ended early by bob" in specwatch(database, "silence", "list", "--all").stdout


def test_an_incident_shows_what_holds_its_messages(database: Database) -> None:
    with database.transaction() as connection:
        silence(connection, severity="page")
        incident_id = incident(connection)
        sent(connection)
    shown = specwatch(database, "incidents", str(incident_id)).stdout
    assert "  silence 1 of page, until " in shown
    assert ", by ann: rollout\n" in shown
    assert re.search(
        r"^  told       hook: not sent, silenced by silence 1 until 2026-03-02 \d\d:00:00 \w+$", shown, re.MULTILINE
    )
    found = json.loads(specwatch(database, "incidents", str(incident_id), "--format", "json").stdout)
    assert [(one["id"], one["by"], one["reason"], one["ends_at"]) for one in found["silences"]] == [
        (1, "ann", "rollout", END.isoformat())
    ]
    assert found["events"][0]["deliveries"][0]["silence_id"] == 1


def test_what_a_silence_held_says_so_once_it_was_sent(connection: Connection) -> None:
    silence_id = silence(connection)
    incident_id = incident(connection)
    assert sent(connection) == []
    assert sent(connection, 2 * HOUR) == ["opened"]
    found = incidents.get_incident(connection, incident_id)
    assert found is not None
    end = END.isoformat()
    assert f"  told       hook: sent at {end}, held by silence {silence_id} until {end}, 1 attempt" in timeline(
        found, str
    )


def test_a_message_that_gathers_says_until_when_and_which_silence_will_hold_it_then(connection: Connection) -> None:
    now = datetime.now(UTC)
    gathers_until, ends_at = now + WINDOW, now + HOUR
    incident_id = incidents.save_state(connection, ROUTE, None, BROKEN, now)
    document = {"route": ROUTE, "labels": {}, "text": "ALSO"}
    incident_events.add_event(connection, incident_id, Transition.UPDATED, document, ["hook"], now, gathers_until)

    def told_of_hook() -> list[str]:
        found = incidents.get_incident(connection, incident_id)
        assert found is not None
        return [line for line in timeline(found, str).splitlines() if "hook" in line]

    waits = f"  told       hook: not sent yet, gathers further domains until {gathers_until.isoformat()}"
    assert told_of_hook() == [waits]
    silences.add_silence(connection, "ann", "too short", gathers_until, now)
    assert told_of_hook() == [waits], "that silence is over when the message is due"
    made = silences.add_silence(connection, "ann", "rollout", ends_at, now)
    assert told_of_hook() == [f"{waits}, then silenced by silence {made['id']} until {ends_at.isoformat()}"]
    resolved(connection, incident_id)
    end, update = told_of_hook()
    assert update.startswith("  told       hook: pending, 0 attempts; from now on silenced by silence"), "hastened"
    assert end.startswith("  told       hook: pending, 0 attempts; next at "), "an end is told to who was told"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reason", "r", "--for", "2h"), "Missing option '--by'"),
        (("--by", "ann", "--for", "2h"), "Missing option '--reason'"),
        (("--by", "ann", "--reason", " ", "--for", "2h"), "is empty"),
        (("--by", "ann", "--reason", "r"), "Missing option '--for'"),
        (("--by", "ann", "--reason", "r", "--for", "soon"), "'soon' is not a duration"),
        (("--by", "ann", "--reason", "r", "--for", "31d"), "31d is more than 30 days"),
        (("--by", "ann", "--reason", "r", "--for", "2h", "--label", "team"), "team is not a label"),
    ],
)
def test_a_silence_without_creator_reason_or_end_is_refused(
    database: Database, arguments: tuple[str, ...], message: str
) -> None:
    assert message in specwatch(database, "silence", "add", *arguments).stderr


def test_a_silence_of_a_route_that_is_not_there_is_refused(database: Database) -> None:
    arguments = ("--by", "ann", "--reason", "r", "--for", "2h", "--route", "nope")
    assert "there is no route nope" in str(specwatch(database, "silence", "add", *arguments).exception)


def test_what_is_no_silence_or_over_cannot_be_ended(connection: Connection) -> None:
    silence_id = silence(connection)
    with pytest.raises(UsageError, match="there is no silence 99"):
        silences.end_silence(connection, 99, None, START)
    with pytest.raises(UsageError, match=f"silence {silence_id} has ended already"):
        silences.end_silence(connection, silence_id, None, END)


def test_a_forgotten_route_leaves_no_silence(connection: Connection) -> None:
    silence(connection, route=ROUTE)
    incident(connection)
    sent(connection)
    forget_route(connection, ROUTE)
    assert silences.list_silences(connection, START) == []
