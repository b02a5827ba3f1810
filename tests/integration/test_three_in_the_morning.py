"""What every receiver sends of each kind of message, read as whoever it wakes reads it: first line and next step."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import yaml
from click.testing import CliRunner

from monitor.alerting.alertmanager import webhook_body, webhook_note
from monitor.alerting.dead_letters import DeadLetters
from monitor.alerting.mail import made_message
from monitor.alerting.pagerduty import change_body, event_body
from monitor.alerting.posting import Failure, Why
from monitor.alerting.slack import message_body
from monitor.alerting.teams import card_body
from monitor.cli import cli
from monitor.core.records import Reason
from monitor.service.jobs import ProbeJob
from monitor.service.reminding import Reminding
from monitor.service.silence_ends import SilenceEnds
from monitor.service.stale import StaleWatch
from monitor.store import outbox, silences
from tests.factories import IDENTITY, ROUTE, make_alerting
from tests.integration.test_gathering import SECOND, WINDOW, Several

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from monitor.store.database import Database
    from monitor.store.outbox import Delivery

_OTHERS = "math qa rag reasoning roleplay stem summarization writing humanities multilingual"
ELEVEN = ("coding", *_OTHERS.split())
HOUR = timedelta(hours=1)
SWAPPED = replace(IDENTITY, drafter="org/other")
NOBODY_THERE = "http://127.0.0.1:9/"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
ALL = rf"{ROUTE} · all 11 domains"
SEE = "next: specwatch incidents"
WORST = r"1\.62 by request, 33% below its baseline 2\.40"
FIRST_LINES = {
    "one": rf"PAGE {ROUTE} · coding: acceptance length 1\.92 by request, 20% below its baseline 2\.40, "
    rf"since {TIME}; {SEE} 1",
    "eleven": rf"PAGE, NOW ALSO {ROUTE} · 10 more, now all 11 domains: acceptance length of \w+, the worst, {WORST}, "
    rf"since {TIME}; {SEE} 1",
    "reminder": rf"PAGE, STILL {ALL}: \w+, the worst, acceptance length {WORST}, as last measured 4 h 59 min ago, "
    rf"since {TIME}; open for 5 h 0 min, nobody has acknowledged it; {SEE} ack 1 --by NAME",
    "silence": rf"SILENCE ENDS SOON {ALL}: “a rollout” by ann ends in 15 min 0 s, at {TIME}, and incident 1 "
    rf"\(page\) is still open: acceptance length of \w+, the worst, {WORST}, since {TIME}; {SEE} 1",
    "resolved": rf"RESOLVED {ALL}: acceptance length of \w+, the last to heal, is back at 2\.40 by request, "
    r"level with its baseline 2\.40, after 9 h 0 min; incident 1",
    "stale": rf"WARNING {ALL}: not measured for 1 h 21 min, no valid run since {TIME}: no run was made; {SEE} 2",
    "undelivered": rf"WARNING receiver hook: could not deliver, since {TIME}, “WARNING {ALL}” of incident 2: "
    "hook: HTTP 401; next: specwatch receivers test hook",
    "measured": rf"MEASURED AGAIN AND DOWN {ALL}: coding, the worst, acceptance length 1\.92 by request, 20% below its "
    rf"baseline 2\.40; an alert follows if confirmation runs agree; no valid run from {TIME} to {TIME}; "
    r"next: specwatch run show \d+",
    "bump": rf"BUMP {ROUTE} · after bump to drafter org/other, first seen {TIME}: "
    r"acceptance length of all 11 domains changed, each -20\.0% \(coding: 95 % interval -\d\d\.\d% to -\d\d\.\d%\); "
    r"against baselines 1-11 of \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d \(vllm 0\.29\.1, org/drafter, K 3\); "
    rf"nobody announced it; an alert follows if confirmation runs agree; next: specwatch bumps --route {ROUTE}",
}
ELSE_THAN_0 = {
    # by the end of the night
    "incidents ack": lambda result: "incident 1 is over" in str(result.exception),
    "receivers test": lambda result: "the test message was not accepted" in str(result.exception),
    # ten runs of what runs now are not there yet
    "baseline create": lambda result: "are of several identities" in str(result.exception),
}


class Night(Several):
    """A route of eleven domains; what is sent to one web hook is kept under the name of what happened."""

    domains = ELEVEN

    def __init__(self, database: Database) -> None:
        hooks = [{"name": name, "webhook": {"url": NOBODY_THERE}} for name in ("hook", "pager")]
        self.alerting = make_alerting(receivers=hooks)
        super().__init__(database, self.alerting)
        self.heard: dict[str, Delivery] = {}

    def claims(self, after: timedelta) -> list[Delivery]:
        with self.database.transaction() as connection:
            return outbox.claim_deliveries(connection, self.began + after, timedelta(seconds=30), 50)

    def tells(self, after: timedelta, *names: str) -> None:
        """What is sent at that time: as many messages as there are names, in this order."""
        found = self.claims(after)
        with self.database.transaction() as connection:
            for delivery in found:
                outbox.mark_sent(connection, delivery.id, self.began + after)
        to_pager = [delivery for delivery in found if delivery.receiver == "pager"]
        self.heard |= dict(zip(names, to_pager, strict=True))

    def passes(self) -> None:
        now = self.began
        for domain in ELEVEN:
            self.at(timedelta(minutes=-40), ProbeJob(f"before {domain}", ROUTE, domain, "", Reason.SCHEDULED), 2.4)
        self.breaks("coding", 0 * SECOND)
        self.tells(0 * SECOND, "one")
        for number, domain in enumerate(ELEVEN[1:], 1):
            self.breaks(domain, number * SECOND, 1.92 - number * 0.03)
        self.tells(WINDOW, "eleven")
        Reminding(self.database, self.config, lambda: now + 5 * HOUR).remind()
        self.tells(5 * HOUR, "reminder")
        with self.database.transaction() as connection:
            silences.add_silence(connection, "ann", "a rollout", now + 7 * HOUR, now + 6 * HOUR, route=ROUTE)
        SilenceEnds(self.database, self.config, lambda: now + 7 * HOUR - timedelta(minutes=15)).tell()
        self.tells(7 * HOUR - timedelta(minutes=15), "silence")
        for domain in ELEVEN:
            self.heals(domain, 8 * HOUR)
        for domain in ELEVEN:
            self.at(9 * HOUR, ProbeJob(f"again {domain}", ROUTE, domain, "", Reason.SCHEDULED), 2.4)
        self.tells(9 * HOUR, "resolved")
        stale = 9 * HOUR + timedelta(minutes=81)
        StaleWatch(self.database, self.config, lambda: now + stale).look(now)
        lost = {delivery.receiver: delivery for delivery in self.claims(stale)}
        self.heard["stale"] = lost["pager"]
        with self.database.transaction() as connection:
            outbox.mark_sent(connection, lost["pager"].id, now + stale)
            letters = DeadLetters(self.alerting, self.config.routes)
            refused = Failure("hook: HTTP 401", final=True, why=Why.REFUSED)
            letters.lose(connection, lost["hook"], refused, now + stale)
        self.tells(stale, "undelivered")
        for domain in ELEVEN:
            self.now = now + 13 * HOUR
            self.run(1.92, domain=domain, identity=SWAPPED)
        self.tells(14 * HOUR, "measured", "bump")


def test_every_message_says_what_it_is_about_and_what_to_run_and_that_works(database: Database, tmp_path: Path) -> None:
    night = Night(database)
    night.passes()
    assert night.heard.keys() == FIRST_LINES.keys()
    for name, delivery in night.heard.items():
        document = delivery.document
        assert re.fullmatch(FIRST_LINES[name], document["summary"]), document["summary"]
        for receiver, shown in ways(delivery).items():
            assert shown.startswith(document["summary"]), (name, receiver)
            assert commands(shown)[-1] == commands(document["text"])[-1], (name, receiver)
    configured(tmp_path)
    said = {command for delivery in night.heard.values() for command in commands(delivery.document["text"])}
    assert len(said) > 12
    for command in sorted(said):
        arguments = ["--config", str(tmp_path), "--database-url", database.conninfo(), *shlex.split(command)[1:]]
        result = CliRunner().invoke(cli, arguments)
        works = next((how for words, how in ELSE_THAN_0.items() if command.startswith(f"specwatch {words}")), None)
        assert works(result) if works else result.exit_code == 0, (command, result.output, result.exception)


def commands(text: str) -> list[str]:
    """Those that stand on a line of their own, beside the label or below it."""
    return re.findall(r"(?m)^\s+(?:next\s+)?(specwatch .*)$", text)


def ways(delivery: Delivery) -> dict[str, str]:
    """The text as each receiver has it, its first line first."""
    document, number = delivery.document, delivery.incident_id
    slack = message_body(document)["blocks"]
    card = card_body(document)["attachments"][0]["content"]["body"]
    mail = made_message("specwatch@example.com", ["oncall@example.com"], "key", number, document)
    plain = mail.get_body(("plain",))
    assert plain is not None
    assert mail["Subject"] == document["summary"]
    if delivery.is_note:
        hook = webhook_note("hook", document, None)
        pager = change_body("key", document)["payload"]
    else:
        hook = webhook_body("hook", number, document, None)
        pager = event_body("key", number, document, None)["payload"]
    return {
        "log": document["text"],
        "webhook": hook["commonAnnotations"]["description"],
        "pagerduty": f"{pager['summary']}\n{pager['custom_details']['text']}",
        "slack": "\n".join([message_body(document)["text"], *(_section(block) for block in slack)]),
        "teams": "\n".join(block["inlines"][0]["text"] for block in card),
        "mail": plain.get_content(),
    }


def _section(block: dict[str, Any]) -> str:
    return str(block["text"]["text"])


def configured(directory: Path) -> None:
    routes = {"routes": [{"name": ROUTE, "replicas": ["http://127.0.0.1:9"]}]}
    rules = [{"name": "acceptance-drop", "drop": "15%"}]
    receivers = [{"name": "hook", "webhook": {"url": NOBODY_THERE, "timeout": "1s"}}]
    (directory / "routes.yaml").write_text(yaml.safe_dump(routes))
    (directory / "alerting.yaml").write_text(yaml.safe_dump({"rules": rules, "receivers": receivers}))
