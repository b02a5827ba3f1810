"""What people do about an incident: a row for each act, shown where the incident is."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.errors import UsageError
from monitor.store import acts, incident_events, incidents
from monitor.store.forget import forget_route
from tests.factories import ROUTE, START
from tests.integration.test_shell_answers import specwatch

if TYPE_CHECKING:
    from monitor.store.database import Database

BROKEN = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})


@pytest.fixture
def incident(database: Database) -> str:
    """The id of an open incident whose opening was told."""
    with database.transaction() as connection:
        incident_id = incidents.save_state(connection, ROUTE, None, BROKEN, START)
        document = {"route": ROUTE, "severity": "page", "text": "PAGE …"}
        incident_events.add_event(connection, incident_id, Transition.OPENED, document, ["hook"], START)
    return str(incident_id)


def resolve(database: Database, incident: str) -> None:
    with database.transaction() as connection:
        incidents.save_state(connection, ROUTE, int(incident), BROKEN.without({"coding"}, START), START)


def test_an_acknowledgement_says_who_and_what_and_is_shown_with_the_incident(database: Database, incident: str) -> None:
    said = specwatch(database, "incidents", "ack", incident, "--by", "ann", "--note", "rolling  back")
    assert (said.exit_code, said.stdout) == (0, f"incident {incident} acknowledged by ann\n")
    found = json.loads(specwatch(database, "incidents", incident, "--format", "json").stdout)
    [act] = found["acts"]
    assert (act["kind"], act["by"], act["text"]) == ("acknowledged", "ann", "rolling back")
    assert "  acknowledged by ann: rolling back\n" in specwatch(database, "incidents", incident).stdout
    assert "acked by" in specwatch(database, "incidents").stdout
    [listed] = json.loads(specwatch(database, "incidents", "--format", "json").stdout)
    assert listed["acts"] == found["acts"]
    assert [len(event["deliveries"]) for event in found["events"]] == [1], "nobody is told"


def test_each_act_is_a_row_and_stands_in_the_timeline_where_it_happened(database: Database, incident: str) -> None:
    with database.transaction() as connection:
        for minutes, kind, by, said in ((1, "acknowledged", "ann", None), (2, "note", "bob", "it is the drafter")):
            acts.record_act(connection, int(incident), kind, by, said, START + timedelta(minutes=minutes))  # type: ignore[arg-type]
        later = START + timedelta(hours=1)
        incident_events.add_event(connection, int(incident), Transition.RESOLVED, {"text": "RESOLVED …"}, [], later)
        rows = connection.execute(text("SELECT kind, done_by, text FROM incident_acts ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [("acknowledged", "ann", None), ("note", "bob", "it is the drafter")]
    lines = specwatch(database, "incidents", "show", incident).stdout.splitlines()
    order = ["PAGE …", "acknowledged by ann", "note by bob: it is the drafter", "RESOLVED …"]
    assert [next(n for n, line in enumerate(lines) if line.endswith(end)) for end in order] == sorted(
        next(n for n, line in enumerate(lines) if line.endswith(end)) for end in order
    )


def test_an_incident_that_is_over_takes_notes_and_no_acknowledgement(database: Database, incident: str) -> None:
    resolve(database, incident)
    refused = specwatch(database, "incidents", "ack", incident, "--by", "ann")
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception).startswith(f"incident {incident} is over; ")
    assert specwatch(database, "incidents", "note", incident, "--by", "ann", "a bad template").exit_code == 0
    assert "note by ann: a bad template" in specwatch(database, "incidents", incident).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ack", "1"), "Missing option '--by'"),
        (("ack", "1", "--by", " "), "is empty"),
        (("note", "1", "--by", "ann"), "Missing argument 'TEXT'"),
        (("note", "1", "--by", "ann", ""), "is empty"),
    ],
)
def test_an_act_without_a_name_or_words_is_refused(
    database: Database, arguments: tuple[str, ...], message: str
) -> None:
    assert message in specwatch(database, "incidents", *arguments).stderr


def test_an_acknowledgement_is_of_the_incident_until_its_end_and_not_of_what_opens_it_again(
    database: Database, incident: str
) -> None:
    assert "reopened" not in specwatch(database, "incidents", "--open").stdout
    later = START + timedelta(hours=1)
    with database.transaction() as connection:
        acts.record_act(connection, int(incident), "acknowledged", "ann", None, START + timedelta(minutes=1))
        assert incidents.list_incidents(connection)[0]["acknowledged_by"] == "ann"
        incidents.save_state(connection, ROUTE, int(incident), BROKEN.without({"coding"}, START), START)
        incidents.save_state(connection, ROUTE, int(incident), BROKEN, later)
        document = {"route": ROUTE, "severity": "page", "text": "PAGE, AGAIN …"}
        incident_events.add_event(connection, int(incident), Transition.REOPENED, document, ["hook"], later)
    [listed] = json.loads(specwatch(database, "incidents", "--format", "json").stdout)
    found = json.loads(specwatch(database, "incidents", incident, "--format", "json").stdout)
    for shown in (listed, found):
        assert (shown["acknowledged_by"], shown["reopened_at"]) == (None, later.isoformat())
        assert [act["by"] for act in shown["acts"]] == ["ann"], "kept"
    table = specwatch(database, "incidents", "--open").stdout
    assert "reopened (" in table
    assert "ann" not in table
    assert specwatch(database, "incidents", "ack", incident, "--by", "bob").exit_code == 0
    assert "bob" in specwatch(database, "incidents", "--open").stdout


def test_an_act_about_no_incident_is_refused(database: Database) -> None:
    assert "there is no incident 9" in str(specwatch(database, "incidents", "ack", "9", "--by", "ann").exception)
    assert "there is no incident 9" in str(specwatch(database, "incidents", "9").exception)


def test_options_before_the_id_are_about_the_incident_as_those_after_it(database: Database, incident: str) -> None:
    before = specwatch(database, "incidents", "--format", "json", incident)
    after = specwatch(database, "incidents", incident, "--format", "json")
    assert (before.exit_code, before.stdout) == (0, after.stdout)


def test_a_forgotten_route_leaves_no_acts(database: Database, incident: str) -> None:
    specwatch(database, "incidents", "ack", incident, "--by", "ann")
    with database.transaction() as connection:
        forget_route(connection, ROUTE)
        assert connection.execute(text("SELECT count(*) FROM incident_acts")).scalar_one() == 0
