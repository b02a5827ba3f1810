"""What alerting.yaml may say."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from monitor.config.alerting import Alerting, Routing, runbook_url
from monitor.config.secrets import Secret
from tests.factories import make_route

RULES = [{"name": "acceptance-drop", "drop": "15%"}]
RECEIVERS: list[dict[str, Any]] = [{"name": "log", "log": {}}, {"name": "hook", "webhook": {"url": "http://a/hook"}}]


def alerting(**keys: Any) -> Alerting:
    return Alerting.model_validate({"rules": RULES, "receivers": RECEIVERS} | keys)


def refusal(**keys: Any) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(ValidationError) as caught:
        alerting(**keys)
    (error,) = caught.value.errors()
    return error["loc"], error["msg"].removeprefix("Value error, ")


def test_a_rule_pages_on_acceptance_length_everywhere_unless_it_says_otherwise() -> None:
    (rule,) = alerting().rules
    assert (rule.metric, rule.drop, rule.severity) == ("acceptance_length", 0.15, "page")
    assert (rule.routes, rule.domains, rule.match) == (None, None, {})


def test_without_routing_every_receiver_gets_everything() -> None:
    assert alerting().routing == (
        Routing(receiver="log", severity=("page", "warning")),
        Routing(receiver="hook", severity=("page", "warning")),
    )


def test_routing_chooses_by_severity_route_and_label() -> None:
    entry = {"receiver": "hook", "severity": ["page"], "routes": ["chat"], "match": {"tier": "interactive"}}
    assert alerting(routing=[entry]).routing == (
        Routing(receiver="hook", severity=("page",), routes=("chat",), match={"tier": "interactive"}),
    )


def test_an_empty_routing_that_would_silence_everyone_is_refused() -> None:
    assert refusal(routing=[])[0] == ("routing",)


def test_joining_domains_are_gathered_for_minutes_and_never_for_more_than_an_hour() -> None:
    assert alerting().gather_for == timedelta(minutes=5)
    assert alerting(gather_for="30s").gather_for == timedelta(seconds=30)
    assert refusal(gather_for="61m")[0] == ("gather_for",)


def test_what_breaks_again_reopens_its_incident_within_two_hours_unless_told_otherwise() -> None:
    assert alerting().reopen_within == timedelta(hours=2)
    assert alerting(reopen_within="30m").reopen_within == timedelta(minutes=30)
    assert (alerting(reopen_within="off").reopen_within, alerting(reopen_within=False).reopen_within) == (None, None)
    assert refusal(reopen_within="25h") == (
        ("reopen_within",),
        "what was over for a day is another incident; write for example 2h, or off",
    )


def test_a_page_is_told_again_every_four_hours_unless_told_otherwise() -> None:
    assert alerting().remind_every == timedelta(hours=4)
    assert alerting(remind_every="off").remind_every is None
    assert refusal(remind_every="1m") == (
        ("remind_every",),
        "reminders this often are noise; write for example 4h, or off",
    )


def test_a_heartbeat_has_a_secret_address_and_beats_every_minute() -> None:
    assert alerting().heartbeat is None
    beat = alerting(heartbeat={"url": {"env": "HEARTBEAT_URL"}}).heartbeat
    assert beat is not None
    assert (beat.url, beat.every) == (Secret(env="HEARTBEAT_URL"), timedelta(minutes=1))
    assert refusal(heartbeat={"url": "https://hc.example.com/1"})[0] == ("heartbeat", "url")
    assert refusal(heartbeat={"url": {"env": "HEARTBEAT_URL"}, "every": "2h"}) == (
        ("heartbeat", "every"),
        "a heartbeat is called every ten seconds to once an hour; write for example 1m",
    )


@pytest.mark.parametrize(
    ("key", "items"), [("rules", RULES * 2), ("receivers", [{"name": "acceptance-drop", "log": {}}] * 2)]
)
def test_a_name_is_given_once(key: str, items: list[dict[str, Any]]) -> None:
    assert refusal(**{key: items}) == ((key,), "'acceptance-drop' is given to two of them; a name is given once")


MAIL = {"host": "smtp.example.com", "sender": "specwatch@example.com", "to": ["oncall@example.com"]}


@pytest.mark.parametrize("kinds", [{}, {"log": {}, "webhook": {"url": "http://a"}}])
def test_a_receiver_is_of_exactly_one_kind(kinds: dict[str, Any]) -> None:
    assert refusal(receivers=[{"name": "x", **kinds}]) == (
        ("receivers", 0),
        "give exactly one of webhook, alertmanager, pagerduty, slack, teams, email, apprise, log",
    )


@pytest.mark.parametrize(
    ("receiver", "words"),
    [
        ({"pagerduty": {"routing_key": "R0123"}}, "a secret is not written in this file"),
        ({"slack": {"url": "https://hooks.slack.com/services/T0/B0/s3cret"}}, "a secret is not written in this file"),
        ({"apprise": {"url": "tgram://s3cret/1"}}, "a secret is not written in this file"),
        ({"teams": {"url": "https://prod.example.com/workflows/s3cret"}}, "a secret is not written in this file"),
        ({"pagerduty": {"routing_key": {"env": "KEY"}, "url": "events"}}, "'events' is not a web address"),
        ({"webhook": {"url": "http://a", "signing_secret": "whsec_x"}}, "a secret is not written in this file"),
        ({"email": {**MAIL, "to": ["oncall"]}}, "'oncall' is not a mail address"),
        ({"email": {**MAIL, "sender": "a@b.example\nBcc: c@d.example"}}, "is not a mail address"),
        ({"email": {**MAIL, "user": "me"}}, "user and password are given together, or neither"),
        (
            {"email": {**MAIL, "user": "me", "password": {"env": "P"}, "security": "none"}},
            "a password is not sent without encryption; set security to starttls or tls",
        ),
    ],
)
def test_a_receiver_with_a_mistake_is_refused_with_what_is_allowed(receiver: dict[str, Any], words: str) -> None:
    where, message = refusal(receivers=[{"name": "x", **receiver}])
    assert where[:2] == ("receivers", 0)
    assert words in message
    assert "s3cret" not in message


def test_names_may_stand_before_mail_addresses() -> None:
    mail = {**MAIL, "sender": "Specwatch <specwatch@example.com>"}
    (receiver,) = alerting(receivers=[{"name": "mail", "email": mail}]).receivers
    assert receiver.email is not None
    assert (receiver.kind, receiver.email.sender) == ("email", "Specwatch <specwatch@example.com>")
    assert (receiver.email.port, receiver.email.security) == (587, "starttls")


def test_a_webhook_address_may_itself_be_a_secret() -> None:
    receiver = {"name": "hook", "webhook": {"url": {"env": "HOOK_URL"}, "timeout": "3s"}}
    (hook,) = alerting(receivers=[receiver]).receivers
    assert hook.webhook is not None
    assert hook.webhook.url == Secret(env="HOOK_URL")
    assert hook.webhook.timeout == timedelta(seconds=3)


def test_a_webhook_address_with_a_password_is_refused_without_repeating_it() -> None:
    location, message = refusal(receivers=[{"name": "hook", "webhook": {"url": "https://me:hunter2@a/hook"}}])
    assert location == ("receivers", 0, "webhook", "url")
    assert message == "a URL with a user or password in it is refused; name the whole URL as a secret"


def test_a_webhook_needs_a_web_address() -> None:
    assert refusal(receivers=[{"name": "hook", "webhook": {"url": "alerts:9000"}}])[1] == (
        "'alerts:9000' is not a web address; write for example https://alerts.example.com/hook"
    )


def test_the_external_address_loses_its_last_slash() -> None:
    assert alerting(external_url="https://specwatch.example.com/").external_url == "https://specwatch.example.com"


def test_an_incident_is_over_after_two_good_runs_unless_said_otherwise() -> None:
    assert alerting().resolve.runs == 2
    assert alerting(resolve={"runs": 3}).resolve.runs == 3


@pytest.mark.parametrize(
    "rule",
    [{"drop": 15}, {"drop": "15%", "metric": "speed"}, {"drop": "15%", "severity": "critical"}, {"drop": "0%"}],
)
def test_a_rule_with_a_wrong_value_is_refused(rule: dict[str, Any]) -> None:
    assert refusal(rules=[{"name": "x", **rule}])[0][:2] == ("rules", 0)


def test_the_end_of_a_silence_is_told_a_quarter_of_an_hour_ahead_unless_it_says_otherwise() -> None:
    assert alerting().silence_notice == timedelta(minutes=15)
    assert alerting(silence_notice="off").silence_notice is None
    assert refusal(silence_notice="2d") == (
        ("silence_notice",),
        "the end of a silence is told a day ahead at most; write for example 15m, or off",
    )


def test_the_runbook_of_a_rule_goes_before_that_of_the_route_and_that_before_the_one_of_all() -> None:
    general, of_route, of_rule = (f"https://wiki.example.com/{name}" for name in ("all", "chat", "dead"))
    found = alerting(runbook_url=f"{general}/", rules=[{"name": "drop", "drop": "15%", "runbook_url": of_rule}])
    (rule,) = found.rules
    own, other = make_route(runbook_url=of_route), make_route()
    assert [runbook_url(found, route, rule) for route in (own, other)] == [of_rule, of_rule]
    assert [runbook_url(found, route) for route in (own, other)] == [of_route, general]
    plain = rule.model_copy(update={"runbook_url": None})
    assert (runbook_url(found, own, plain), runbook_url(alerting(), other, plain)) == (of_route, None)


def test_an_absolute_rule_has_a_floor_and_no_drop() -> None:
    (rule,) = alerting(rules=[{"name": "dead", "metric": "first_position_survival", "below": "5%"}]).rules
    assert (rule.below, rule.drop, rule.severity) == (0.05, None, "page")


@pytest.mark.parametrize("metric", ["acceptance_length", "tokens_per_step"])
def test_what_a_step_yields_is_held_against_its_break_even(metric: str) -> None:
    (rule,) = alerting(rules=[{"name": "losing", "metric": metric, "below": "break_even"}]).rules
    assert (rule.below, rule.drop) == ("break_even", None)


def test_speedup_has_a_floor_that_is_no_share_or_a_drop() -> None:
    rules = [
        {"name": "losing", "metric": "speedup", "below": 1.0},
        {"name": "less", "metric": "speedup", "drop": "15%"},
    ]
    assert [(rule.below, rule.drop) for rule in alerting(rules=rules).rules] == [(1.0, None), (None, 0.15)]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "give exactly one of drop, below and leak"),
        ({"drop": "15%", "below": "5%"}, "give exactly one of drop, below and leak"),
        ({"drop": "15%", "leak": True}, "give exactly one of drop, below and leak"),
        (
            {"metric": "first_position_survival", "below": 5},
            "below 5 is not between 0% and 100%; did you mean 5%?",
        ),
        (
            {"metric": "speedup", "leak": True, "severity": "warning"},
            "speedup is measured too rarely for a leak to accumulate; give drop or below",
        ),
        ({"leak": True}, "a slow leak wakes nobody; write severity: warning"),
        (
            {"metric": "first_position_survival", "drop": "15%"},
            "first_position_survival has no baseline to drop from; give below, for example 5%",
        ),
        (
            {"below": "5%"},
            "a number below is for metric first_position_survival or speedup; acceptance_length is given",
        ),
        (
            {"metric": "throughput", "below": "break_even"},
            "below: break_even is for metric acceptance_length or tokens_per_step, not for throughput",
        ),
    ],
)
def test_a_drop_and_a_floor_are_not_mixed_up(rule: dict[str, Any], message: str) -> None:
    assert message in str(refusal(rules=[{"name": "x", **rule}]))


def test_without_a_runbook_the_service_s_own_page_is_read_where_it_can_be_reached() -> None:
    route, address = make_route(), "https://specwatch.example.com"
    assert runbook_url(alerting(external_url=f"{address}/"), route) == f"{address}/runbook"
    assert runbook_url(alerting(external_url=address, runbook_url="https://wiki.example.com/s"), route) == (
        "https://wiki.example.com/s"
    )
    assert runbook_url(alerting(), route) is None
