"""Who is told of what."""

from __future__ import annotations

import pytest

from monitor.alerting.routing import heard, receivers_for
from tests.factories import make_alerting, make_route

RECEIVERS = [{"name": name, "log": {}} for name in ("oncall", "team", "archive")]
ROUTING = [
    {"receiver": "oncall", "severity": ["page"]},
    {"receiver": "team", "match": {"team": "chat"}},
    {"receiver": "team", "routes": ["batch"]},
    {"receiver": "archive", "routes": ["batch", "chat-prod"], "severity": ["warning"]},
]


@pytest.mark.parametrize(
    ("route", "labels", "severity", "names"),
    [
        ("chat-prod", {"team": "chat"}, "page", {"oncall", "team"}),
        ("chat-prod", {"team": "chat"}, "warning", {"team", "archive"}),
        ("chat-prod", {"team": "search"}, "warning", {"archive"}),
        ("batch", {}, "page", {"oncall", "team"}),
        ("other", {}, "warning", set()),
    ],
)
def test_a_receiver_is_told_what_any_entry_routes_to_it(
    route: str, labels: dict[str, str], severity: str, names: set[str]
) -> None:
    alerting = make_alerting(receivers=RECEIVERS, routing=ROUTING)
    assert receivers_for(alerting, make_route(route, labels=labels), severity) == names


def test_without_routing_every_receiver_gets_everything() -> None:
    assert receivers_for(make_alerting(), make_route(), "warning") == {"console", "hook"}


def test_who_hears_of_which_routes_at_which_severity_is_known_beforehand() -> None:
    routes = [make_route("chat-prod", labels={"team": "chat"}), make_route("batch", labels={})]
    assert heard(make_alerting(receivers=RECEIVERS, routing=ROUTING), routes) == {
        "oncall": {"page": ["chat-prod", "batch"], "warning": []},
        "team": {"page": ["chat-prod", "batch"], "warning": ["chat-prod", "batch"]},
        "archive": {"page": [], "warning": ["chat-prod", "batch"]},
    }
