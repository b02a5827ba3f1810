"""What PagerDuty, Slack, Teams and mail are sent: shapes, limits, and one identity for the life of an incident."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.alerting.alertmanager import webhook_note
from monitor.alerting.mail import made_message
from monitor.alerting.pagerduty import change_body, change_url, dedup_key, event_body
from monitor.alerting.slack import message_body
from monitor.alerting.teams import card_body

DOCUMENT: dict[str, Any] = {
    "transition": "opened",
    "route": "chat-prod",
    "labels": {"team": "chat"},
    "severity": "page",
    "domain": "coding",
    "domains": ["coding", "math"],
    "rule": "acceptance-drop",
    "replica": "http://vllm-0:8000",
    "opened_at": "2026-03-02T10:11:00+00:00",
    "happened_at": "2026-03-02T10:31:00+00:00",
    "link": "https://specwatch.example.com/incidents/12",
    "runbook_url": "https://wiki.example.com/specwatch",
    "summary": "PAGE chat-prod · coding: acceptance length 2.20, 35% below",
    "text": "PAGE chat-prod · coding: acceptance length 2.20, 35% below\n  evidence   <-35.5%> & more",
}
RESOLVED = {**DOCUMENT, "transition": "resolved", "domains": [], "involved": {"coding": {}, "math": {}}}
NOTE: dict[str, Any] = {
    "bump_id": 5,
    "transition": "note",
    "route": "chat-prod",
    "labels": {"team": "chat"},
    "announcement": {"by": "ci"},
    "domains": [{"domain": "coding", "change": -0.22}],
    "opened_at": "2026-03-02T10:11:00+00:00",
    "happened_at": "2026-03-02T10:31:00+00:00",
    "link": None,
    "change_link": "https://ci.example.com/42",
    "runbook_url": None,
    "summary": "BUMP chat-prod · after bump to k 5: coding -22.0%",
    "text": "BUMP chat-prod · after bump to k 5: coding -22.0%\n  domains    coding: …",
}
BARE = {**DOCUMENT, "link": None, "runbook_url": None}
LONG = {**DOCUMENT, "summary": "s" * 2000, "text": "s" * 2000 + "\n" + "t" * 9000}


class TestPagerDuty:
    def test_who_looks_after_it_acknowledges_the_alert_under_its_key(self) -> None:
        document = {**DOCUMENT, "transition": "acknowledged", "acknowledged_by": "ann"}
        body = event_body("R0123", 12, document, None)
        assert (body["event_action"], body["dedup_key"]) == ("acknowledge", dedup_key(12, DOCUMENT))

    def test_an_opening_triggers_a_critical_alert_with_its_links(self) -> None:
        assert event_body("R0123", 12, DOCUMENT, "https://specwatch.example.com") == {
            "routing_key": "R0123",
            "event_action": "trigger",
            "dedup_key": "specwatch/chat-prod/12/2026-03-02T10:11:00+00:00",
            "payload": {
                "summary": DOCUMENT["summary"],
                "source": "http://vllm-0:8000",
                "severity": "critical",
                "timestamp": "2026-03-02T10:31:00+00:00",
                "component": "chat-prod",
                "class": "acceptance-drop",
                "custom_details": {
                    "text": DOCUMENT["text"],
                    "domains": ["coding", "math"],
                    "labels": {"team": "chat"},
                },
            },
            "client": "Specwatch",
            "client_url": "https://specwatch.example.com/incidents/12",
            "links": [
                {"href": "https://specwatch.example.com/incidents/12", "text": "Incident"},
                {"href": "https://wiki.example.com/specwatch", "text": "Runbook"},
            ],
        }

    @pytest.mark.parametrize(
        ("changes", "action", "severity"),
        [
            ({"transition": "updated"}, "trigger", "critical"),
            ({"severity": "warning"}, "trigger", "warning"),
            (RESOLVED, "resolve", "critical"),
        ],
    )
    def test_one_key_from_opening_to_end(self, changes: dict[str, Any], action: str, severity: str) -> None:
        body = event_body("R0123", 12, {**DOCUMENT, **changes, "happened_at": "2026-03-02T11:00:00+00:00"}, None)
        assert (body["event_action"], body["payload"]["severity"]) == (action, severity)
        assert body["dedup_key"] == dedup_key(12, DOCUMENT)
        assert body["payload"]["custom_details"]["domains"] == ["coding", "math"]

    def test_no_two_incidents_share_a_key_however_long_the_route(self) -> None:
        documents = [{**DOCUMENT, "route": "r" * 300, "opened_at": f"2026-03-0{day}T10:11:00+00:00"} for day in (1, 2)]
        keys = {dedup_key(number, document) for number in (1, 2) for document in documents}
        assert len(keys) == 4
        assert {len(key) for key in keys} == {255}

    def test_without_addresses_there_are_no_links(self) -> None:
        body = event_body("R0123", 12, BARE, None)
        assert body["links"] == []
        assert "client_url" not in body

    def test_a_summary_is_cut_at_their_limit(self) -> None:
        assert len(event_body("R0123", 12, LONG, None)["payload"]["summary"]) == 1024


class TestSlack:
    def test_the_first_line_is_header_and_notification_and_the_rest_stands_as_it_is(self) -> None:
        assert message_body(DOCUMENT) == {
            "text": DOCUMENT["summary"],
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": DOCUMENT["summary"], "emoji": False}},
                {
                    "type": "section",
                    "text": {"type": "mrkdwn", "text": "```\n  evidence   &lt;-35.5%&gt; &amp; more\n```"},
                },
                {
                    "type": "section",
                    "text": {
                        "type": "mrkdwn",
                        "text": "<https://specwatch.example.com/incidents/12|Incident> · "
                        "<https://wiki.example.com/specwatch|Runbook>",
                    },
                },
            ],
        }

    def test_a_long_message_stays_within_their_limits_and_says_that_it_is_cut(self) -> None:
        header, whole, rest, _ = message_body(LONG)["blocks"]
        assert len(header["text"]["text"]) == 150
        assert header["text"]["text"].endswith("…")
        assert whole["text"]["text"] == "s" * 2000
        assert len(rest["text"]["text"]) <= 3000
        assert rest["text"]["text"].endswith("…\n```")

    def test_of_a_first_line_longer_than_a_header_its_subject_is_the_header_and_the_whole_stands_below(self) -> None:
        summary = "PAGE chat-prod · coding: " + "acceptance length " * 10
        header, whole, *_ = message_body({**DOCUMENT, "summary": summary, "text": f"{summary}\n  more"})["blocks"]
        assert header["text"]["text"] == "PAGE chat-prod · coding"
        assert whole["text"]["text"] == summary

    def test_a_message_of_one_line_has_one_block(self) -> None:
        body = message_body({**BARE, "text": BARE["summary"]})
        assert [block["type"] for block in body["blocks"]] == ["header"]


class TestTeams:
    def test_lines_are_text_runs_with_a_colour_for_the_severity(self) -> None:
        (attachment,) = card_body(DOCUMENT)["attachments"]
        card = attachment["content"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        head, line = (block["inlines"][0] for block in card["body"])
        assert (head["text"], head["color"]) == (DOCUMENT["summary"], "Attention")
        assert (line["text"], line["fontType"]) == ("  evidence   <-35.5%> & more", "Monospace")
        assert card["actions"] == [
            {"type": "Action.OpenUrl", "title": "Incident", "url": "https://specwatch.example.com/incidents/12"},
            {"type": "Action.OpenUrl", "title": "Runbook", "url": "https://wiki.example.com/specwatch"},
        ]

    @pytest.mark.parametrize(("document", "colour"), [(RESOLVED, "Good"), ({**BARE, "severity": "warning"}, "Warning")])
    def test_an_end_is_green_and_a_warning_is_not_a_page(self, document: dict[str, Any], colour: str) -> None:
        card = card_body(document)["attachments"][0]["content"]
        assert card["body"][0]["inlines"][0]["color"] == colour


class TestMail:
    def test_text_and_html_say_the_same(self) -> None:
        message = made_message("Specwatch <s@b.example>", ["c@d.example"], "specwatch-8-mail", 12, DOCUMENT)
        assert (message["Subject"], message["To"]) == (DOCUMENT["summary"], "c@d.example")
        assert message["Importance"] == "high"
        text, html = (message.get_body((kind,)) for kind in ("plain", "html"))
        assert text is not None and html is not None  # noqa: PT018
        assert text.get_content().rstrip("\n") == DOCUMENT["text"]
        assert "<pre>  evidence   &lt;-35.5%&gt; &amp; more</pre>" in html.get_content()
        assert '<a href="https://specwatch.example.com/incidents/12">Incident</a>' in html.get_content()

    def test_a_repeat_has_the_same_id_and_the_end_is_in_the_same_thread(self) -> None:
        opened, again, ended = (
            made_message("s@b.example", ["c@d.example"], key, 12, document)
            for key, document in (("k-8", DOCUMENT), ("k-8", DOCUMENT), ("k-9", RESOLVED))
        )
        assert opened["Message-ID"] == again["Message-ID"] != ended["Message-ID"]
        assert opened["References"] == ended["References"] == "<specwatch-incident-12.20260302101100@b.example>"
        assert ended["Importance"] is None


class TestNoteOfABump:
    def test_pagerduty_gets_a_change_event_beside_its_events(self) -> None:
        assert change_body("R0123", NOTE) == {
            "routing_key": "R0123",
            "payload": {
                "summary": NOTE["summary"],
                "source": "chat-prod",
                "timestamp": "2026-03-02T10:31:00+00:00",
                "custom_details": {"text": NOTE["text"], "announced": True, "labels": {"team": "chat"}},
            },
            "links": [{"href": "https://ci.example.com/42", "text": "Change"}],
        }
        assert change_url("https://events.eu.pagerduty.com/v2/enqueue") == (
            "https://events.eu.pagerduty.com/v2/change/enqueue"
        )

    def test_a_web_hook_gets_a_body_without_alerts_that_is_neither_firing_nor_resolved(self) -> None:
        assert webhook_note("hook", NOTE, None) == {
            "version": "4",
            "groupKey": "specwatch/chat-prod/bump/5",
            "truncatedAlerts": 0,
            "status": "note",
            "receiver": "hook",
            "groupLabels": {"route": "chat-prod"},
            "commonLabels": {"team": "chat", "route": "chat-prod"},
            "commonAnnotations": {"summary": NOTE["summary"], "description": NOTE["text"]},
            "externalURL": "",
            "alerts": [],
            "bump": NOTE,
        }

    def test_slack_shows_the_text_and_the_link_of_the_change(self) -> None:
        body = message_body(NOTE)
        assert body["text"] == NOTE["summary"]
        assert body["blocks"][-1]["text"]["text"] == "<https://ci.example.com/42|Change>"

    def test_teams_shows_it_in_neither_colour(self) -> None:
        [attachment] = card_body(NOTE)["attachments"]
        assert attachment["content"]["body"][0]["inlines"][0]["color"] == "Accent"

    def test_a_mail_is_in_a_thread_of_its_bump_and_of_no_importance(self) -> None:
        mail = made_message("a@example.com", ["b@example.com"], "specwatch-9-mail", 0, NOTE)
        assert mail["Subject"] == NOTE["summary"]
        assert mail["References"] == "<specwatch-bump-5.20260302101100@example.com>"
        assert mail["Importance"] is None
