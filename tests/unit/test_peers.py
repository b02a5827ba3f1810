"""Peers of an Alertmanager that take no alerts: when that is worth a message, and when it is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from monitor.alerting.peer_down import peers_event
from monitor.alerting.peers import Peers, peer_names
from monitor.alerting.posting import Arrival, Failure
from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.core.peers import DOWN_AFTER, on_peers
from tests.factories import START

PEERS = ("am-0:9093", "am-1:9093")
LATER = START + DOWN_AFTER
SECOND = timedelta(seconds=1)


def known(*peers: str) -> IncidentState:
    return IncidentState({peer: BrokenDomain("peer_down", "warning", joined_at=START) for peer in peers})


def test_a_peer_is_told_of_when_it_has_taken_nothing_for_ten_minutes() -> None:
    failing, taking = {"am-1:9093": START}, {"am-0:9093"}
    assert on_peers(IncidentState(), failing, taking, LATER - SECOND) == (IncidentState(), None)
    assert on_peers(IncidentState(), failing, taking, LATER) == (known("am-1:9093"), Transition.OPENED)


def test_a_second_one_is_told_too_and_what_goes_on_is_not_told_again() -> None:
    failing = dict.fromkeys(PEERS, START)
    assert on_peers(known("am-1:9093"), failing, (), LATER) == (known("am-1:9093", "am-0:9093"), Transition.UPDATED)
    assert on_peers(known(*PEERS), failing, (), LATER) == (known(*PEERS), None)


def test_it_is_over_with_the_last_that_takes_alerts_again() -> None:
    state, transition = on_peers(known(*PEERS), {"am-1:9093": START}, {"am-0:9093"}, LATER)
    assert (list(state.domains), list(state.left), transition) == (["am-1:9093"], ["am-0:9093"], None)
    state, transition = on_peers(state, {}, PEERS, LATER)
    assert (dict(state.domains), transition) == ({}, Transition.RESOLVED)


def test_a_process_that_has_just_started_ends_nothing_that_still_fails() -> None:
    failing = {"am-1:9093": LATER}
    assert on_peers(known("am-1:9093"), failing, (), LATER + SECOND) == (known("am-1:9093"), None)


def test_of_a_peer_that_nobody_asked_yet_nothing_is_said() -> None:
    assert on_peers(known("am-1:9093"), {}, (), LATER) == (known("am-1:9093"), None)


def test_peers_are_told_apart_by_their_paths_where_they_share_a_host() -> None:
    assert peer_names(["http://am-0:9093", "https://am-1:9093/x"]) == PEERS
    assert peer_names(["http://am:9093/a", "http://am:9093/b"]) == ("am:9093/a", "am:9093/b")


def test_since_when_a_peer_fails_is_kept_until_it_does_not() -> None:
    peers = Peers("am", ["http://am-0:9093", "http://am-1:9093"])
    refused = Failure("am-1:9093: connection refused")
    for minutes, answer in enumerate((refused, refused, Arrival("am-1:9093: HTTP 200"))):
        peers.note({"am-0:9093": Arrival("am-0:9093: HTTP 200"), "am-1:9093": answer}, START + minutes * DOWN_AFTER)
        assert peers.failing == ({} if minutes == 2 else {"am-1:9093": START})
        assert peers.taking == (set(PEERS) if minutes == 2 else {"am-0:9093"})
    assert peers.failures.counts == {("am", "am-0:9093"): 0, ("am", "am-1:9093"): 2}
    assert peers.attempts.total == 6


def test_a_peer_that_fails_but_is_not_told_of_yet_is_not_told_to_take_alerts() -> None:
    joined = (START + timedelta(minutes=1)).isoformat()
    incident = {
        "id": 7,
        "route": "receiver am",
        "severity": "warning",
        "domains": {"am-1:9093": {"joined_at": joined, "left_at": None}},
        "opened_at": joined,
    }
    answers = {"am-0:9093": "am-0:9093: HTTP 500", "am-1:9093": "am-1:9093: connection refused"}
    told: dict[str, Any] = {"now": LATER, "external_url": None, "runbook_url": None}
    opened = Transition.OPENED
    assert "; no other peer is left; next: " in peers_event(incident, opened, "am", answers, (), **told)["summary"]
    summary = peers_event(incident, opened, "am", answers, ["am-0:9093"], **told)["summary"]
    assert "; am-0:9093 takes them; next: " in summary
