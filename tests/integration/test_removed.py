"""An incident whose route or domains leave routes.yaml ends, and says why; everybody else's stays open."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.alertmanager import api_body
from monitor.core.incidents import BrokenDomain, IncidentState, Transition, Worst
from monitor.service.removed import close_removed
from monitor.service.serve import Service
from monitor.store import incident_events, incidents
from tests.factories import ROUTE, START, make_alerting, make_config, make_route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from monitor.store.database import Database

LATER = START + timedelta(hours=3)
WORST = Worst("acceptance_length", -0.2, 1.92, 2.4, (31, 33))
BROKEN = BrokenDomain("acceptance-drop", "page", worst=WORST, joined_at=START)


def opened(
    connection: Connection,
    route: str = ROUTE,
    *domains: str,
    receivers: tuple[str, ...] = ("hook",),
    kind: str = incidents.ACCEPTANCE,
    said: Mapping[str, str] | None = None,
) -> int:
    """An open incident of these domains, told to these receivers; what is `said` beside the rest."""
    state = IncidentState(dict.fromkeys(domains or ("coding",), BROKEN))
    incident_id = incidents.save_state(connection, route, None, state, START, kind)
    document = {"route": route, "labels": {"team": "chat"}, "severity": "page", "text": "PAGE …", **(said or {})}
    incident_events.add_event(connection, incident_id, Transition.OPENED, document, receivers, START)
    return incident_id


def closed(connection: Connection) -> list[int]:
    """Ids of what is closed when everything that is open is looked at."""
    looked_at = [
        close_removed(connection, make_config(), subject, kind, LATER)
        for subject, kind in incidents.open_subjects(connection)
    ]
    return [incident_id for incident_id in looked_at if incident_id is not None]


def found(connection: Connection, incident_id: int) -> dict[str, Any]:
    document = incidents.get_incident(connection, incident_id)
    assert document is not None
    return document


def test_an_incident_of_a_removed_route_is_closed_and_those_who_were_told_hear_why(connection: Connection) -> None:
    incident_id = opened(connection, "removed", receivers=("hook", "gone"))
    assert closed(connection) == [incident_id]
    incident = found(connection, incident_id)
    assert (incident["state"], incident["resolved_at"]) == ("resolved", LATER.isoformat())
    assert incident["domains"]["coding"]["left_at"] == LATER.isoformat()
    event = incident["events"][-1]
    assert (event["transition"], event["reason"]) == ("resolved", "route removed from configuration")
    assert event["labels"] == {"team": "chat"}, "the same alert at the receiver as the one that opened"
    assert event["text"].splitlines()[0] == (
        "RESOLVED removed · coding: route removed from configuration, after 3 h 0 min; "
        f"nothing was measured to be well; incident {incident_id}"
    )
    assert [d["receiver"] for d in event["deliveries"]] == ["hook"], "console was not told of it, gone is gone"


@pytest.mark.parametrize(
    ("route", "kind", "name"),
    [
        ("removed", None, "SpecwatchAcceptanceDrop"),
        ("removed", "stale", "SpecwatchNotMeasured"),
        ("removed", "speedup", "SpecwatchSpeedup"),
        ("receiver gone", "undelivered", "SpecwatchUndelivered"),
        ("receiver gone", "peer_down", "SpecwatchPeerDown"),
    ],
)
def test_what_is_closed_ends_the_very_alert_that_its_opening_was(
    connection: Connection, route: str, kind: str | None, name: str
) -> None:
    said = {} if kind is None else {"kind": kind}
    incident_id = opened(connection, route, kind=kind or incidents.ACCEPTANCE, said=said)
    assert closed(connection) == [incident_id]
    document = found(connection, incident_id)["events"][-1]
    [alert] = api_body(incident_id, document, LATER, timedelta(minutes=4))
    assert alert["endsAt"] == LATER.isoformat()
    assert alert["labels"] == {
        "alertname": name,
        "incident": str(incident_id),
        "route": route,
        "severity": "page",
        "team": "chat",
    }


def test_incidents_of_configured_routes_and_domains_stay_open(connection: Connection) -> None:
    incident_id = opened(connection)
    before = found(connection, incident_id)
    assert closed(connection) == []
    assert found(connection, incident_id) == before


def test_a_removed_domain_leaves_the_incident_and_the_others_keep_it_open(connection: Connection) -> None:
    incident_id = opened(connection, ROUTE, "coding", "qa")
    assert closed(connection) == []
    incident = found(connection, incident_id)
    assert (incident["state"], len(incident["events"])) == ("open", 1)
    assert {name: domain["left_at"] for name, domain in incident["domains"].items()} == {
        "coding": None,
        "qa": LATER.isoformat(),
    }


def test_with_its_last_domain_removed_the_incident_is_closed(connection: Connection) -> None:
    incident_id = opened(connection, ROUTE, "qa")
    assert closed(connection) == [incident_id]
    assert found(connection, incident_id)["events"][-1]["reason"] == "its domains removed from configuration"


def test_what_was_closed_is_not_closed_again(connection: Connection) -> None:
    incident_id = opened(connection, "removed")
    assert closed(connection) == [incident_id]
    assert closed(connection) == []
    assert len(found(connection, incident_id)["events"]) == 2


@pytest.mark.parametrize(("closes_removed", "state"), [(True, "resolved"), (False, "open")])
def test_serve_closes_them_at_its_start_and_the_demo_does_not(
    database: Database, closes_removed: bool, state: str
) -> None:
    with database.transaction() as connection:
        incident_id = opened(connection, "removed")
    config = make_config(make_route(), alerting=make_alerting(receivers=[{"name": "hook", "log": {}}]))
    service = Service(config, database, {}, listen=("127.0.0.1", 0), closes_removed=closes_removed)
    service._reconcile()
    with database.transaction() as connection:
        assert found(connection, incident_id)["state"] == state
